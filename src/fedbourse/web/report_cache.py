"""A cache of the public reports of tasks that have ended.

Reports are made for a stranger (``Service.view`` without a caller), so that nobody learns more from
one than everybody may. A log that has ended never changes; its hash is the key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from fedbourse.market.lifecycle import ENDED
from fedbourse.market.records import Task


class ReportCache:
    """The most recently used reports, bounded in number and in total size."""

    def __init__(self, *, reports_max: int = 1000, characters_max: int = 2**24) -> None:
        self._reports_max, self._characters_max = reports_max, characters_max
        self._reports: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def find(self, task: Task) -> str | None:
        """Return the report of a task in its current state; None where it is not cached."""
        key = task.id, task.last_hash
        with self._lock:
            report = self._reports.get(key)
            if report is not None:
                self._reports.move_to_end(key)
        return report

    def keep(self, task: Task, report: str) -> None:
        """Cache a report, in place of the least recently used."""
        if task.state not in ENDED:
            raise ValueError(
                f"only a task that has ended is cached; task {task.id} is {task.state}"
            )
        with self._lock:
            self._characters -= len(self._reports.pop((task.id, task.last_hash), ""))
            self._reports[task.id, task.last_hash] = report
            self._characters += len(report)
            while len(self._reports) > self._reports_max or self._characters > self._characters_max:
                _, oldest = self._reports.popitem(last=False)
                self._characters -= len(oldest)

    def __len__(self) -> int:
        return len(self._reports)
