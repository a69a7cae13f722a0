"""An accuracy model fitted to a pilot: what the buyer measured on its own public data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game.accuracy import Accuracy
from fedbourse.game.columns import FloatArray
from fedbourse.units import number, whole_number

_LEAST = 4  # observations: one more than there are numbers to fit


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

    For each noise coefficient the best two ends come from a linear fit, so that only one number is
    searched for. ``best_reward`` takes the fitted model as its ``accuracy``.
    """
    from scipy.optimize import minimize_scalar

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

    def fit(log_noise: float) -> tuple[float, float, FloatArray]:
        """Return chance and ceiling by least squares, held between 0 and 1, and the errors."""
        scaled = replace(shape, noise=float(np.exp(log_noise)))
        logs = [
            float(scaled.quality(o.precisions, np.array(len(o.precisions)), o.owners).log)
            for o in observations
        ]
        quality = np.exp(logs)
        table = np.stack([1.0 - quality, quality], axis=1)
        chance, ceiling = np.clip(np.linalg.lstsq(table, measured)[0], 0.0, 1.0).tolist()
        return chance, ceiling, chance + (ceiling - chance) * quality - measured

    def squares(log_noise: float) -> float:
        return float((fit(log_noise)[2] ** 2).sum())

    grid = np.linspace(np.log(1e-6), np.log(1e6), 141)
    best = int(np.argmin([squares(x) for x in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    x = minimize_scalar(squares, bounds=around, method="bounded", options={"xatol": 1e-10}).x
    chance, ceiling, errors = fit(x)
    if not ceiling > chance or not np.ptp(measured):
        raise InvalidInput(
            f"accuracy does not rise with the budgets in these {len(observations)} observations: "
            f"the fit goes from {chance:.3f} (noise only) to {ceiling:.3f} (no noise)"
        )
    return Calibration(
        accuracy=Accuracy(model, chance=chance, ceiling=ceiling, noise=float(np.exp(x))),
        observations=len(observations),
        typical_error=float(np.sqrt(np.mean(errors**2))),
        largest_error=float(np.abs(errors).max()),
    )
