"""Who takes part when privacy costs v r (linear cost): the highest value that does, in O(n).

Sort the values. Owner k takes part exactly when v_k lies below the cutoff tau of the owners up to
k, tau = (sum of their values) / (k - 1), the rule of the paper's Algorithm 2 made strict. Written
so that nothing cancels, owner k joins iff

    H(v_k) = sum over 1 < j < k of (v_k - v_j)  <  v_1.

Floating point decides this exactly. Every value is at least v_1 and so a whole multiple of v_1's
last digit u; so are all differences, products with counts and sums of them. As long as such a
number is at most v_1 it has no more digits than v_1 and is held exactly; and rounding never takes
one that is larger below v_1. For the same reason the margin v_1 - H of a participant is exact.

H rises with v_k, so the highest participating value is found by selection, without a full sort:
drop whoever lies above the tau of all who are left (Newton's method on a convex function, which
never drops a participant), and where that is slow, decide the median and drop half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbourse.game.array_spans import BLOCK, blocks, on_every_core, select
from fedbourse.game.columns import FloatArray

SMALL = 1 << 14
"""Candidates that are few enough to sort."""

SLACK = 1e-12
"""Relative width by which a filter keeps candidates above tau, to be decided strictly later."""


@dataclass(frozen=True)
class CutoffRecord:
    """The linear game's participants: everybody whose value is at most ``top``."""

    cheapest: float
    """v_1, the smallest value."""
    highest: float
    """v_K, the largest value that takes part."""
    margin: float
    """v_1 - H(v_K) > 0: how far inside the highest-value participant is."""
    count: int
    """K, the number of participants."""
    total: float
    """The sum of the participants' values."""
    reach: float | None = None
    """Values above ``highest`` up to this take part as well, and count as ``highest``: there are
    some only where owners are counted in bins of relative width 2^-40."""

    @property
    def top(self) -> float:
        """Return the largest value that takes part."""
        return self.highest if self.reach is None else self.reach

    @property
    def tau(self) -> float:
        """Return the price per unit of budget at which an owner is indifferent to taking part."""
        return self.total / (self.count - 1)


def find_cutoff(values: FloatArray) -> CutoffRecord:
    """Return the cutoff of two or more positive, finite values."""
    first = int(np.argmin(values))
    sums = ParticipantSums.of_cheapest(float(values[first]))
    return select_cutoff(sums, [values[:first], values[first + 1 :]])


@dataclass(frozen=True)
class ParticipantSums:
    """Sums over owners who take part for certain."""

    cheapest: float
    """v_1."""
    count: int
    """How many there are besides the cheapest one."""
    ref: float
    """A value that none of them exceeds, and no candidate falls below."""
    gap: float
    """H(ref), the sum of (ref - v) over them."""
    total: float
    """The sum of their values, the cheapest one's included."""

    @classmethod
    def of_cheapest(cls, value: float) -> ParticipantSums:
        """Start with the cheapest owner alone."""
        return cls(value, 0, value, 0.0, value)

    def extended(self, ref: float, gap: float, more: int, more_total: float) -> ParticipantSums:
        """Return the sums with ``more`` owners up to ``ref``."""
        return ParticipantSums(self.cheapest, self.count + more, ref, gap, self.total + more_total)

    def cutoff(self) -> CutoffRecord:
        """Return the cutoff where nobody else takes part."""
        return CutoffRecord(
            self.cheapest, self.ref, self.cheapest - self.gap, 1 + self.count, self.total
        )


def select_cutoff(sums: ParticipantSums, candidates: list[FloatArray]) -> CutoffRecord:
    """Return the cutoff, given those who take part for certain and all who may."""
    with np.errstate(over="ignore"):  # sums of huge values may pass for infinite: out, rightly
        search = _Search(sums, candidates)
        while search.size > SMALL:
            if (everybody := search.if_everybody_joins()) is not None:
                return everybody
            search.drop_above_tau()
        return search.finish()


class _Search:
    """The state of the selection: participants as a few sums, candidates as arrays."""

    def __init__(self, sums: ParticipantSums, candidates: list[FloatArray]) -> None:
        self.sums = sums
        self._replace(candidates)

    def _replace(self, candidates: list[FloatArray]) -> None:
        self.candidates = candidates
        self.size = sum(len(part) for part in candidates)
        if self.size > SMALL:
            ends = [_largest_and_total(part) for part in candidates if len(part)]
            self.largest = max(largest for largest, _ in ends)
            self.candidates_total = sum(total for _, total in ends)

    def height(self, value: float, below: list[FloatArray]) -> float:
        """Return H(value), given the candidates at or below it."""
        base = self.sums.gap + self.sums.count * (value - self.sums.ref)
        return base + sum(_sum_of_gaps(part, value) for part in below)

    def if_everybody_joins(self) -> CutoffRecord | None:
        height = self.height(self.largest, self.candidates)
        if not height < self.sums.cheapest:
            return None
        whole = self.sums.extended(self.largest, height, self.size, self.candidates_total)
        return whole.cutoff()

    def drop_above_tau(self) -> None:
        tau = (self.sums.total + self.candidates_total) / (self.sums.count + self.size)
        rest = np.concatenate([select(part, part <= tau * (1 + SLACK)) for part in self.candidates])
        if len(rest) > self.size // 2:
            rest = self._decide_median(rest)
        self._replace([rest])

    def finish(self) -> CutoffRecord:
        """Sort the few candidates and go up while H stays below the cheapest value."""
        sums = self.sums
        rest = np.sort(np.concatenate(self.candidates))
        steps = np.diff(rest, prepend=sums.ref)
        heights = sums.gap + np.cumsum((sums.count + np.arange(len(rest))) * steps)
        joined = int(np.searchsorted(heights, sums.cheapest))
        if joined == 0:
            return sums.cutoff()
        highest, height = float(rest[joined - 1]), float(heights[joined - 1])
        return sums.extended(highest, height, joined, float(rest[:joined].sum())).cutoff()

    def _decide_median(self, candidates: FloatArray) -> FloatArray:
        """Decide half of the candidates and return the other half."""
        middle = len(candidates) // 2
        candidates = np.partition(candidates, middle)
        lower, median, upper = candidates[:middle], float(candidates[middle]), candidates[middle:]
        height = self.height(median, [lower])
        if not height < self.sums.cheapest:
            return select(lower, lower < median)
        self.sums = self.sums.extended(median, height, len(lower), float(lower.sum()))
        return upper


def _sum_of_gaps(values: FloatArray, top: float) -> float:
    """Return the sum of (top - v), every v at most top."""

    def work(start: int, stop: int) -> float:
        buffer = np.empty(min(BLOCK, stop - start))
        return sum(
            float(np.subtract(top, values[low:high], out=buffer[: high - low]).sum())
            for low, high in blocks(start, stop)
        )

    return sum(on_every_core(work, len(values)))


def _largest_and_total(values: FloatArray) -> tuple[float, float]:
    def work(start: int, stop: int) -> list[tuple[float, float]]:
        spans = (values[low:high] for low, high in blocks(start, stop))
        return [(float(span.max()), float(span.sum())) for span in spans]

    pairs = [pair for span in on_every_core(work, len(values)) for pair in span]
    return max(largest for largest, _ in pairs), sum(total for _, total in pairs)
