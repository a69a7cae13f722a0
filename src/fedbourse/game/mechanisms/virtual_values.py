"""Virtual values: what a unit of budget really costs a buyer who must pay for the truth.

Let C(q) = q F^-1(q) be what it costs to buy from a fraction q of all owners at one price. Its slope
is the virtual value v + F(v)/f(v); where it is not convex, the greatest convex minorant takes its
place (ironing). The distribution is cut into cells of equal probability, and all values of a cell
have the slope of the minorant over it. So virtual values are a rising step function, whatever the
distribution, and all that follows from them is a finite sum.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import FloatArray, IntArray
from fedbourse.game.distribution import Distribution, Sample, Uniform

CELLS = 1024
"""How many cells a distribution is cut into."""


@dataclass(frozen=True, eq=False)
class VirtualValues:
    """A rising step function of the value."""

    edges: FloatArray
    """The upper end of each cell, which belongs to it; the first reaches down to 0."""
    slopes: FloatArray
    """The virtual value in each cell. Nobody above the last edge has a finite one."""

    @classmethod
    def of(cls, prior: Distribution, *, cells: int = CELLS) -> VirtualValues:
        """Return the virtual values under a distribution.

        >>> VirtualValues.of(Uniform(1, 5), cells=4).slopes  # the means of 2 v - 1
        array([2., 4., 6., 8.])
        """
        places = np.arange(1, cells + 1) / cells
        edges = _quantiles(prior, places)
        usable = np.isfinite(edges)
        if not usable.any() or not edges[0] > 0 or np.any(np.diff(edges[usable]) < 0):
            raise InvalidGame("the quantiles of the prior must be positive and rise")
        edges = edges[usable]
        costs = np.concatenate([[0.0], places[usable] * edges])
        return cls(edges, _convex_slopes(costs) * cells)

    def cells_of(self, values: FloatArray) -> IntArray:
        """Return each value's cell; as many as there are cells where it lies above all."""
        return np.searchsorted(self.edges, values, side="left")


def virtual_values_of(prior: Distribution) -> VirtualValues:
    """Return the virtual values under a distribution, computed once for each."""
    return _cached(prior) if isinstance(prior, Hashable) else VirtualValues.of(prior)


@lru_cache(maxsize=16)
def _cached(prior: Distribution) -> VirtualValues:
    return VirtualValues.of(prior)


def _quantiles(prior: Distribution, places: FloatArray) -> FloatArray:
    """Return the values below which these parts of the distribution lie."""
    if isinstance(prior, Uniform):
        return prior.low + (prior.high - prior.low) * places
    if isinstance(prior, Sample):
        ordered = np.sort(prior.values)
        return ordered[np.ceil(places * len(ordered)).astype(np.int64) - 1]
    quantiles = getattr(prior, "ppf", None)
    if quantiles is None:
        raise InvalidGame(
            "the optimal mechanism needs a distribution with quantiles: Uniform, Sample, or one "
            f"with SciPy's ppf; found {type(prior).__name__}"
        )
    return np.asarray(quantiles(places), np.float64)


def _convex_slopes(heights: FloatArray) -> FloatArray:
    """Return the slope of the greatest convex minorant over each step of equally spaced points."""
    corners = [0]
    for i in range(1, len(heights)):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (heights[b] - heights[a]) * (i - b) <= (heights[i] - heights[b]) * (b - a):
                break
            corners.pop()
        corners.append(i)
    lengths = np.diff(corners)
    slopes = np.diff(heights[corners]) / lengths
    return np.repeat(np.maximum.accumulate(slopes), lengths)


def prior_or_refusal(prior: Distribution | None) -> Distribution:
    """Return the prior, or say that the mechanism needs one."""
    if prior is None:
        raise InvalidGame(
            "the optimal mechanism needs a prior, the distribution that the buyer assumes of "
            "values; found none"
        )
    return prior


def checked_sampling(sampling: float) -> float:
    """Return s, which must be above 0: without it one owner could do all the work."""
    if not 0 < sampling < math.inf:
        raise InvalidGame(
            f"the optimal mechanism needs a sampling variance above 0; found {sampling:g}"
        )
    return sampling
