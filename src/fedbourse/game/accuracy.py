"""Four models of the accuracy that budgets buy.

A model turns the participants' precisions y_i (see ``training``) into a quality between 0 (noise
only) and 1 (no noise), and

    accuracy = chance + (ceiling - chance) * quality.

Two more numbers come from a pilot (``calibration``). ``noise`` says how much the noise of one step
weighs after the whole training; the paper takes 1. ``sampling`` says how much one owner's records
err by themselves, being few: the paper takes 0, so that two owners could replace a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game.columns import FloatArray, IntArray
from fedbourse.registry import Choice, Registry
from fedbourse.units import number


@dataclass(frozen=True)
class Quality:
    """The logarithm of a quality, and how it responds to a change of scale of all precisions."""

    log: FloatArray
    elasticity: FloatArray
    """d log quality / d log scale, between 0 and 1."""
    slope: FloatArray
    """d elasticity / d log scale."""


@dataclass(frozen=True)
class _Precisions:
    """The participants' precisions, along the last axis, and how many owners have each."""

    values: FloatArray
    multiplicities: FloatArray | None
    count: FloatArray
    owners: int
    sampling: float = 0.0

    def sum(self, numbers: FloatArray) -> FloatArray:
        """Sum over all participants."""
        total: FloatArray = (
            numbers.sum(-1) if self.multiplicities is None else numbers @ self.multiplicities
        )
        return total


def _mean_log(precisions: _Precisions, over: FloatArray) -> Quality:
    """Return exp(-sum of log(1 + 1/y) / over): the geometric mean of y/(1 + y)."""
    part = 1.0 / (1.0 + precisions.values)
    return Quality(
        log=-precisions.sum(np.log1p(1.0 / precisions.values)) / over,
        elasticity=precisions.sum(part) / over,
        slope=-precisions.sum(part * (1.0 - part)) / over,
    )


def _one_noise(noise: FloatArray, sampling: FloatArray | float) -> Quality:
    """Return 1 / (1 + noise + sampling), where noise falls as 1 / scale and sampling stays."""
    part = 1.0 / (1.0 + (1.0 + sampling) / noise)
    return Quality(log=-np.log1p(noise + sampling), elasticity=part, slope=-part * (1.0 - part))


def _paper(precisions: _Precisions) -> Quality:
    return _mean_log(precisions, precisions.count)


def _population(precisions: _Precisions) -> Quality:
    return _mean_log(precisions, np.full_like(precisions.count, precisions.owners))


def _averaged(precisions: _Precisions) -> Quality:
    noise = precisions.sum(1.0 / precisions.values) / precisions.count**2
    return _one_noise(noise, precisions.sampling / precisions.count)


def _precision(precisions: _Precisions) -> Quality:
    present = np.where(np.isinf(precisions.values), 0.0, precisions.values)
    total = precisions.sum(present)
    if not precisions.sampling:
        return _one_noise(1.0 / total, 0.0)
    # An update weighs w = y / sum y, so that the owners' sampling errors add up to s sum w^2.
    weights = present / np.where(total > 0, total, 1.0)[..., None]
    return _one_noise(1.0 / total, precisions.sampling * precisions.sum(weights**2))


@dataclass(frozen=True)
class QualityModel:
    """How precisions become a quality."""

    quality: Callable[[_Precisions], Quality]
    sums_noise: bool = False
    """Whether it is 1 / (1 + noise + sampling), with a noise that falls as 1 / scale; only these
    know what sampling is."""


ACCURACY_MODELS: Registry[QualityModel] = Registry(
    "accuracy",
    Choice(
        "paper",
        "paper: the mean over those who take part",
        "the paper's formula: a geometric mean over those who take part",
        QualityModel(_paper),
    ),
    Choice(
        "population",
        "population: the same over all owners",
        "the same sum over all owners, absent ones as if noise-free",
        QualityModel(_population),
    ),
    Choice(
        "averaged",
        "averaged: the plain average's variance",
        "the variance of the plain average of updates",
        QualityModel(_averaged, sums_noise=True),
    ),
    Choice(
        "precision",
        "precision: updates weighted by precision",
        "updates weighted by their precision, which is by pay",
        QualityModel(_precision, sums_noise=True),
    ),
    group="accuracy_models",
)
"""Accuracy models by name; an installed package may add its own."""


@dataclass(frozen=True)
class Accuracy:
    """A model of the accuracy that budgets buy."""

    model: str = "paper"
    chance: float = 0.5
    """The accuracy of a guess, reached where noise drowns everything."""
    ceiling: float = 1.0
    """The accuracy without noise."""
    noise: float = 1.0
    """The factor of all noise: below 1 for a task that tolerates noise well."""
    sampling: float = 0.0
    """s: the variance that one owner's records leave without any noise, in the units of noise. K
    owners with equal budgets leave s / K."""

    def __post_init__(self) -> None:
        ACCURACY_MODELS.choose(self.model)
        number("chance", self.chance, at_least=0, at_most=1)
        number("ceiling", self.ceiling, above=float(self.chance), at_most=1)
        number("noise", self.noise, above=0, at_most=1e100)
        number("sampling", self.sampling, at_least=0, at_most=1e100)
        if self.sampling and not self.sums_noise:
            knowing = [name for name, model in ACCURACY_MODELS.items() if model.sums_noise]
            raise InvalidInput(
                f"sampling needs an accuracy model that adds variances ({', '.join(knowing)}); "
                f"found sampling {self.sampling:g} with {self.model!r}"
            )

    @property
    def range(self) -> float:
        """Return what perfect training adds to a guess."""
        return self.ceiling - self.chance

    @property
    def sums_noise(self) -> bool:
        """Say whether the quality is 1 / (1 + noise + sampling), where only noise has a scale."""
        return ACCURACY_MODELS[self.model].sums_noise

    def by(self, model: str) -> Accuracy:
        """Return the same assumptions by another model, which may not know what sampling is."""
        sampling = self.sampling if ACCURACY_MODELS.choose(model).sums_noise else 0.0
        return replace(self, model=model, sampling=sampling)

    def quality(
        self,
        precisions: FloatArray,
        count: IntArray | FloatArray,
        owners: int,
        multiplicities: FloatArray | None = None,
    ) -> Quality:
        """Return the quality along the last axis; absent owners carry an infinite precision.

        ``multiplicities`` says how many owners each precision stands for, if not one.
        """
        scaled = _Precisions(
            precisions / self.noise,
            multiplicities,
            np.asarray(count, np.float64),
            owners,
            self.sampling,
        )
        with np.errstate(divide="ignore", over="ignore"):
            return ACCURACY_MODELS[self.model].quality(scaled)

    def of(
        self, precisions: FloatArray, owners: int, multiplicities: FloatArray | None = None
    ) -> float:
        """Return the accuracy that these participants' precisions buy."""
        if not len(precisions):
            return self.chance
        count = len(precisions) if multiplicities is None else multiplicities.sum()
        quality = self.quality(precisions, np.array(count), owners, multiplicities)
        return self.chance + self.range * math.exp(float(quality.log))


def accuracy_named(accuracy: str | Accuracy) -> Accuracy:
    """Return a model as it is, or the one of that name with chance 0.5 and ceiling 1."""
    return accuracy if isinstance(accuracy, Accuracy) else Accuracy(accuracy)
