"""A buyer's pilot: fit a model of accuracy on public records, then see it predict the owners'."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game import Calibration, Observation, Training, calibrate
from fedbourse.study.trials import Mean, Trial, TrialTask, trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PILOT_FACTORS = tuple(float(f) for f in np.geomspace(0.1, 10.0, 6))
"""Rewards of the pilot, in turning rewards."""
HELD_OUT_FACTORS = tuple(float(np.sqrt(a * b)) for a, b in pairwise(PILOT_FACTORS))
"""Rewards that the fit has not seen: between those of the pilot."""

_REPEATS = 3  # trainings of each reward and seed, for noise is the larger part of the spread

MODEL_OF = {"equal": "averaged", "precision": "precision"}
"""The model of accuracy that knows how updates are weighted."""


@dataclass(frozen=True)
class HeldOutCheck:
    """A reward unseen in the fit: what the fitted model says, and what owners' records give."""

    factor: float
    sellers: float
    """How many took part, in the mean over seeds."""
    in_pilot: bool
    """Whether the pilot had about as many sellers; reward and owners are new in any case."""
    reward: float
    predicted: float
    measured: Mean

    @property
    def error(self) -> float:
        """Return predicted less measured."""
        return self.predicted - self.measured.value


@dataclass(frozen=True)
class PilotStudy:
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


def run_pilot_study(
    task: TrialTask,
    *,
    aggregation: str,
    seeds: int,
    first_seed: int = 0,
    sellers: Sequence[int] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> PilotStudy:
    """Fit on public records, check on owners' records, other owners and other rewards.

    With ``sellers`` the checks go over so many sellers, and the pilot over every other of these
    numbers: the fit then knows how much few sellers' records vary. Without it, as many sell as the
    task's values lead to.
    """
    tasks = [task] if sellers is None else [_with_sellers(task, count) for count in sellers]
    piloted = tasks[::2]
    of = seeds * (len(piloted) + len(tasks))
    observations: list[Observation] = []
    for number, (each, k) in enumerate(product(piloted, range(seeds))):
        progress(number, of)
        pilot = trial(each, seed=first_seed + k, whose="public")
        observations += [_observe(pilot, factor, aggregation) for factor in PILOT_FACTORS]
    calibration = calibrate(observations, model=MODEL_OF[aggregation])

    checks: list[HeldOutCheck] = []
    for number, each in enumerate(tasks):
        progress(seeds * (len(piloted) + number), of)
        owners = [trial(each, seed=first_seed + k) for k in range(seeds)]
        checks += [
            _check(owners, factor, aggregation, calibration, in_pilot=each in piloted)
            for factor in HELD_OUT_FACTORS
        ]
    progress(of, of)
    return PilotStudy(task, aggregation, seeds, owners[0].training, calibration, tuple(checks))


def sellers_between(low: int, high: int) -> list[int]:
    """Return five numbers of sellers, evenly spaced in their logarithms.

    >>> sellers_between(5, 100)
    [5, 11, 22, 47, 100]
    """
    return [round(count) for count in np.geomspace(low, high, 5).tolist()]


def _with_sellers(task: TrialTask, sellers: int) -> TrialTask:
    """Return the task for owners whose values are so close together that about all of them sell."""
    return replace(task, owners=sellers, values=(1.0, 1.0 + 2.0 / sellers))


def _observe(pilot: Trial, factor: float, aggregation: str) -> Observation:
    reward = factor * pilot.turning_reward
    return Observation(
        precisions=pilot.precisions(reward),
        owners=pilot.task.owners,
        accuracy=pilot.measure(reward, aggregation, repeats=_REPEATS),
    )


def _check(
    owners: list[Trial],
    factor: float,
    aggregation: str,
    calibration: Calibration,
    *,
    in_pilot: bool,
) -> HeldOutCheck:
    rewards = [factor * each.turning_reward for each in owners]
    pairs = list(zip(owners, rewards, strict=True))
    accuracy = calibration.accuracy
    predicted = [accuracy.of(each.precisions(reward), each.task.owners) for each, reward in pairs]
    measured = [each.measure(reward, aggregation, repeats=_REPEATS) for each, reward in pairs]
    return HeldOutCheck(
        factor=factor,
        sellers=float(np.mean([len(each.participants) for each in owners])),
        in_pilot=in_pilot,
        reward=float(np.mean(rewards)),
        predicted=float(np.mean(predicted)),
        measured=Mean.of(measured),
    )
