"""How values are distributed, estimated from what replies say about each owner's value.

Of an owner who sold one learns its value; of one who stayed out, only a bound (``activity``). The
nonparametric maximum-likelihood estimate for such intervals puts mass on the *innermost* ones only:
those from a lower bound to an upper bound with no other bound between (Turnbull 1976). With masses
p_j it maximises

    sum over owners i of log q_i,    q_i = sum of the p_j within i's interval.

Let d_j be the sum of 1/q_i over the owners whose interval contains j. The self-consistent step
p_j <- p_j d_j / n, which is an EM step, never lowers the likelihood, and by concavity no masses
have a log-likelihood more than max d_j - n above the present one. That is the certificate at which
the iteration stops.

Where all intervals are single values or open above, this is Kaplan and Meier's estimate; without
open ones it is the sample itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import FedbourseError, InvalidGame
from fedbourse.game.columns import FloatArray, IntArray, per_owner, refuse_first
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = 1e-9  # of the log-likelihood for each owner, at which the masses have converged
_STEPS_MAX = 200_000


@dataclass(frozen=True, eq=False)
class ValueEstimate:
    """A distribution of values: masses on intervals that do not overlap, in rising order.

    How an interval's mass lies within it is not known; draws spread it evenly.
    """

    lows: FloatArray
    highs: FloatArray
    """The upper ends, equal to the lower ones where a value is exact; the last may be infinite."""
    masses: FloatArray
    """What part of all owners have a value in each interval; they sum to 1."""
    owners: int
    """How many owners' bounds it comes from."""
    gap: float
    """By how much another distribution's log-likelihood could be larger, at most."""
    highest: float | None = None
    """Up to where values are drawn that have no upper bound; at their lower bound without it."""

    def rvs(self, *, size: tuple[int, ...], random_state: np.random.Generator) -> FloatArray:
        """Return independent values drawn from the estimate."""
        places = random_state.choice(len(self.masses), size, p=self.masses)
        lows, highs = self.lows[places], self._finite_highs()[places]
        return highs - (highs - lows) * random_state.random(size)  # above a lower end of 0

    def quantiles(self, parts: Sequence[float]) -> tuple[tuple[float, float], ...]:
        """Return the value that each of these parts of all owners has at most.

        >>> estimate_values([1, 2, 4], [1, 3, 4]).quantiles([0, 0.5, 1])
        ((0, 1.0), (0.5, 2.5), (1, 4.0))
        """
        cumulative = np.concatenate([[0.0], np.cumsum(self.masses)])
        cumulative[-1] = 1.0
        ends = np.stack([cumulative[:-1], cumulative[1:]], axis=1).ravel()
        values = np.stack([self.lows, self._finite_highs()], axis=1).ravel()
        return tuple((part, float(np.interp(part, ends, values))) for part in parts)

    def _finite_highs(self) -> FloatArray:
        unbounded = np.maximum(self.lows, self.highest or 0.0)
        return np.where(np.isinf(self.highs), unbounded, self.highs)


def estimate_values(
    lows: object, highs: object, *, owners: object = 1, highest: float | None = None
) -> ValueEstimate:
    """Return the most likely distribution of values that lie between these bounds.

    Both bounds belong to the interval. Equal ones say that a value is exact; an infinite upper one
    says only that it is at least the lower one. ``owners`` says for how many owners a pair of
    bounds stands. ``highest``, the largest value that is plausible, is used for draws alone, and
    only of values that have no upper bound.

    >>> estimate = estimate_values([1, 2, 2, 3], [1, float("inf"), float("inf"), 3])
    >>> estimate.lows, estimate.masses.round(6)
    (array([1., 3.]), array([0.25, 0.75]))
    """
    low, high, counts = _bounds(lows, highs, owners)
    most = None if highest is None else number("highest", highest, above=0, error=InvalidGame)
    left, right = _innermost(low, high)
    first = np.searchsorted(left, low, side="left")
    stop = np.searchsorted(right, high, side="right")
    masses, gap = _most_likely(first, stop, counts, len(left))
    return ValueEstimate(left, right, masses, int(counts.sum()), gap, most)


def _bounds(lows: object, highs: object, owners: object) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the bounds that differ, and how many owners have each pair."""
    size = len(lows) if hasattr(lows, "__len__") else 0
    low = per_owner("lows", lows, size)
    high = per_owner("highs", highs, size, infinite=True)
    counts = per_owner("owners", owners, size)
    if not size:
        raise InvalidGame("an estimate of values needs at least one owner's bounds; found none")
    refuse_first("highs", high, high < low, "at least the lower bound")
    refuse_first("highs", high, high == 0, "above 0")
    whole = (counts >= 1) & (counts == np.floor(counts))
    refuse_first("owners", counts, ~whole, "a whole number of at least 1")
    pairs, place = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
    together = np.bincount(place.ravel(), weights=counts)
    return pairs[0], pairs[1], together.astype(np.int64)


def _innermost(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the intervals from a lower bound to an upper one that have no bound in between."""
    ends = np.concatenate([low, high])
    upper = np.repeat([False, True], len(low))
    order = np.lexsort((upper, ends))  # lower bounds first among equals: intervals are closed
    ends, upper = ends[order], upper[order]
    starts = np.flatnonzero(~upper[:-1] & upper[1:])
    return ends[starts], ends[starts + 1]


def _most_likely(
    first: IntArray, stop: IntArray, counts: IntArray, size: int
) -> tuple[FloatArray, float]:
    """Return the masses, and their gap, for owners whose value is in first, ..., stop - 1."""
    total = int(counts.sum())
    masses = np.full(size, 1.0 / size)
    for _ in range(_STEPS_MAX):
        below = np.concatenate([[0.0], np.cumsum(masses)])
        weights = counts / (below[stop] - below[first])
        steps = np.bincount(first, weights, size + 1) - np.bincount(stop, weights, size + 1)
        demand = np.cumsum(steps)[:size]
        gap = float(demand.max()) - total
        if gap <= _GAP * total:
            return masses, max(gap, 0.0)
        masses = masses * demand / total
        masses /= masses.sum()
    raise FedbourseError(
        f"the estimate of values has not converged: after {_STEPS_MAX} steps its log-likelihood "
        f"may still be {gap:.2g} below the largest; give fewer, or coarser, bounds"
    )
