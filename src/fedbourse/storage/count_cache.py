"""A cache of counts of very many owners, which everybody is shown."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

MANY = 10_000
"""Smaller counts are not cached."""
_TTL_S_EACH = 1e-5
"""For each owner a count lives so much longer: a hundred times as long as it took."""
_COUNTS_MAX = 1024


class CountCache:
    """How many owners tasks had when they were last counted."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, tasks: Iterable[str]) -> dict[str, int]:
        """Return the cached counts of these tasks."""
        now = self._now_s()
        with self._lock:
            counts = {task: self._counts[task] for task in tasks if task in self._counts}
        return {task: count for task, (count, until) in counts.items() if now < until}

    def keep(self, counts: Mapping[str, int]) -> None:
        """Cache the counts that took long."""
        now = self._now_s()
        with self._lock:
            for task, count in counts.items():
                if count >= MANY:
                    self._counts[task] = count, now + count * _TTL_S_EACH
                    self._counts.move_to_end(task)
            while len(self._counts) > _COUNTS_MAX:
                self._counts.popitem(last=False)
