"""Heavy work: how often, for whom, and how much of it at once.

A request is light or heavy. A light one takes at most 50 ms of processor time at the sizes of
``benchmarks/page_costs.py``, which measures all of them; limits by address and party are enough for
it. A heavy one takes a turn here, and is refused where none is free: waiting would hold a thread
that light ones need.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fedbourse.errors import TooManyRequests, Unreachable
from fedbourse.web.limits import Buckets


class HeavyWork:
    """Turns: one at a time for each caller, a few at once for all, fewer for strangers."""

    def __init__(self, buckets: Buckets, *, at_once: int, strangers_at_once: int) -> None:
        self._buckets, self._at_once, self._strangers = buckets, at_once, strangers_at_once
        self._running: dict[str, bool] = {}
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, key: str, *, authenticated: bool) -> Iterator[None]:
        """Take the turn of an authenticated party, or of the address of a stranger."""
        if self._buckets.wait_s(key):
            raise TooManyRequests(
                f"{key} asks for too much heavy work; wait a second and try again"
            )
        with self._lock:
            if key in self._running:
                raise TooManyRequests(
                    f"{key} has heavy work under way already; wait for it and repeat this"
                )
            strangers = sum(not each for each in self._running.values())
            full = not authenticated and strangers >= self._strangers
            if full or len(self._running) >= self._at_once:
                raise Unreachable("the market computes as much as it can; try again in a second")
            self._running[key] = authenticated
        try:
            yield
        finally:
            with self._lock:
                del self._running[key]
