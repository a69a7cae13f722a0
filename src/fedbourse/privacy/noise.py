"""Noise for updates: exact on a device, simulated in a study, behind one interface.

**Exact.** Adding a floating-point normal to a floating-point update leaks through the last bits.
So a device rounds its update to a grid that depends on its terms alone and adds the discrete
Gaussian in whole steps of it, which costs D^2 / (2 sigma^2), as normal noise does. What rounding
does to the distance between two neighbours is added to the sensitivity D, and sigma grows with it,
so that the terms hold:

    D = 2L/m (1 + (d + 8) u)     each record's gradient, clipped in doubles (u = 2^-53)
      + 2 (m + 8) u L            the sum of m of them, in any order
      + sqrt(d) grid             both updates rounded to the grid

For L = 1, m = 1000, d = 1000 that is 1.4e-8 of 2L/m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidInput, InvalidNumber
from fedbourse.privacy.discrete_gaussian import SIGMA_MAX, DiscreteGaussian, system_words
from fedbourse.privacy.terms import Terms
from fedbourse.units import number, rounded_up, whole_number

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_ROUNDING = 2.0**-53
_STREAM = 0x6E6F697365  # keeps simulated noise apart from whatever else is drawn from a seed
_GRID_BITS = 31
"""The grid is this much finer than the sensitivity: 2^-40 for L = 1, m = 1000."""
_ROUND_RHO_MIN = 2.0**-40
CLIP_MIN, CLIP_MAX = 1e-6, 1e6
"""What a device accepts as the clip: far from where doubles, or floats on the wire, lose digits."""


class Noise(Protocol):
    """Noise for the updates of some owners, each with terms of its own."""

    @property
    def scales(self) -> FloatArray:
        """Return each owner's standard deviation, a coordinate."""

    @property
    def costs(self) -> FloatArray:
        """Return what one update costs each owner, in zCDP."""

    def release(self, updates: FloatArray, owners: IntArray, number: int) -> FloatArray:
        """Return the updates (one row for each of ``owners``) to round ``number`` with noise."""


class NoNoise:
    """No noise at all: for studies of what noise costs. It protects nobody."""

    def __init__(self, terms: Sequence[Terms]) -> None:
        self.scales = np.array([t.scale for t in terms])
        self.costs = np.array([t.round_rho for t in terms])

    def release(self, updates: FloatArray, owners: IntArray, number: int) -> FloatArray:
        """Return the updates as they are."""
        return updates


class SimulatedNoise:
    """Seeded normal noise: fast, reproducible, and no protection at all.

    The noise of a round depends on the seed and the round alone, so that a run can be resumed
    anywhere, and an owner's noise does not depend on who else sends an update.
    """

    def __init__(self, terms: Sequence[Terms], *, seed: int) -> None:
        self._dimension = one_dimension(terms)
        self._seed = whole_number("seed", seed, at_least=0)
        self.scales = np.array([t.scale for t in terms])
        self.costs = np.array([t.round_rho for t in terms])

    def release(self, updates: FloatArray, owners: IntArray, number: int) -> FloatArray:
        """Add this round's noise."""
        check_shape(updates, len(owners), self._dimension)
        rng = np.random.default_rng([_STREAM, self._seed, number])
        noise = rng.standard_normal((len(self.scales), self._dimension))
        noise *= self.scales[:, None]
        everybody = len(owners) == len(self.scales) and bool((np.diff(owners) == 1).all())
        noise = noise if everybody else noise[owners]
        noise += updates
        return noise


def charged_sensitivity(terms: Terms, grid: float) -> float:
    """Return D: how far one record can move an update that was computed and rounded in doubles."""
    d, m, L = terms.dimension, terms.samples, terms.clip
    clipped = terms.sensitivity * (1.0 + (d + 8) * _ROUNDING)
    summed = 2.0 * (m + 8) * _ROUNDING * L
    # These five operations may themselves round down.
    return (clipped + summed + math.sqrt(d) * grid) * (1.0 + 8 * _ROUNDING)


def scale_bound(terms: Terms) -> float:
    """Return a scale that no device which keeps these terms draws with more of: rounding included.

    >>> terms = Terms(task="late flights", rho=0.1, rounds=500, dimension=116, samples=1000)
    >>> 1.0 < scale_bound(terms) / terms.scale < 1.00001
    True
    """
    charged = charged_sensitivity(terms, terms.sensitivity * 2.0**-_GRID_BITS)
    return terms.scale * charged / terms.sensitivity * (1.0 + 1e-6)


