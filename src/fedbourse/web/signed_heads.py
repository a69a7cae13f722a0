"""Heads of logs as the market signs them: each once a second at most, or when its log has grown."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from fedbourse.wire.canonical import canonical
from fedbourse.wire.messages import log_head_message

if TYPE_CHECKING:
    from fedbourse.market.heads import Head
    from fedbourse.market.service import Market

_FRESH_MS = 1000
_KEPT_MAX = 1024


class SignedHeads:
    """The signed heads that were asked for last."""

    def __init__(self, market: Market) -> None:
        """Start with none."""
        self._market = market
        self._kept: OrderedDict[str, tuple[Head, dict[str, Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def signed(self, head: Head) -> dict[str, Any]:
        """Return a head, as it was just read, with the time and the market's signature.

        What was signed before counts only for the very same head: a log never seems to shrink.
        """
        now_ms = self._market.now_ms()
        with self._lock:
            kept = self._kept.get(head.of)
            if (
                kept is None
                or kept[0] != head
                or abs(now_ms - kept[1]["head"]["at_ms"]) >= _FRESH_MS
            ):
                kept = head, self._sign(head, now_ms)
                self._kept[head.of] = kept
            self._kept.move_to_end(head.of)
            if len(self._kept) > _KEPT_MAX:
                self._kept.popitem(last=False)
        return kept[1]

    def _sign(self, head: Head, now_ms: int) -> dict[str, Any]:
        message = log_head_message(of=head.of, length=head.length, hash=head.hash, at_ms=now_ms)
        key = self._market.key
        return {
            "head": message,
            "public_key": key.public,
            "signature": key.sign(canonical(message)),
        }
