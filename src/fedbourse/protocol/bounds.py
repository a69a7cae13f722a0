"""How much is read from a market at most, and for how long: a market may never end by itself.

Each bound lies far above what an honest market needs, and far below what hurts a small device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from fedbourse.errors import ProtocolError, Unreachable

DOCUMENT_BYTES_MAX = 16 * 2**20
"""A document for a person at a command line: an auditor's may name every owner of a task."""
DEVICE_DOCUMENT_BYTES_MAX = 4 * 2**20
"""A document for a device; the largest are pages of a hundred tasks, a few KiB each."""
CARD_BYTES_MAX = 2**18
"""A task's card, which a device keeps: a layout of a thousand columns takes a quarter of it."""
MODEL_BYTES_MAX = 64 * 2**20
"""A model: eight million doubles."""
PROBLEM_BYTES_MAX = 2**16
"""A refusal: a code and one sentence."""
EVENT_BYTES_MAX = 2**20
"""One event of a stream."""
BYTES_PER_VALUE_MIN = 8
"""A document of numbers and names holds at most one value in so many bytes: ``[[],[],...`` would
take twenty times its own size in memory."""

PATIENCE_S = 60.0
BYTES_PER_S_MIN = 4000
"""A response comes within a minute, or faster than this after it: a byte now and then is none."""
QUIET_S = 60.0
"""A stream that shows no sign of life for so long is opened again."""

TASKS_MAX = 1000
"""The newest tasks of a market that a device looks at."""
TASKS_A_PAGE = 100
EVENTS_A_PAGE = 100
TICKS_MAX = 1000
"""Announcements or settlements of one task: each is remembered, and sixty are usual."""
NEW_TASKS_MAX = 50
"""Tasks that a device tries to join at one look; the others wait for the next one."""
DEALS_MAX = 100
"""Deals with one market that a device follows at once, a thread each."""
DEALS_BYTES_MAX = 32 * 2**20
"""What a device keeps of its deals with one market; those that came to nothing go first."""
LOOKS_PER_S, LOOKS_BURST = 50.0, 2000
"""How often a device looks at one task in the long run, and at once: a market that never lets it
wait for news does not keep its processor busy."""
REFUSED_TASKS_MAX = 10_000
"""Tasks of a market that a device remembers not to have joined, while it runs."""
REFUSALS_MAX, DEAL_REFUSALS_MAX = 10_000, 100
"""Refusals that a device keeps, in all and of one deal: a market may ask for ever."""
OWNERS_MAX = 100_000
"""Owners that advice is computed for, whatever a market says: more change nothing but its cost."""


class Pace:
    """How often something may be done: so many times at once, and so often in the long run."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._left, self._at = float(burst), time.monotonic()

    def pause_s(self) -> float:
        """Count one time, and return how long to wait before it."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s) - 1
        self._at = now
        return max(0.0, -self._left / self._per_s)


@dataclass
class Allowance:
    """What may be read from a market for one purpose in all, over every request."""

    what: str
    """The purpose, as a sentence names it: ``the list of tasks``."""
    requests: int
    size: int
    """Bytes."""
    seconds: float
    _begun: float = field(default_factory=time.monotonic)

    def take_request(self) -> None:
        """Count a request; refuse one too many, or too late."""
        self.requests -= 1
        if self.requests < 0:
            raise ProtocolError(f"{self.what} has no end: more pages than any honest market needs")
        if time.monotonic() - self._begun > self.seconds:
            raise Unreachable(f"{self.what} was not read within {self.seconds:g} s")

    def take_bytes(self, size: int) -> None:
        """Count bytes; refuse too many."""
        self.size -= size
        if self.size < 0:
            raise ProtocolError(f"{self.what} is longer than what is read of it")


def tasks_list() -> Allowance:
    """Return what a device reads to learn of a market's tasks."""
    return Allowance("the market's list of tasks", 2 * TASKS_MAX // TASKS_A_PAGE, 8 * 2**20, 600.0)


def discovery_log() -> Allowance:
    """Return what a device reads of a log, up to training: an event a tick, and some for exits."""
    return Allowance("the market's log", 2 * TICKS_MAX // EVENTS_A_PAGE, 8 * 2**20, 600.0)


def owner_records() -> Allowance:
    """Return what a device reads to verify a task: a log of ten thousand rounds, its allocation."""
    return Allowance("the task's records", 2000, 64 * 2**20, 1800.0)


def auditor_records() -> Allowance:
    """Return what a person reads of a whole market: millions of transfers."""
    return Allowance("the market's records", 200_000, 2**31, 24 * 3600.0)


def kept_round() -> Allowance:
    """Return what an auditor reads of one round: thousands of updates of a million numbers."""
    return Allowance("a round that the market kept", 200_000, 2**36, 24 * 3600.0)
