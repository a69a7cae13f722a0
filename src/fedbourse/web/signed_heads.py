"""Signed heads of logs: each is signed at most once a second, and when its log has grown."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated

from fedbourse.encoding.canonical import canonical
from fedbourse.market.heads import Head
from fedbourse.market.service import Market
from fedbourse.protocol.messages import LogHead, Message, log_head_message

_FRESH_MS = 1000
_HEADS_MAX = 1024


@dataclass(frozen=True)
class SignedHead:
    """A head with the market's signature."""

    head: Annotated[Message, LogHead]
    public_key: str
    signature: str


class SignedHeads:
    """A cache of signed heads."""

    def __init__(self, market: Market) -> None:
        self._market = market
        self._heads: OrderedDict[str, tuple[Head, SignedHead]] = OrderedDict()
        self._lock = threading.Lock()

    def signed(self, head: Head) -> SignedHead:
        """Return a head, as it was just read, with the time and the market's signature.

        A cached signature counts only for the very same head: a log never seems to shrink.
        """
        now_ms = self._market.now_ms()
        with self._lock:
            last, signed = self._heads.pop(head.of, (None, None))
            if last != head or signed is None or abs(now_ms - signed.head["at_ms"]) >= _FRESH_MS:
                message = log_head_message(
                    of=head.of, length=head.length, hash=head.hash, at_ms=now_ms
                )
                key = self._market.key
                signed = SignedHead(message, key.public, key.sign(canonical(message)))
            self._heads[head.of] = head, signed
            if len(self._heads) > _HEADS_MAX:
                self._heads.popitem(last=False)
        return signed
