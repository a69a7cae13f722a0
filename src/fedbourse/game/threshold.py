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

import math
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
    """The linear game's participants: everybody whose value is at most ``dearest``."""

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

    @property
    def tau(self) -> float:
        """Return the price per unit of budget at which an owner is indifferent to taking part."""
        return self.total / (self.count - 1)


def threshold(values: FloatArray) -> Threshold:
    """Return the threshold of two or more positive, finite values."""
    with np.errstate(over="ignore"):  # sums of huge values may pass for infinite: out, rightly
        search = _Search(values)
        while search.size > SMALL:
            if (everybody := search.if_everybody_joins()) is not None:
                return everybody
            search.drop_above_tau()
        return search.finish()


def if_everybody_joins(values: FloatArray, largest: float) -> Threshold | None:
    """Return the threshold if it is plain that everybody takes part, the largest value given.

    One walk through memory, where ``threshold`` takes three; None where it must be asked.
    """
    found = on_every_core(
        lambda start, stop: _cheapest_and_gaps(values, largest, start, stop), len(values)
    )
    cheapest, gaps = min(least for least, _ in found), sum(gap for _, gap in found)
    height = gaps - (largest - cheapest)
    if not (2 * cheapest > largest and height < cheapest * (1 - 1 / 256)):
        return None  # the cheapest owner's own gap, taken off again, may have cost a digit
    total = len(values) * largest - gaps
    return Threshold(cheapest, largest, cheapest - height, len(values), total)


class _Search:
    """The state of the selection: decided owners as three sums, the others as arrays.

    Decided (other than the cheapest owner): ``count`` owners of value at most ``ref``, with
    ``gap`` = sum of (ref - v) = H(ref) and ``total`` = v_1 + sum of v. Undecided: values of at
    least ref, of which ``largest`` is the largest and ``undecided_total`` the sum.
    """

    def __init__(self, values: FloatArray) -> None:
        first, self.largest, total = _survey(values)
        self.cheapest = float(values[first])
        self.undecided = [values[:first], values[first + 1 :]]
        self.undecided_total = total - self.cheapest
        self.count, self.ref, self.gap, self.total = 0, self.cheapest, 0.0, self.cheapest

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.undecided)

    def height(self, value: float, below: list[FloatArray]) -> float:
        """Return H(value), given the undecided owners at or below it."""
        return (
            self.gap
            + self.count * (value - self.ref)
            + sum(_sum_of_gaps(part, value) for part in below)
        )

    def if_everybody_joins(self) -> Threshold | None:
        height = self.height(self.largest, self.undecided)
        if not height < self.cheapest:
            return None
        return self._found(self.largest, height, self.size, self.undecided_total)

    def drop_above_tau(self) -> None:
        before = self.size
        tau = (self.total + self.undecided_total) / (self.count + before)
        kept = np.concatenate([chosen(part, part <= tau * (1 + SLACK)) for part in self.undecided])
        if len(kept) > before // 2:
            kept = self._decide_median(kept)
        self.undecided = [kept]
        if len(kept) > SMALL:
            _, self.largest, self.undecided_total = _survey(kept)

    def _decide_median(self, candidates: FloatArray) -> FloatArray:
        """Decide half of the candidates and return the other half."""
        middle = len(candidates) // 2
        candidates = np.partition(candidates, middle)
        lower, median, upper = candidates[:middle], float(candidates[middle]), candidates[middle:]
        height = self.height(median, [lower])
        if not height < self.cheapest:
            return chosen(lower, lower < median)
        self.count += len(lower)
        self.total += float(lower.sum())
        self.ref, self.gap = median, height
        return upper

    def finish(self) -> Threshold:
        """Sort the few undecided owners and walk up while H stays below the cheapest value."""
        rest = np.sort(np.concatenate(self.undecided))
        steps = np.diff(rest, prepend=self.ref)
        heights = self.gap + np.cumsum((self.count + np.arange(len(rest))) * steps)
        joined = int(np.searchsorted(heights, self.cheapest))
        if joined == 0:
            return self._found(self.ref, self.gap, 0, 0.0)
        dearest, height = float(rest[joined - 1]), float(heights[joined - 1])
        return self._found(dearest, height, joined, float(rest[:joined].sum()))

    def _found(self, dearest: float, height: float, more: int, more_total: float) -> Threshold:
        """Return the threshold where ``more`` undecided owners join those decided."""
        return Threshold(
            cheapest=self.cheapest,
            dearest=dearest,
            margin=self.cheapest - height,
            count=1 + self.count + more,
            total=self.total + more_total,
        )


def _sum_of_gaps(values: FloatArray, top: float) -> float:
    """Return the sum of (top - v), every v at most top."""

    def work(start: int, stop: int) -> float:
        return _cheapest_and_gaps(values, top, start, stop)[1]

    return sum(on_every_core(work, len(values)))


def _cheapest_and_gaps(
    values: FloatArray, top: float, start: int, stop: int
) -> tuple[float, float]:
    room = np.empty(min(BLOCK, stop - start))
    cheapest, gaps = math.inf, []
    for low, high in blocks(start, stop):
        block = values[low:high]
        cheapest = min(cheapest, float(block.min()))
        gaps.append(float(np.subtract(top, block, out=room[: high - low]).sum()))
    return cheapest, sum(gaps)


def _survey(values: FloatArray) -> tuple[int, float, float]:
    """Return the position of the smallest value, the largest value and the sum, from one walk."""

    def work(start: int, stop: int) -> tuple[int, float, float]:
        first, largest, total = start, 0.0, 0.0
        for low, high in blocks(start, stop):
            block = values[low:high]
            if block.min() < values[first]:
                first = low + int(np.argmin(block))
            largest = max(largest, float(block.max()))
            total += float(block.sum())
        return first, largest, total

    found = on_every_core(work, len(values))
    return (
        min((first for first, _, _ in found), key=lambda position: float(values[position])),
        max(largest for _, largest, _ in found),
        sum(total for _, _, total in found),
    )
