"""Four models of the accuracy that budgets buy.

A model turns the precisions y_i (see ``training``) of those who take part into a quality between 0
(noise only) and 1 (no noise), and

    accuracy = chance + (ceiling - chance) * quality.

A fourth number, ``noise``, says how much the noise of one step weighs after the whole training; the
paper takes 1, and a pilot can measure it (``calibration``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray, IntArray


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
    noise: float = 1.0
    """What all noise is multiplied with: a task that shrugs noise off has less than 1."""

    def __post_init__(self) -> None:
        """Check the name and the two ends."""
        if self.model not in _QUALITIES:
            raise InvalidInput(
                f"accuracy must be one of {', '.join(_QUALITIES)}; found {self.model!r:.60}"
            )
        number("chance", self.chance, at_least=0, at_most=1)
        number("ceiling", self.ceiling, above=float(self.chance), at_most=1)
        number("noise", self.noise, above=0, at_most=1e100)

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
            return _QUALITIES[self.model](
                precisions / self.noise, np.asarray(count, np.float64), owners
            )

    def of(self, precisions: FloatArray, owners: int) -> float:
        """Return the accuracy that these participants' precisions buy."""
        if not len(precisions):
            return self.chance
        found = self.quality(precisions, np.array(len(precisions)), owners)
        return self.chance + self.range * math.exp(float(found.log))


def accuracy_named(accuracy: str | Accuracy) -> Accuracy:
    """Return the model of that name with the paper's chance 0.5 and ceiling 1, or the one given."""
    return accuracy if isinstance(accuracy, Accuracy) else Accuracy(accuracy)
