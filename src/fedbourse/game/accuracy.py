"""What the budgets bought are worth to the buyer: noise, and four models of accuracy.

A step with owner i's answer carries noise of squared norm d eta^2 sigma_i^2 = a_i / r_i, where
a_i = 2 d eta^2 T L^2 / m_i^2. Call y_i = r_i / a_i the precision of its answers. A model turns the
precisions of those who take part into a quality between 0 (noise only) and 1 (no noise), and

    accuracy = chance + (ceiling - chance) * quality.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame, InvalidInput
from fedbourse.game.columns import FloatArray, IntArray, positive
from fedbourse.privacy import noise_scale
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, eq=False)
class Training:
    """The training that a task asks for (Algorithm 1).

    >>> Training(dimension=1000, step_size=0.1, iterations=500, samples=1000).noise_factor
    0.01
    """

    dimension: int
    """d, the number of the model's parameters."""
    step_size: float
    """eta."""
    iterations: int
    """T, the number of rounds."""
    samples: float | FloatArray
    """m, the records that each answer is the mean of: one number, or one for each owner."""
    clip: float = 1.0
    """L, the norm that each record's gradient is clipped to."""

    def __post_init__(self) -> None:
        """Check every number once."""

        def keep(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        keep("dimension", whole_number("dimension", self.dimension, at_least=1))
        keep("step_size", number("step_size", self.step_size, above=0))
        keep("iterations", whole_number("iterations", self.iterations, at_least=1))
        keep("clip", number("clip", self.clip, above=0))
        if isinstance(self.samples, numbers.Real):
            keep("samples", number("samples", self.samples, above=0))
        else:
            keep("samples", positive("samples", self.samples))

    @property
    def noise_factor(self) -> float | FloatArray:
        """Return a = 2 d eta^2 T L^2 / m^2: what a budget r leaves of noise is a / r."""
        noise = self.step_size * self.clip / self.samples
        return 2.0 * self.dimension * self.iterations * noise**2

    def precisions(self, budgets: FloatArray, participants: IntArray) -> FloatArray:
        """Return y = r / a for each participant."""
        factor = self.noise_factor
        return budgets / (factor if isinstance(factor, float) else factor[participants])

    def noise_scale(self, budgets: FloatArray, participants: IntArray) -> FloatArray:
        """Return the standard deviation of each participant's noise, a coordinate."""
        m = self.samples
        samples = np.full(len(budgets), m) if isinstance(m, float) else m[participants]
        return noise_scale(budgets, clip=self.clip, samples=samples, iterations=self.iterations)

    def check_owners(self, owners: int) -> None:
        """Refuse records for another number of owners."""
        if not isinstance(self.samples, float) and len(self.samples) != owners:
            raise InvalidGame(
                f"samples must hold one number for each of {owners} owners; "
                f"found {len(self.samples)}"
            )


@dataclass(frozen=True)
class Quality:
    """The logarithm of a quality, and how it answers to a change of scale of all precisions."""

    log: FloatArray
    elasticity: FloatArray
    """d log quality / d log scale, between 0 and 1."""
    slope: FloatArray
    """d elasticity / d log scale."""


def _mean_log(precisions: FloatArray, over: FloatArray) -> Quality:
    """Return exp(-sum of log(1 + 1/y) / over): the geometric mean of y/(1 + y)."""
    part = 1.0 / (1.0 + precisions)
    return Quality(
        log=-np.log1p(1.0 / precisions).sum(-1) / over,
        elasticity=part.sum(-1) / over,
        slope=-(part * (1.0 - part)).sum(-1) / over,
    )


def _one_noise(noise: FloatArray) -> Quality:
    """Return 1 / (1 + noise), a noise that falls as 1 / scale."""
    part = 1.0 / (1.0 + 1.0 / noise)
    return Quality(log=-np.log1p(noise), elasticity=part, slope=-part * (1.0 - part))


def _paper(precisions: FloatArray, count: FloatArray, owners: int) -> Quality:
    return _mean_log(precisions, count)


def _population(precisions: FloatArray, count: FloatArray, owners: int) -> Quality:
    return _mean_log(precisions, np.full_like(count, owners))


def _averaged(precisions: FloatArray, count: FloatArray, owners: int) -> Quality:
    return _one_noise((1.0 / precisions).sum(-1) / count**2)


def _precision(precisions: FloatArray, count: FloatArray, owners: int) -> Quality:
    return _one_noise(1.0 / np.where(np.isinf(precisions), 0.0, precisions).sum(-1))


_QUALITIES: dict[str, Callable[[FloatArray, FloatArray, int], Quality]] = {
    "paper": _paper,
    "population": _population,
    "averaged": _averaged,
    "precision": _precision,
}

ACCURACY_MODELS = tuple(_QUALITIES)
"""paper: the paper's formula, the mean over those who take part; population: the same sum over all
owners, absent ones as if noise-free; averaged: the true variance of the plain average; precision:
answers weighted by their precision, which is by pay."""


@dataclass(frozen=True)
class Accuracy:
    """A model of the accuracy that budgets buy."""

    model: str = "paper"
    chance: float = 0.5
    """The accuracy of a guess, reached where noise drowns everything."""
    ceiling: float = 1.0
    """The accuracy without noise."""

    def __post_init__(self) -> None:
        """Check the name and the two ends."""
        if self.model not in _QUALITIES:
            raise InvalidInput(
                f"accuracy must be one of {', '.join(_QUALITIES)}; found {self.model!r:.60}"
            )
        number("chance", self.chance, at_least=0, at_most=1)
        number("ceiling", self.ceiling, above=float(self.chance), at_most=1)

    @property
    def range(self) -> float:
        """Return what perfect training adds to a guess."""
        return self.ceiling - self.chance

    @property
    def sums_noise(self) -> bool:
        """Say whether the quality is 1 / (1 + noise) with a noise that falls as 1 / scale."""
        return self.model in ("averaged", "precision")

    def quality(self, precisions: FloatArray, count: IntArray, owners: int) -> Quality:
        """Return the quality along the last axis; absent owners carry an infinite precision."""
        with np.errstate(divide="ignore", over="ignore"):
            return _QUALITIES[self.model](precisions, np.asarray(count, np.float64), owners)

    def of(self, precisions: FloatArray, owners: int) -> float:
        """Return the accuracy that these participants' precisions buy."""
        if not len(precisions):
            return self.chance
        found = self.quality(precisions, np.array(len(precisions)), owners)
        return self.chance + self.range * math.exp(float(found.log))


def accuracy_named(accuracy: str | Accuracy) -> Accuracy:
    """Return the model of that name with the paper's chance 0.5 and ceiling 1, or the one given."""
    return accuracy if isinstance(accuracy, Accuracy) else Accuracy(accuracy)