class ExactNoise:
    """A device's noise: the discrete Gaussian on a grid for each owner. It has no seed.

    An update costs never more than the terms allow a round.
    """

    def __init__(self, terms: Sequence[Terms]) -> None:
        self._dimension = one_dimension(terms)
        self._mechanisms = [GridGaussian(t) for t in terms]
        self.scales = np.array([each.scale for each in self._mechanisms])
        self.costs = np.array([each.cost for each in self._mechanisms])

    def release(self, updates: FloatArray, owners: IntArray, number: int) -> FloatArray:
        """Add fresh noise from the system's randomness; ``number`` plays no part."""
        check_shape(updates, len(owners), self._dimension)
        noisy = np.empty(updates.shape)
        for i, owner in enumerate(owners.tolist()):
            noisy[i] = self._mechanisms[owner].release(updates[i])
        return noisy


class GridGaussian:
    """One owner's grid, and the noise on it that keeps the owner's terms."""

    def __init__(self, terms: Terms) -> None:
        # Within these the bounds on rounding hold, and an update's steps fit their type.
        number("clip", terms.clip, at_least=CLIP_MIN, at_most=CLIP_MAX)
        number("samples", terms.samples, at_most=2.0**30)
        self._norm_limit = terms.clip * (1.0 + 1e-6)
        self.grid = 2.0 ** (math.floor(math.log2(terms.sensitivity)) - _GRID_BITS)
        self.distance = charged_sensitivity(terms, self.grid) / self.grid
        least = max(_ROUND_RHO_MIN, (self.distance / SIGMA_MAX) ** 2 / 2.0 * (1.0 + 1e-9))
        if terms.round_rho < least:
            raise InvalidNumber(
                f"rho / rounds must be at least {least:.3g} for noise on a grid; "
                f"found {terms.rho:g} / {terms.rounds}"
            )
        sigma = self.distance / (math.sqrt(2.0) * math.sqrt(terms.round_rho))
        while self._cost(sigma) > terms.round_rho:
            sigma = math.nextafter(sigma, math.inf)
        self.cost, self.scale = self._cost(sigma), sigma * self.grid
        self.gaussian = DiscreteGaussian(sigma)

    def _cost(self, sigma: float) -> float:
        """Return what noise of sigma steps costs, in zCDP: distance^2 / (2 sigma^2), rounded up."""
        return rounded_up(Fraction(self.distance) ** 2 / (2 * Fraction(sigma) ** 2))

    def release(self, update: FloatArray) -> FloatArray:
        """Return the update with fresh noise, a multiple of the grid in every coordinate."""
        steps = self.steps(update)
        steps += self.gaussian.draw(len(update), system_words)
        return steps.astype(np.float64) * self.grid

    def steps(self, update: FloatArray) -> IntArray:
        """Return an update in steps of the grid; refuse one that is too long or not finite."""
        if not np.isfinite(update).all():
            raise InvalidInput("an update must be finite; found NaN or infinity")
        with np.errstate(over="ignore"):  # then the norm is infinite, and refused
            norm = float(np.linalg.norm(update))
        if norm > self._norm_limit:
            raise InvalidInput(
                f"an update's norm must be at most the clip, {self._norm_limit:g}; found {norm:g}"
            )
        return np.rint(update / self.grid).astype(np.int64)


def one_dimension(terms: Sequence[Terms]) -> int:
    """Return the one dimension that all terms of a task have."""
    dimensions = {t.dimension for t in terms}
    if len(dimensions) != 1:
        raise InvalidInput(
            f"all terms of a task must have one dimension; found {sorted(dimensions)}"
        )
    return dimensions.pop()


def check_shape(updates: FloatArray, owners: int, dimension: int) -> None:
    """Refuse updates of another type or shape."""
    if updates.dtype != np.float64:
        raise InvalidInput(f"updates must be doubles; found {updates.dtype}")
    if updates.shape != (owners, dimension):
        raise InvalidInput(
            f"updates must have the shape {(owners, dimension)}; found {updates.shape}"
        )
