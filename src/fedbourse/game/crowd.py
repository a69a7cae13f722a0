"""Many owners of nearly the same value, held in a few numbers: constant memory, exact decisions.

Participants crowd together. Owner k of the linear game joins iff the gaps below it sum to less than
the smallest value v_1 (see ``threshold``), so fewer than 2^20 participants lie further than
v_1 / 2^20 below the dearest one; all others share the two or three cells of relative width 2^-20
that reach down from it. Such a cell is held as a count and a sum. Read as integers, the bits of the
doubles in a cell are consecutive, so both are whole numbers and exact, whatever is added in
whatever order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.threshold import SLACK, Decided, Threshold, climb

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fedbourse.game.columns import BoolArray, FloatArray

    Bits = npt.NDArray[np.uint64]

CELL = 32
"""Bits of a double that a cell leaves open: 20 digits of 52 are fixed."""

_STEP = 20
"""Bits that a split decides: what it leaves open of a cell is 2^-40 of the values."""


@dataclass(frozen=True)
class Crowd:
    """All owners whose values lie in one cell; a cell lies within one power of two."""

    first: int
    """The bits of the smallest double in the cell."""
    open_bits: int
    """The cell holds 2^open_bits doubles."""
    count: int
    offsets: int
    """The sum of (bits - first) over the owners."""
    least: float
    largest: float
    """Bounds on their values: the very values, unless a reading was split."""

    @property
    def total(self) -> Fraction:
        """Return the exact sum of the values."""
        low = _double(self.first)
        return self.count * Fraction(low) + self.offsets * Fraction(float(np.spacing(low)))

    def gaps(self, top: float) -> Fraction:
        """Return the exact sum of (top - v)."""
        return self.count * Fraction(top) - self.total

    def contains(self, values: FloatArray) -> BoolArray:
        """Say which values belong to the cell."""
        bits = values.view(np.uint64)
        inside: BoolArray = bits - np.uint64(self.first) < np.uint64(1 << self.open_bits)
        # A value of 0 must stay one by one, to be refused by its row.
        return inside if self.first else inside & (bits > 0)

    def joined_by(self, values: FloatArray) -> Crowd:
        """Return the crowd with more owners, all of whom belong to the cell."""
        if not len(values):
            return self
        offsets = values.view(np.uint64) - np.uint64(self.first)
        return replace(
            self,
            count=self.count + len(values),
            offsets=self.offsets + int(offsets.sum()),  # below 2^31 owners of offsets below 2^32
            least=min(self.least, float(values.min())),
            largest=max(self.largest, float(values.max())),
        )

    def merged(self, other: Crowd) -> Crowd:
        """Return both crowds of one cell as one."""
        return replace(
            self,
            count=self.count + other.count,
            offsets=self.offsets + other.offsets,
            least=min(self.least, other.least),
            largest=max(self.largest, other.largest),
        )


def cell_of(values: FloatArray) -> Bits:
    """Return the first bits of the cell of each value."""
    return values.view(np.uint64) >> np.uint64(CELL) << np.uint64(CELL)


def empty_crowd(first: int) -> Crowd:
    """Return the crowd of a cell without anybody."""
    return Crowd(first, CELL, 0, 0, np.inf, 0.0)


class Split:
    """A crowd's owners counted by the next digits of their values: 16 MB."""

    def __init__(self, crowd: Crowd) -> None:
        """Start with nobody counted."""
        self.crowd = crowd
        self._shift = max(crowd.open_bits - _STEP, 0)
        self._counts = np.zeros(1 << (crowd.open_bits - self._shift), np.int64)
        self._offsets = np.zeros_like(self._counts)

    def add(self, values: FloatArray) -> None:
        """Count those of the values that belong to the crowd."""
        offsets = (values.view(np.uint64) - np.uint64(self.crowd.first)).view(np.int64)
        members = offsets[self.crowd.contains(values)]
        parts = members >> self._shift
        np.add.at(self._counts, parts, 1)
        np.add.at(self._offsets, parts, members & ((1 << self._shift) - 1))

    def merge(self, other: Split) -> None:
        """Count another split's owners of the same crowd too."""
        self._counts += other._counts
        self._offsets += other._offsets

    def parts(self, joins: Callable[[Crowd], bool]) -> list[Crowd]:
        """Return those who take part, as one crowd, and those who are still in question.

        ``joins`` says whether all of a crowd take part. It is asked some twenty times: if some
        owners do, so do all cheaper ones.
        """
        found = int(self._counts.sum())
        if found < self.crowd.count:  # it may be more: whoever was out already is counted again
            raise InvalidGame(
                f"a source must hold the same owners at every reading; found {found} where there "
                f"were {self.crowd.count}, with values from {self.crowd.least:.17g} on"
            )
        filled = np.flatnonzero(self._counts)
        counts = self._counts[filled].astype(object)
        starts = (filled << self._shift).astype(object)
        inner = self._offsets[filled].astype(object)
        upto = np.cumsum(counts), np.cumsum(starts * counts + inner)

        def cheapest(parts: int) -> Crowd:
            """Return the owners of the first parts as one crowd."""
            first = self.crowd.first
            last = first + ((int(filled[parts - 1]) + 1) << self._shift) - 1
            return replace(
                self.crowd,
                count=upto[0][parts - 1],
                offsets=upto[1][parts - 1],
                least=_double(first + (int(filled[0]) << self._shift)),
                largest=_double(last),
            )

        low, high = 0, len(filled)  # parts before low take part; part high does not, wholly
        while low < high:
            middle = (low + high) // 2
            below = cheapest(middle + 1)
            low, high = (middle + 1, high) if joins(below) else (low, middle)
        inside = [cheapest(low)] if low else []
        if low == len(filled) or not self._shift:
            return inside
        first = self.crowd.first + int(starts[low])
        asked = Crowd(
            first,
            self._shift,
            counts[low],
            inner[low],
            least=_double(first),
            largest=_double(first + (1 << self._shift) - 1),
        )
        return [*inside, asked]


