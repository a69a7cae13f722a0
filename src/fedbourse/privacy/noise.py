"""Noise for updates: exact on a device, simulated in a study, behind one interface.

**Exact.** Adding a floating-point normal to a floating-point update leaks through the last bits.
So a device rounds its update to a grid that depends on its terms alone and adds OpenDP's discrete
Gaussian, whose cost OpenDP's own map proves. What rounding does to the distance between two
neighbours is added to the sensitivity D, and sigma grows with it, so that the terms hold:

    D = 2L/m (1 + (d + 8) u)     each record's gradient, clipped in doubles (u = 2^-53)
      + 2 (m + 8) u L            the sum of m of them, in any order
      + sqrt(d) grid             both updates rounded to the grid

For L = 1, m = 1000, d = 1000 that is 1.4e-8 of 2L/m.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidInput, InvalidNumber
from fedbourse.privacy.terms import Terms
from fedbourse.units import number, whole_number

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_ROUNDING = 2.0**-53
_STREAM = 0x6E6F697365  # keeps simulated noise apart from whatever else is drawn from a seed
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
    charged = charged_sensitivity(terms, terms.sensitivity * 2.0**-GridGaussian.grid_bits)
    return terms.scale * charged / terms.sensitivity * (1.0 + 1e-6)


class GridGaussian(ABC):
    """One owner's grid, and the scale on it that keeps the owner's terms."""

    kind = "noise on a grid"
    grid_bits = 31
    """The grid is this much finer than the sensitivity: 2^-40 for L = 1, m = 1000."""
    least_round_rho = 2.0**-40
    """Below it a 64-bit integer cannot hold the noise on such a grid."""

    def __init__(self, terms: Terms) -> None:
        if terms.round_rho < self.least_round_rho:
            raise InvalidNumber(
                f"rho / rounds must be at least {self.least_round_rho:.3g} for {self.kind}; "
                f"found {terms.rho:g} / {terms.rounds}"
            )
        # Within these the bounds on rounding hold, and an update's steps fit their type.
        number("clip", terms.clip, at_least=CLIP_MIN, at_most=CLIP_MAX)
        number("samples", terms.samples, at_most=2.0**30)
        self.dimension = terms.dimension
        self._norm_limit = terms.clip * (1.0 + 1e-6)
        self.grid = 2.0 ** (math.floor(math.log2(terms.sensitivity)) - self.grid_bits)
        self._distance = charged_sensitivity(terms, self.grid) / self.grid
        steps = self._distance / math.sqrt(2.0 * terms.round_rho)
        while self._cost(steps) > terms.round_rho:
            steps *= 1.0 + 4 * _ROUNDING
        self.cost = self._cost(steps)
        self.scale = steps * self.grid

    def _cost(self, steps: float) -> float:
        """Return what noise of so many steps costs, in zCDP."""
        return (self._distance / steps) ** 2 / 2.0 * (1.0 + 8 * _ROUNDING)

    def steps(self, update: FloatArray) -> FloatArray:
        """Return an update in steps of the grid; refuse one that is too long or not finite."""
        if not np.isfinite(update).all():
            raise InvalidInput("an update must be finite; found NaN or infinity")
        with np.errstate(over="ignore"):  # then the norm is infinite, and refused
            norm = float(np.linalg.norm(update))
        if norm > self._norm_limit:
            raise InvalidInput(
                f"an update's norm must be at most the clip, {self._norm_limit:g}; found {norm:g}"
            )
        rounded: FloatArray = np.rint(update / self.grid)
        return rounded

    @abstractmethod
    def release(self, update: FloatArray) -> FloatArray:
        """Return the update with fresh noise, a multiple of the grid in every coordinate."""


class GridNoise:
    """Fresh noise from the system's randomness, on a grid for each owner. It has no seed."""

    def __init__(self, terms: Sequence[Terms], mechanism: Callable[[Terms], GridGaussian]) -> None:
        self._dimension = one_dimension(terms)
        self._mechanisms = [mechanism(t) for t in terms]
        self.scales = np.array([each.scale for each in self._mechanisms])
        self.costs = np.array([each.cost for each in self._mechanisms])

    def release(self, updates: FloatArray, owners: IntArray, number: int) -> FloatArray:
        """Add fresh noise; ``number`` plays no part."""
        check_shape(updates, len(owners), self._dimension)
        noisy = np.empty(updates.shape)
        for i, owner in enumerate(owners.tolist()):
            noisy[i] = self._mechanisms[owner].release(updates[i])
        return noisy


class ExactNoise(GridNoise):
    """The device's noise: OpenDP's discrete Gaussian.

    Its cost is what OpenDP proves, never above what the terms allow a round.
    """

    def __init__(self, terms: Sequence[Terms]) -> None:
        super().__init__(terms, _DiscreteGaussian)


class _DiscreteGaussian(GridGaussian):
    """One owner's noise, whose cost OpenDP proves."""

    def _cost(self, steps: float) -> float:
        self._measurement = _opendp_gaussian(self.dimension, steps)
        return float(self._measurement.map(self._distance))

    def release(self, update: FloatArray) -> FloatArray:
        # OpenDP would turn NaN into 0 and take any length: steps() refuses both.
        noisy = np.array(self._measurement(self.steps(update).astype(np.int64).tolist()))
        return noisy.astype(np.float64) * self.grid


def _opendp_gaussian(dimension: int, scale: float):  # type: ignore[no-untyped-def]
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    domain = vector_domain(atom_domain(T="i64"), size=dimension)
    return make_gaussian(domain, l2_distance(T="f64"), scale=scale)


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
