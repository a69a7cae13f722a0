"""A buyer's pilot: fit a model of accuracy on public records, then see it predict the owners'."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game import Calibration, Observation, Training, calibrate
from fedbourse.game.presentation import Chart, Line, Presentable
from fedbourse.study.results import columns_of, flat
from fedbourse.study.trials import Mean, Trial, TrialTask, trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.presentation import Columns

PILOT_FACTORS = tuple(float(f) for f in np.geomspace(0.1, 10.0, 6))
"""Rewards of the pilot, in turning rewards."""
HELD_OUT_FACTORS = tuple(float(np.sqrt(a * b)) for a, b in itertools.pairwise(PILOT_FACTORS))
"""Rewards that the fit has not seen: between those of the pilot."""

_REPEATS = 3  # trainings of each reward and seed, for noise is the larger part of the spread

MODEL_OF = {"equal": "averaged", "precision": "precision"}
"""The model of accuracy that knows how updates are weighted."""


@dataclass(frozen=True)
class HeldOutCheck:
    """A reward unseen in the fit: what the fitted model says, and what owners' records give."""

    factor: float
    reward: float
    predicted: float
    measured: Mean

    @property
    def error(self) -> float:
        """Return predicted less measured."""
        return self.predicted - self.measured.value


@dataclass(frozen=True, repr=False)
class PilotStudy(Presentable):
    """A calibration and its checks."""

    task: TrialTask
    aggregation: str
    seeds: int
    training: Training
    calibration: Calibration
    checks: tuple[HeldOutCheck, ...]

    @property
    def largest_error(self) -> float:
        """Return how far the fitted model is off at most, over the rewards that it had not seen."""
        return max(abs(check.error) for check in self.checks)

    def _facts(self) -> dict[str, object]:
        fit = self.calibration.accuracy
        return {
            "data": self.task.data,
            "aggregation": self.aggregation,
            "seeds": self.seeds,
            "model": fit.model,
            "chance": fit.chance,
            "ceiling": fit.ceiling,
            "noise": fit.noise,
            "largest_error": self.largest_error,
        }

    def _rows(self) -> Columns:
        return columns_of([flat(asdict(check)) | {"error": check.error} for check in self.checks])

    def _chart(self) -> Chart:
        x = np.array([check.reward for check in self.checks])
        predicted = Line("predicted", x, np.array([check.predicted for check in self.checks]))
        measured = Line("mean", x, np.array([check.measured.value for check in self.checks]))
        title = "rewards that the fit has not seen"
        return Chart(title, "reward", "accuracy", (measured, predicted))


def pilot_study(
    task: TrialTask,
    *,
    aggregation: str,
    seeds: int,
    first_seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> PilotStudy:
    """Fit on public records, check on owners' records, other owners and other rewards."""
    observations: list[Observation] = []
    for k in range(seeds):
        progress(k, 2 * seeds)
        pilot = trial(task, seed=first_seed + k, whose="public")
        observations += [_observe(pilot, factor, aggregation) for factor in PILOT_FACTORS]
    calibration = calibrate(observations, model=MODEL_OF[aggregation])

    owners: list[Trial] = []
    for k in range(seeds):
        progress(seeds + k, 2 * seeds)
        owners.append(trial(task, seed=first_seed + k))
    checks = [_check(owners, factor, aggregation, calibration) for factor in HELD_OUT_FACTORS]
    progress(2 * seeds, 2 * seeds)
    return PilotStudy(task, aggregation, seeds, owners[0].training, calibration, tuple(checks))


def _observe(pilot: Trial, factor: float, aggregation: str) -> Observation:
    reward = factor * pilot.turning_reward
    return Observation(
        precisions=pilot.precisions(reward),
        owners=pilot.task.owners,
        accuracy=pilot.measure(reward, aggregation, repeats=_REPEATS),
    )


def _check(
    owners: list[Trial], factor: float, aggregation: str, calibration: Calibration
) -> HeldOutCheck:
    rewards = [factor * each.turning_reward for each in owners]
    pairs = list(zip(owners, rewards, strict=True))
    accuracy = calibration.accuracy
    predicted = [accuracy.of(each.precisions(reward), each.task.owners) for each, reward in pairs]
    measured = [each.measure(reward, aggregation, repeats=_REPEATS) for each, reward in pairs]
    return HeldOutCheck(
        factor=factor,
        reward=float(np.mean(rewards)),
        predicted=float(np.mean(predicted)),
        measured=Mean.of(measured),
    )