class Mixed:
    """Owners one by one, and crowds of them: who takes part?"""

    def __init__(self, values: FloatArray, crowds: list[Crowd], *, cheapest_crowd: float) -> None:
        """Take the values of those who are known one by one, and the least value in a crowd."""
        self.crowds = sorted(crowds, key=lambda crowd: crowd.least)
        first = int(np.argmin(values)) if len(values) else 0
        alone = len(values) > 0 and values[first] <= cheapest_crowd
        self._cheapest = float(values[first]) if alone else cheapest_crowd
        self._others = np.delete(values, first) if alone else values
        self._in_crowd = not alone

    def bound(self) -> float:
        """Return a bound on the threshold, above which nobody takes part."""
        values, crowds = self._others, self.crowds
        own = 0.0 if self._in_crowd else self._cheapest
        while True:
            count = max(len(values) + sum(crowd.count for crowd in crowds) - self._in_crowd, 1)
            with np.errstate(over="ignore"):  # an infinite bound drops nobody
                alone = own + float(values.sum())
            mean = sum((crowd.total for crowd in crowds), Fraction(0)) / count
            bound = (alone / count + _float(mean)) * (1 + SLACK)
            left = values[values <= bound]
            below = [crowd for crowd in crowds if crowd.least <= bound]
            if len(left) == len(values) and len(below) == len(crowds):
                return bound
            values, crowds = left, below

    def joins(self, crowd: Crowd) -> bool:
        """Say whether all of a crowd take part, be it one of these or another one."""
        return self._height(crowd.largest, crowd) < self._cheapest

    def undecided(self) -> Crowd | None:
        """Return the crowd of which some owners take part and some do not, if there is one."""
        for crowd in self.crowds:
            if not self.joins(crowd):
                first_joins = self._height(crowd.least, None) < self._cheapest
                return crowd if first_joins and crowd.least < crowd.largest else None
        return None

    def threshold(self) -> Threshold:
        """Return the threshold; no crowd is undecided."""
        inside = [crowd for crowd in self.crowds if self.joins(crowd)]
        limit = min((crowd.least for crowd in self.crowds[len(inside) :]), default=np.inf)
        ref, gap = self._cheapest, 0.0
        if inside:
            ref = inside[-1].largest
            gap = float(self._height(ref, None))
        decided = self._others[self._others <= ref] if inside else self._others[:0]
        rest = self._others[(self._others > ref) | (not inside)]
        total = sum((crowd.total for crowd in inside), Fraction(0))
        own = 0.0 if self._in_crowd else self._cheapest
        return climb(
            Decided(
                cheapest=self._cheapest,
                count=len(decided) + sum(crowd.count for crowd in inside) - self._in_crowd,
                ref=ref,
                gap=gap,
                total=own + float(decided.sum()) + _float(total),
            ),
            [rest[rest < limit]],
        )

    def _height(self, top: float, extra: Crowd | None) -> Fraction:
        """Return H(top), the exact sum of (top - v) over all below it but the cheapest one."""
        with np.errstate(over="ignore"):
            gaps = float((top - self._others[self._others <= top]).sum())
        if not gaps <= self._cheapest:  # larger than any height that matters, maybe infinite
            return 2 * Fraction(self._cheapest)
        crowds = [crowd for crowd in self.crowds if crowd.largest <= top]
        if extra is not None and extra not in crowds:
            crowds.append(extra)
        height = Fraction(gaps) + sum((crowd.gaps(top) for crowd in crowds), Fraction(0))
        return height - (Fraction(top) - Fraction(self._cheapest)) * self._in_crowd


def _float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _double(bits: int) -> float:
    return float(np.uint64(bits).view(np.float64))
