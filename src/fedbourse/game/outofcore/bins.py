"""Many owners of nearly the same value, held in a few numbers: constant memory, exact decisions.

Participants lie close together. Owner k of the linear game joins iff the gaps below it sum to less
than the smallest value v_1 (see ``cutoff``), so fewer than 2^20 participants lie further than
v_1 / 2^20 below the highest-value one; all others share the two or three bins of relative width
2^-20 that reach down from it. Such a bin is held as a count and a sum. Read as integers, the bits
of the doubles in a bin are consecutive, so both are whole numbers and exact, whatever is added in
whatever order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fedbourse.game.columns import BoolArray, FloatArray
from fedbourse.game.cutoff import SLACK, CutoffRecord, ParticipantSums, select_cutoff

BIN_BITS = 32
"""Bits of a double that a bin leaves open: 20 digits of 52 are fixed."""


@dataclass(frozen=True)
class Bin:
    """All owners whose values share their leading bits; a bin lies within one power of two."""

    first: int
    """The bits of the smallest double in the bin."""
    open_bits: int
    """The bin covers 2^open_bits doubles."""
    count: int
    offsets: int
    """The sum of (bits - first) over the owners."""
    least: float
    largest: float
    """Bounds on their values: the very values, unless the bin was refined."""

    @classmethod
    def empty(cls, first: int) -> Bin:
        """Return the bin that starts at these bits, without owners."""
        return cls(first, BIN_BITS, 0, 0, np.inf, 0.0)

    @property
    def total(self) -> Fraction:
        """Return the exact sum of the values."""
        low = double_of(self.first)
        return self.count * Fraction(low) + self.offsets * Fraction(float(np.spacing(low)))

    def gaps(self, top: float) -> Fraction:
        """Return the exact sum of (top - v)."""
        return self.count * Fraction(top) - self.total

    def contains(self, values: FloatArray) -> BoolArray:
        """Say which values belong to the bin."""
        bits = values.view(np.uint64)
        inside: BoolArray = bits - np.uint64(self.first) < np.uint64(1 << self.open_bits)
        # A value of 0 must stay out of bins, to be refused by its row.
        return inside if self.first else inside & (bits > 0)

    def with_values(self, values: FloatArray) -> Bin:
        """Return the bin with more owners, all of whom belong to it."""
        if not len(values):
            return self
        # Below 2^31 owners of offsets below 2^32.
        offsets = int((values.view(np.uint64) - np.uint64(self.first)).sum())
        ends = float(values.min()), float(values.max())
        return self.merged(Bin(self.first, self.open_bits, len(values), offsets, *ends))

    def merged(self, other: Bin) -> Bin:
        """Return the owners of both, which have the same bits in common, as one bin."""
        return replace(
            self,
            count=self.count + other.count,
            offsets=self.offsets + other.offsets,
            least=min(self.least, other.least),
            largest=max(self.largest, other.largest),
        )


def bin_starts(values: FloatArray) -> npt.NDArray[np.uint64]:
    """Return the first bits of each value's bin."""
    return values.view(np.uint64) >> np.uint64(BIN_BITS) << np.uint64(BIN_BITS)


class BinnedOwners:
    """Individual owners and bins of them: who takes part?"""

    def __init__(self, values: FloatArray, bins: list[Bin], *, cheapest_binned: float) -> None:
        self.bins = sorted(bins, key=lambda each: each.least)
        first = int(np.argmin(values)) if len(values) else 0
        alone = len(values) > 0 and values[first] <= cheapest_binned
        self._cheapest = float(values[first]) if alone else cheapest_binned
        self._others = np.delete(values, first) if alone else values
        self._own = self._cheapest if alone else 0.0
        self._in_bin = not alone

    def bound(self) -> float:
        """Return a bound on the cutoff, above which nobody takes part."""
        values, bins = self._others, self.bins
        while True:
            count = max(len(values) + sum(each.count for each in bins) - self._in_bin, 1)
            with np.errstate(over="ignore"):  # an infinite bound drops nobody
                alone = self._own + float(values.sum())
            mean = sum((each.total for each in bins), Fraction(0)) / count
            bound = (alone / count + _float(mean)) * (1 + SLACK)
            left = values[values <= bound]
            below = [each for each in bins if each.least <= bound]
            if len(left) == len(values) and len(below) == len(bins):
                return bound
            values, bins = left, below

    def joins(self, one: Bin) -> bool:
        """Say whether all owners of a bin take part, be it one of these or another one."""
        return self._height(one.largest, one) < self._cheapest

    def undecided(self) -> Bin | None:
        """Return the bin of which some owners take part and some do not, if there is one."""
        for each in self.bins:
            if not self.joins(each):
                first_joins = self._height(each.least, None) < self._cheapest
                return each if first_joins and each.least < each.largest else None
        return None

    def cutoff(self) -> CutoffRecord:
        """Return the cutoff; no bin is undecided."""
        inside = [each for each in self.bins if self.joins(each)]
        limit = min((each.least for each in self.bins[len(inside) :]), default=np.inf)
        ref, gap, below = self._cheapest, 0.0, np.zeros(len(self._others), np.bool_)
        if inside:
            ref = inside[-1].largest
            gap = float(self._height(ref, None))
            below = self._others <= ref
        total = sum((each.total for each in inside), Fraction(0))
        sums = ParticipantSums(
            cheapest=self._cheapest,
            count=int(below.sum()) + sum(each.count for each in inside) - self._in_bin,
            ref=ref,
            gap=gap,
            total=self._own + float(self._others[below].sum()) + _float(total),
        )
        return select_cutoff(sums, [self._others[~below & (self._others < limit)]])

    def _height(self, top: float, extra: Bin | None) -> Fraction:
        """Return H(top), the exact sum of (top - v) over all below it but the cheapest one."""
        with np.errstate(over="ignore"):
            gaps = float((top - self._others[self._others <= top]).sum())
        if not gaps <= self._cheapest:  # larger than any height that matters, maybe infinite
            return 2 * Fraction(self._cheapest)
        bins = [each for each in self.bins if each.largest <= top]
        if extra is not None and extra not in bins:
            bins.append(extra)
        height = Fraction(gaps) + sum((each.gaps(top) for each in bins), Fraction(0))
        return height - (Fraction(top) - Fraction(self._cheapest)) * self._in_bin


def double_of(bits: int) -> float:
    """Return the double that these bits encode."""
    return float(np.uint64(bits).view(np.float64))


def _float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf
