"""Who takes part when privacy costs v r (linear cost): the dearest participant, in O(n).

Sort the values. Owner k takes part exactly when v_k lies below the threshold tau of the owners up
to k, tau = (sum of their values) / (k - 1), the rule of the paper's Algorithm 2 made strict.
Written so that nothing cancels, owner k joins iff

    H(v_k) = sum over 1 < j < k of (v_k - v_j)  <  v_1.

Floating point decides this exactly. Every value is at least v_1 and so a whole multiple of v_1's
last digit u; so are all differences, products with counts and sums of them. As long as such a
number is at most v_1 it has no more digits than v_1 and is held exactly; and rounding never takes
one that is larger below v_1. For the same reason the margin v_1 - H of a participant is exact.

H rises with v_k, so the dearest participant can be found by selection, without sorting everybody:
drop whoever lies above the tau of all who are left (Newton's method on a convex function, it never
drops a participant), and where that is slow, decide the median and drop half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game.spans import BLOCK, blocks, chosen, on_every_core

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray

SMALL = 1 << 14
"""Candidates that are few enough to sort."""

SLACK = 1e-12
"""Relative width by which a filter keeps candidates above tau, to be decided strictly later."""


@dataclass(frozen=True)
class Threshold:
    """The linear game's participants: everybody whose value is at most ``top``."""

    cheapest: float
    """v_1, the smallest value."""
    dearest: float
    """v_K, the largest value that takes part."""
    margin: float
    """v_1 - H(v_K) > 0: how far inside the dearest participant is."""
    count: int
    """K, the number of participants."""
    total: float
    """The sum of the participants' values."""
    reach: float | None = None
    """Values above ``dearest`` up to this take part as well, and count as ``dearest``: there are
    some only where owners are known by cells of relative width 2^-40."""

    @property
    def top(self) -> float:
        """Return the largest value that takes part."""
        return self.dearest if self.reach is None else self.reach

    @property
    def tau(self) -> float:
        """Return the price per unit of budget at which an owner is indifferent to taking part."""
        return self.total / (self.count - 1)


def threshold(values: FloatArray) -> Threshold:
    """Return the threshold of two or more positive, finite values."""
    with np.errstate(over="ignore"):  # sums of huge values may pass for infinite: out, rightly
        first = int(np.argmin(values))
        cheapest = float(values[first])
        return climb(
            Decided(cheapest, 0, cheapest, 0.0, cheapest), [values[:first], values[first + 1 :]]
        )


@dataclass(frozen=True)
class Decided:
    """Owners of whom it is known that they take part, as a few numbers."""

    cheapest: float
    """v_1."""
    count: int
    """How many there are besides the cheapest one."""
    ref: float
    """A value that none of them exceeds, and no undecided owner falls below."""
    gap: float
    """H(ref), the sum of (ref - v) over them."""
    total: float
    """The sum of their values, the cheapest one's included."""

    def threshold(self) -> Threshold:
        """Return the threshold where nobody else takes part."""
        return Threshold(
            self.cheapest, self.ref, self.cheapest - self.gap, 1 + self.count, self.total
        )


def climb(decided: Decided, undecided: list[FloatArray]) -> Threshold:
    """Return the threshold, given those who take part for certain and all who may."""
    with np.errstate(over="ignore"):
        search = _Search(decided, undecided)
        while search.size > SMALL:
            if (everybody := search.if_everybody_joins()) is not None:
                return everybody
            search.drop_above_tau()
        return search.finish()


class _Search:
    """The state of the selection: decided owners as a few sums, the others as arrays."""

    def __init__(self, decided: Decided, undecided: list[FloatArray]) -> None:
        self.decided, self.undecided = decided, undecided
        if self.size > SMALL:
            self._survey()

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.undecided)

    def height(self, value: float, below: list[FloatArray]) -> float:
        """Return H(value), given the undecided owners at or below it."""
        return (
            self.decided.gap
            + self.decided.count * (value - self.decided.ref)
            + sum(_sum_of_gaps(part, value) for part in below)
        )

    def if_everybody_joins(self) -> Threshold | None:
        height = self.height(self.largest, self.undecided)
        if not height < self.decided.cheapest:
            return None
        return self._joined(self.largest, height, self.size, self.undecided_total).threshold()

    def drop_above_tau(self) -> None:
        before = self.size
        tau = (self.decided.total + self.undecided_total) / (self.decided.count + before)
        kept = np.concatenate([chosen(part, part <= tau * (1 + SLACK)) for part in self.undecided])
        if len(kept) > before // 2:
            kept = self._decide_median(kept)
        self.undecided = [kept]
        if len(kept) > SMALL:
            self._survey()

    def finish(self) -> Threshold:
        """Sort the few undecided owners and walk up while H stays below the cheapest value."""
        known = self.decided
        rest = np.sort(np.concatenate(self.undecided))
        steps = np.diff(rest, prepend=known.ref)
        heights = known.gap + np.cumsum((known.count + np.arange(len(rest))) * steps)
        joined = int(np.searchsorted(heights, known.cheapest))
        if joined == 0:
            return known.threshold()
        dearest, height = float(rest[joined - 1]), float(heights[joined - 1])
        return self._joined(dearest, height, joined, float(rest[:joined].sum())).threshold()

    def _decide_median(self, candidates: FloatArray) -> FloatArray:
        """Decide half of the candidates and return the other half."""
        middle = len(candidates) // 2
        candidates = np.partition(candidates, middle)
        lower, median, upper = candidates[:middle], float(candidates[middle]), candidates[middle:]
        height = self.height(median, [lower])
        if not height < self.decided.cheapest:
            return chosen(lower, lower < median)
        self.decided = self._joined(median, height, len(lower), float(lower.sum()))
        return upper

    def _joined(self, ref: float, gap: float, more: int, more_total: float) -> Decided:
        """Return those decided and ``more`` undecided owners up to ``ref``."""
        known = self.decided
        return Decided(known.cheapest, known.count + more, ref, gap, known.total + more_total)

    def _survey(self) -> None:
        """Find the largest value and the sum of those undecided, in one walk."""
        found = [_largest_and_total(part) for part in self.undecided if len(part)]
        self.largest = max(largest for largest, _ in found)
        self.undecided_total = sum(total for _, total in found)


def _sum_of_gaps(values: FloatArray, top: float) -> float:
    """Return the sum of (top - v), every v at most top."""

    def work(start: int, stop: int) -> float:
        room = np.empty(min(BLOCK, stop - start))
        return sum(
            float(np.subtract(top, values[low:high], out=room[: high - low]).sum())
            for low, high in blocks(start, stop)
        )

    return sum(on_every_core(work, len(values)))


def _largest_and_total(values: FloatArray) -> tuple[float, float]:
    def work(start: int, stop: int) -> tuple[float, float]:
        found = [
            (float(values[low:high].max()), float(values[low:high].sum()))
            for low, high in blocks(start, stop)
        ]
        return max(largest for largest, _ in found), sum(total for _, total in found)

    spans = on_every_core(work, len(values))
    return max(largest for largest, _ in spans), sum(total for _, total in spans)
