"""The value at which equal lots stop selling, over any number of owners, in bounded memory.

Sought is the smallest value x of rank m with x m > B. Adding owners only raises ranks, so x of some
of the owners is at least that of all, and whoever lies above it can be dropped: while few are left,
one reading does. Where many sell, owners are counted by the leading digits of their values, and
another reading or two look only at the digits where the decision falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import FloatArray, IntArray
from fedbourse.game.outofcore.convex_stream import values_of
from fedbourse.game.outofcore.stream import ONCE_ONLY, Stream

HELD_MAX = 1 << 20
"""Different values that are held individually."""
NOBODY = "values must hold at least one number; found none"
_SHIFTS = (42, 22, 0)
"""Bits of a value that each reading leaves open."""


@dataclass(frozen=True)
class LotCutoff:
    """The value x at which lots stop selling, and how many sell below it and at it."""

    owners: int
    sellers: int
    value: float
    """Infinite where everybody sells."""
    tied: int
    """How many owners of exactly this value sell."""


def lot_cutoff(values: FloatArray, limit: float) -> LotCutoff:
    """Return the cutoff of values that are sorted."""
    sellers = int(np.count_nonzero(values * np.arange(1, len(values) + 1) <= limit))
    if sellers == len(values):
        return LotCutoff(sellers, sellers, math.inf, 0)
    value = float(values[sellers])
    return LotCutoff(len(values), sellers, value, sellers - int(np.searchsorted(values, value)))


def lot_cutoff_of_stream(stream: Stream, limit: float) -> LotCutoff:
    """Return the cutoff of all owners of a stream."""
    held = _Held(limit)
    counted: _Digits | None = None
    owners = 0
    for block in values_of(stream):
        owners += len(block)
        inside = block[block <= held.bound]
        if counted is not None:
            counted.add(inside)
        elif len(inside) and not held.add(inside):
            counted = _Digits(0, 64, _SHIFTS[0])
            counted.count(held.values, held.counts)
    if not owners:
        raise InvalidGame(NOBODY)
    if counted is None:
        held.merge()
        return _of_counts(held.values, held.counts, limit, owners)
    return _refined(stream, counted, limit, owners)


def _of_counts(
    values: FloatArray, counts: IntArray, limit: float, owners: int, below: int = 0
) -> LotCutoff:
    """Return the cutoff of different values in order, ``below`` owners being cheaper."""
    ranks = below + np.cumsum(counts)
    over = np.flatnonzero(values * ranks > limit)
    if not len(over):
        return LotCutoff(owners, below + int(counts.sum()), math.inf, 0)
    place = int(over[0])
    value, first = float(values[place]), int(ranks[place] - counts[place])
    # The largest rank with value * rank <= limit, by the same products as in memory.
    most = int(ranks[place]) - 1
    sellers = min(most, max(first, int(limit / value) + 1))
    while sellers > first and value * sellers > limit:
        sellers -= 1
    return LotCutoff(owners, sellers, value, sellers - first)


class _Held:
    """Owners who may sell, or be the first who does not, by value."""

    def __init__(self, limit: float) -> None:
        self.values, self.counts = np.empty(0), np.empty(0, np.int64)
        self.bound = math.inf
        """Nobody above it sells, or decides who does."""
        self._limit = limit
        self._fresh: list[FloatArray] = []
        self._size = 0

    def add(self, inside: FloatArray) -> bool:
        """Add owners within the bound; return whether those who matter can be held."""
        self._fresh.append(inside)
        self._size += len(inside)
        if self._size >= HELD_MAX or not len(self.values):
            self.merge()
        return len(self.values) <= HELD_MAX

    def merge(self) -> None:
        """Count whoever was added, and drop whoever lies above the cutoff."""
        everybody = np.concatenate([self.values, *self._fresh])
        values, places = np.unique(everybody, return_inverse=True)
        multiplicities = np.concatenate([self.counts, np.ones(self._size, np.int64)])
        counts = np.bincount(places, multiplicities, len(values)).astype(np.int64)
        over = np.flatnonzero(values * np.cumsum(counts) > self._limit)
        if len(over):
            values, counts = values[: over[0] + 1], counts[: over[0] + 1]
            self.bound = float(values[-1])
        self.values, self.counts = values, counts
        self._fresh, self._size = [], 0


class _Digits:
    """Owners counted by some digits of their values, from a first value on."""

    def __init__(self, first: int, bits: int, shift: int) -> None:
        self.first, self.shift = first, shift
        self._last = first + (1 << bits) - 1 if bits < 64 else (1 << 63) - 1
        self._counts = np.zeros((self._last - first >> shift) + 1, np.int64)
        self.next_value = math.inf
        """The smallest value above all of these."""

    def add(self, block: FloatArray) -> None:
        """Count those of a block that belong here."""
        bits = block.view(np.int64)
        above = bits > self._last
        if above.any():
            self.next_value = min(self.next_value, float(block[above].min()))
        inside = bits[~above & (bits >= self.first)]
        if len(inside):
            places = (inside - self.first) >> self.shift
            low = int(places.min())
            counts = np.bincount(places - low)
            self._counts[low : low + len(counts)] += counts

    def count(self, values: FloatArray, counts: IntArray) -> None:
        """Count owners by value."""
        np.add.at(self._counts, (values.view(np.int64) - self.first) >> self.shift, counts)

    def decisive(self, limit: float, below: int) -> tuple[int, int] | None:
        """Return the first bin whose owners may be too many, by its first bits, and who is cheaper.

        Where it is of one value only, they are too many.
        """
        filled = np.flatnonzero(self._counts)
        ranks = below + np.cumsum(self._counts[filled])
        lows = self.first + (filled << self.shift)
        highs = (lows + ((1 << self.shift) - 1)).view(np.float64)
        over = np.flatnonzero(highs * ranks > limit)
        if not len(over):
            return None
        place = int(over[0])
        return int(lows[place]), int(ranks[place] - self._counts[filled[place]])

    def total(self) -> int:
        """Return how many owners were counted."""
        return int(self._counts.sum())

    def of_one_value(self, first: int) -> tuple[FloatArray, IntArray]:
        """Return the one value of a bin, and its number of owners."""
        value = np.array([first], np.int64).view(np.float64)
        return value, self._counts[[first - self.first]]


def _refined(stream: Stream, digits: _Digits, limit: float, owners: int) -> LotCutoff:
    """Look at ever finer digits of the one bin in which the decision falls."""
    below = 0
    for shift in (*_SHIFTS[1:], None):
        decisive = digits.decisive(limit, below)
        if decisive is None:
            sellers = below + digits.total()
            return LotCutoff(owners, sellers, digits.next_value, 0)
        first, below = decisive
        if shift is None:
            return _of_counts(*digits.of_one_value(first), limit, owners, below)
        if not stream.again:
            raise InvalidGame(ONCE_ONLY)
        finer = _Digits(first, digits.shift, shift)
        total = 0
        for block in values_of(stream):
            finer.add(block)
            total += len(block)
        if total != owners:
            raise InvalidGame(
                f"a source must hold the same owners at every reading; found {total} where there "
                f"were {owners}"
            )
        digits = finer
    raise AssertionError("the last digits decide")
