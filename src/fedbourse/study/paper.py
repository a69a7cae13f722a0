"""The paper's whole evaluation: participants, the server's and the users' utilities.

Two sweeps: the number of owners n, and the largest value v_max of values uniform on [1, v_max]. At
each setting many draws of all values; for each draw the owners' equilibrium, and for each accuracy
model the best reward and everybody's utility at it. All draws of a setting are solved at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game import ACCURACY_MODELS, Accuracy, Training, Uniform
from fedbourse.game.draws import linear_draws
from fedbourse.game.reward.concave import best_rewards
from fedbourse.units import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray

ACCURACY_VALUE = 20.0
TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
_AT_ONCE = 2_000_000  # values that are drawn and solved at once


@dataclass(frozen=True)
class PaperSetting:
    """How many owners, with values uniform on [1, value_max]."""

    owners: int
    value_max: float


@dataclass(frozen=True)
class Sweep:
    """Settings along which one parameter moves."""

    name: str
    label: str
    fixed: str
    settings: tuple[PaperSetting, ...]

    def parameter(self, setting: PaperSetting) -> float:
        """Return the parameter that moves."""
        return setting.owners if self.name == "owners" else setting.value_max


SWEEPS = (
    Sweep(
        "owners",
        "number of owners $n$",
        "$v_{max}$ = 5",
        tuple(PaperSetting(n, 5.0) for n in range(100, 1001, 100)),
    ),
    Sweep(
        "value_max",
        "largest value $v_{max}$",
        "$n$ = 1000",
        tuple(PaperSetting(1000, float(v)) for v in range(2, 11)),
    ),
)

METRICS = ("participants", "reward", "server_utility", "user_utility", "user_spread")
"""The spread is the standard deviation of utilities over users."""


@dataclass(frozen=True, eq=False)
class PaperOutcome:
    """One setting under one accuracy model: an array of one number a draw for each metric."""

    sweep: Sweep
    setting: PaperSetting
    model: str
    metrics: dict[str, FloatArray]


@dataclass(frozen=True, eq=False)
class PaperStudy:
    """All outcomes, with what it takes to get them again."""

    outcomes: tuple[PaperOutcome, ...]
    draws: int
    seed: int

    def along(self, sweep: str, model: str) -> list[PaperOutcome]:
        """Return the outcomes of one sweep under one model, in order."""
        return [o for o in self.outcomes if o.sweep.name == sweep and o.model == model]


def run_paper_study(
    *,
    draws: int = 200,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, all: None,
) -> PaperStudy:
    """Run both sweeps; ``progress`` is told how many settings of how many are done."""
    draws = whole_number("draws", draws, at_least=2)
    seed = whole_number("seed", seed, at_least=0)
    outcomes: list[PaperOutcome] = []
    settings = [(sweep, setting) for sweep in SWEEPS for setting in sweep.settings]
    for done, (sweep, setting) in enumerate(settings):
        progress(done, len(settings))
        rng = np.random.default_rng([seed, done])
        rows = max(1, _AT_ONCE // setting.owners)
        parts = [_solve(setting, min(rows, draws - start), rng) for start in range(0, draws, rows)]
        for model in ACCURACY_MODELS:
            metrics = {
                name: np.concatenate([part[model][name] for part in parts]) for name in METRICS
            }
            outcomes.append(PaperOutcome(sweep, setting, model, metrics))
    progress(len(settings), len(settings))
    return PaperStudy(tuple(outcomes), draws, seed)


def _solve(
    setting: PaperSetting, draws: int, rng: np.random.Generator
) -> dict[str, dict[str, FloatArray]]:
    """Return every metric of ``draws`` games under every model."""
    n = setting.owners
    games = linear_draws(Uniform(1.0, setting.value_max).rvs(size=(draws, n), random_state=rng))
    factor = TRAINING.noise_factor
    assert isinstance(factor, float)
    precisions = games.unit_precisions(factor)
    squares = games.shares**2  # an owner's utility is R s^2
    mean = squares.sum(axis=1) / n
    spread = np.sqrt((squares**2).sum(axis=1) / n - mean**2)
    result = {}
    for model in ACCURACY_MODELS:
        accuracy = Accuracy(model)
        rewards, _ = best_rewards(
            precisions,
            games.counts,
            owners=n,
            accuracy=accuracy,
            accuracy_value=ACCURACY_VALUE,
            degree=1.0,
        )
        with np.errstate(invalid="ignore"):  # infinite precision of nobody, at a reward of 0
            quality = accuracy.quality(precisions * rewards[:, None], games.counts, n)
        bought = np.where(rewards > 0, np.exp(quality.log), 0.0)
        accuracies = accuracy.chance + accuracy.range * bought
        result[model] = {
            "participants": np.where(rewards > 0, games.counts, 0).astype(np.float64),
            "reward": rewards,
            "server_utility": ACCURACY_VALUE * accuracies - rewards,
            "user_utility": rewards * mean,
            "user_spread": rewards * spread,
        }
    return result
