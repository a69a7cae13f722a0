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


@dataclass(frozen=True)
class _Answers:
    """The precisions of those who take part, along the last axis, and of how many owners each."""

    precisions: FloatArray
    weights: FloatArray | None
    count: FloatArray
    owners: int

    def sum(self, numbers: FloatArray) -> FloatArray:
        """Sum over all who take part."""
        summed: FloatArray = numbers.sum(-1) if self.weights is None else numbers @ self.weights
        return summed


def _mean_log(answers: _Answers, over: FloatArray) -> Quality:
    """Return exp(-sum of log(1 + 1/y) / over): the geometric mean of y/(1 + y)."""
    part = 1.0 / (1.0 + answers.precisions)
    return Quality(
        log=-answers.sum(np.log1p(1.0 / answers.precisions)) / over,
        elasticity=answers.sum(part) / over,
        slope=-answers.sum(part * (1.0 - part)) / over,
    )


def _one_noise(noise: FloatArray) -> Quality:
    """Return 1 / (1 + noise), a noise that falls as 1 / scale."""
    part = 1.0 / (1.0 + 1.0 / noise)
    return Quality(log=-np.log1p(noise), elasticity=part, slope=-part * (1.0 - part))


def _paper(answers: _Answers) -> Quality:
    return _mean_log(answers, answers.count)


def _population(answers: _Answers) -> Quality:
    return _mean_log(answers, np.full_like(answers.count, answers.owners))


def _averaged(answers: _Answers) -> Quality:
    return _one_noise(answers.sum(1.0 / answers.precisions) / answers.count**2)


def _precision(answers: _Answers) -> Quality:
    present = np.where(np.isinf(answers.precisions), 0.0, answers.precisions)
    return _one_noise(1.0 / answers.sum(present))


_QUALITIES: dict[str, Callable[[_Answers], Quality]] = {
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

    def quality(
        self,
        precisions: FloatArray,
        count: IntArray | FloatArray,
        owners: int,
        weights: FloatArray | None = None,
    ) -> Quality:
        """Return the quality along the last axis; absent owners carry an infinite precision.

        ``weights`` says how many owners each precision stands for, if not one.
        """
        answers = _Answers(precisions / self.noise, weights, np.asarray(count, np.float64), owners)
        with np.errstate(divide="ignore", over="ignore"):
            return _QUALITIES[self.model](answers)

    def of(self, precisions: FloatArray, owners: int, weights: FloatArray | None = None) -> float:
        """Return the accuracy that these participants' precisions buy."""
        if not len(precisions):
            return self.chance
        count = len(precisions) if weights is None else weights.sum()
        found = self.quality(precisions, np.array(count), owners, weights)
        return self.chance + self.range * math.exp(float(found.log))


def accuracy_named(accuracy: str | Accuracy) -> Accuracy:
    """Return the model of that name with the paper's chance 0.5 and ceiling 1, or the one given."""
    return accuracy if isinstance(accuracy, Accuracy) else Accuracy(accuracy)
