"""An accuracy model fitted to a pilot: what the buyer measured on its own public data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game.accuracy import Accuracy
from fedbourse.game.columns import FloatArray
from fedbourse.units import number, whole_number

_LEAST = 4  # observations: one more than there are numbers to fit at least
_SPREAD = 2.0
"""How much the sellers' effective number must vary for their sampling variance to be fitted: where
it hardly does, that variance cannot be told from the ceiling."""
_NOISES = np.geomspace(1e-6, 1e6, 141)
_SAMPLINGS = (0.0, *np.geomspace(1e-3, 1e3, 25))


@dataclass(frozen=True, eq=False)
class Observation:
    """One pilot: the participants' precisions, the number of owners, and the accuracy."""

    precisions: FloatArray
    owners: int
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """A fitted model, and how well it fits what it was fitted to."""

    accuracy: Accuracy
    observations: int
    typical_error: float
    """The root of the mean squared error over the observations."""
    largest_error: float


def calibrate(observations: Sequence[Observation], *, model: str = "precision") -> Calibration:
    """Fit chance, ceiling and the noise coefficient of a model to measured accuracies.

    The sampling variance is fitted too, where the model knows one and the observations' numbers of
    sellers differ enough to tell; else it is 0. For each noise coefficient and sampling variance
    the best two ends come from a linear fit, so that two numbers at most are searched for.
    ``best_reward`` takes the fitted model as its ``accuracy``.
    """
    from scipy.optimize import minimize

    shape = Accuracy(model)
    if len(observations) < _LEAST:
        raise InvalidInput(
            f"a calibration needs at least {_LEAST} observations; found {len(observations)}"
        )
    measured = np.array(
        [number("accuracy", o.accuracy, at_least=0, at_most=1) for o in observations]
    )
    for o in observations:
        whole_number("owners", o.owners, at_least=len(o.precisions))
        if not len(o.precisions) or not (np.asarray(o.precisions) > 0).all():
            raise InvalidInput("an observation needs participants with precisions above 0")

    qualities = _qualities(shape, observations)

    def fit(noise: float, sampling: float) -> tuple[float, float, FloatArray]:
        """Return chance and ceiling by least squares, held between 0 and 1, and the errors."""
        quality = qualities(noise, sampling)
        table = np.stack([1.0 - quality, quality], axis=1)
        chance, ceiling = np.clip(np.linalg.lstsq(table, measured)[0], 0.0, 1.0).tolist()
        return chance, ceiling, chance + (ceiling - chance) * quality - measured

    def squares(noise: float, sampling: float) -> float:
        return float((fit(noise, sampling)[2] ** 2).sum())

    samplings = _SAMPLINGS if shape.sums_noise and _sellers_vary(shape, observations) else (0.0,)
    start = min(product(_NOISES, samplings), key=lambda pair: squares(*pair))
    free = 2 if start[1] else 1  # numbers that are searched for
    optimum = minimize(
        lambda logs: squares(*_numbers(logs)),
        np.log(start[:free]),
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-18, "maxiter": 2000},
    )
    noise, sampling = _numbers(optimum.x)
    chance, ceiling, errors = fit(noise, sampling)
    if not ceiling > chance or not np.ptp(measured):
        raise InvalidInput(
            f"accuracy does not rise with the budgets in these {len(observations)} observations: "
            f"the fit goes from {chance:.3f} (noise only) to {ceiling:.3f} (no noise)"
        )
    return Calibration(
        accuracy=Accuracy(model, chance=chance, ceiling=ceiling, noise=noise, sampling=sampling),
        observations=len(observations),
        typical_error=float(np.sqrt(np.mean(errors**2))),
        largest_error=float(np.abs(errors).max()),
    )


def _numbers(logs: FloatArray) -> tuple[float, float]:
    """Return a noise coefficient and a sampling variance from the logarithms of one or both."""
    numbers = np.exp(logs).tolist()
    return numbers[0], numbers[1] if len(numbers) > 1 else 0.0


def _parts(shape: Accuracy, observations: Sequence[Observation]) -> tuple[FloatArray, FloatArray]:
    """Return what each observation has of noise and of sampling, where 1/quality - 1 is their sum.

    Both are those at a coefficient and a variance of 1.
    """
    unit = replace(shape, noise=1.0, sampling=1.0)
    each = [unit.quality(o.precisions, np.array(len(o.precisions)), o.owners) for o in observations]
    elasticity = np.array([float(quality.elasticity) for quality in each])
    inverse = np.exp([-float(quality.log) for quality in each])
    return elasticity * inverse, (1.0 - elasticity) * inverse - 1.0


def _sellers_vary(shape: Accuracy, observations: Sequence[Observation]) -> bool:
    _, sampling = _parts(shape, observations)
    return bool(sampling.max() > _SPREAD * sampling.min())


def _qualities(
    shape: Accuracy, observations: Sequence[Observation]
) -> Callable[[float, float], FloatArray]:
    """Return the observations' qualities as a function of noise coefficient and sampling."""
    if shape.sums_noise:
        noises, samplings = _parts(shape, observations)
        return lambda noise, sampling: 1.0 / (1.0 + noise * noises + sampling * samplings)

    def qualities(noise: float, sampling: float) -> FloatArray:
        scaled = replace(shape, noise=noise)
        logs = [
            float(scaled.quality(o.precisions, np.array(len(o.precisions)), o.owners).log)
            for o in observations
        ]
        return np.exp(logs)

    return qualities
