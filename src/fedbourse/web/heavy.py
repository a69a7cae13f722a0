"""What is computed at length: how often, for whom, and how much of it at once.

A route is light or heavy. A light one takes at most 50 ms of the processor at the sizes of
``benchmarks/market_scale.py``, and the limits on addresses and parties are enough for it. A heavy
one takes a turn here first. It never waits for one: a request that waits would hold a thread that
light ones need.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedbourse.errors import TooManyRequests, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.web.limits import Buckets


class HeavyWork:
    """Turns: one at a time for each caller, few at once for all, fewer for strangers."""

    def __init__(self, buckets: Buckets, *, at_once: int, strangers_at_once: int) -> None:
        """Start with nothing under way."""
        self._buckets, self._at_once, self._strangers = buckets, at_once, strangers_at_once
        self._running: dict[str, bool] = {}
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, key: str, *, known: bool) -> Iterator[None]:
        """Compute something for a party that is known, or for the address of a stranger."""
        if self._buckets.wait_s(key):
            raise TooManyRequests(f"{key} has much computed at once; wait a second and repeat it")
        with self._lock:
            self._refuse(key, known)
            self._running[key] = known
        try:
            yield
        finally:
            with self._lock:
                del self._running[key]

    def _refuse(self, key: str, known: bool) -> None:
        if key in self._running:
            raise TooManyRequests(
                f"{key} has something computed already; wait for it and repeat this"
            )
        strangers = sum(not each for each in self._running.values())
        if len(self._running) >= self._at_once or (not known and strangers >= self._strangers):
            raise Unreachable("the market computes as much as it can; ask again in a second")
