"""The paper's whole evaluation: participants, the server's and the users' utilities.

Two sweeps: the number of owners n, and the largest value v_max of values uniform on [1, v_max]. At
each setting many draws of all values; for each draw the owners' equilibrium, and for each accuracy
model the best reward and everybody's utility at it. All draws of a setting are solved at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game import ACCURACY_MODELS, Accuracy, Training, Uniform
from fedbourse.game.accuracy import accuracy_named
from fedbourse.game.buyer import Buyer
from fedbourse.game.costs import Linear, cost_named
from fedbourse.game.draws import linear_draws
from fedbourse.game.presentation import Chart, Line, Presentable
from fedbourse.game.reward.best import best_offer
from fedbourse.game.reward.concave import best_rewards
from fedbourse.game.reward.search import no_progress
from fedbourse.study.results import columns_of
from fedbourse.units import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedbourse.game.accuracy import AnyAccuracy, CustomAccuracy
    from fedbourse.game.columns import FloatArray
    from fedbourse.game.costs import Cost, PrivacyCost
    from fedbourse.game.presentation import Columns
    from fedbourse.game.reward.search import Progress

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

    @property
    def key(self) -> dict[str, object]:
        """Return what tells it from other outcomes, as one flat record."""
        return {
            "sweep": self.sweep.name,
            "owners": self.setting.owners,
            "value_max": self.setting.value_max,
            "model": self.model,
        }

    def summary(self) -> dict[str, object]:
        """Return mean, standard deviation and standard error of each metric, as a flat record."""
        row = self.key
        for name in METRICS:
            values = self.metrics[name]
            row[f"{name}_mean"] = float(values.mean())
            row[f"{name}_std"] = float(values.std(ddof=1))
            row[f"{name}_standard_error"] = float(values.std(ddof=1)) / math.sqrt(len(values))
        return row


@dataclass(frozen=True, eq=False, repr=False)
class PaperStudy(Presentable):
    """All outcomes, with what it takes to get them again."""

    outcomes: tuple[PaperOutcome, ...]
    draws: int
    seed: int

    def along(self, sweep: str, model: str) -> list[PaperOutcome]:
        """Return the outcomes of one sweep under one model, in order."""
        return [o for o in self.outcomes if o.sweep.name == sweep and o.model == model]

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the accuracy models, in order."""
        return tuple(dict.fromkeys(o.model for o in self.outcomes))

    def plot(self, axes: Any = None) -> Any:
        """Draw the paper's six panels and return the figure; or the server's utility into axes."""
        from fedbourse.study.figures import overview

        return overview(self) if axes is None else super().plot(axes)

    def _facts(self) -> dict[str, object]:
        return {"draws": self.draws, "seed": self.seed, "models": ", ".join(self.models)}

    def _rows(self) -> Columns:
        return columns_of([outcome.summary() for outcome in self.outcomes])

    def _chart(self) -> Chart:
        lines = []
        for model in self.models:
            outcomes = self.along("owners", model)
            x = np.array([o.setting.owners for o in outcomes])
            y = np.array([o.metrics["server_utility"].mean() for o in outcomes])
            lines.append(Line(model, x, y))
        title = f"means of {self.draws} draws, seed {self.seed}"
        return Chart(title, "number of owners", "server's utility", tuple(lines))


def paper_study(
    *,
    draws: int = 200,
    seed: int = 0,
    accuracy: Iterable[AnyAccuracy] = ACCURACY_MODELS,
    cost: str | PrivacyCost | Cost = "linear",
    progress: Progress = no_progress,
) -> PaperStudy:
    """Repeat the paper's evaluation: both sweeps, with its parameters, under each accuracy model.

    ``draws`` is how often all owners' values are drawn at each setting; the same ``seed`` gives the
    same study. ``accuracy`` and ``cost`` may be of your own: each draw is then a search for the
    best reward, so take few draws. ``progress`` is told how many settings of how many are done.

    >>> study = paper_study(draws=2, accuracy=["precision"])
    >>> study
    PaperStudy(draws=2, seed=0, models='precision')
    >>> len(study.to_frame())
    19
    """
    draws = whole_number("draws", draws, at_least=2)
    seed = whole_number("seed", seed, at_least=0)
    models = [accuracy_named(each) for each in accuracy]
    family = cost_named(cost)
    if not models or len({model.model for model in models}) < len(models):
        raise InvalidInput(
            "accuracy must name at least one model, each once; found "
            f"{[model.model for model in models]}"
        )
    outcomes: list[PaperOutcome] = []
    settings = [(sweep, setting) for sweep in SWEEPS for setting in sweep.settings]
    for done, (sweep, setting) in enumerate(settings):
        progress(done, len(settings))
        rng = np.random.default_rng([seed, done])
        rows = max(1, _AT_ONCE // setting.owners)
        parts = []
        for start in range(0, draws, rows):
            shape = (min(rows, draws - start), setting.owners)
            table = Uniform(1.0, setting.value_max).rvs(size=shape, random_state=rng)
            parts.append({m.model: _metrics(table, m, family) for m in models})
        for model in parts[0]:
            metrics = {
                name: np.concatenate([part[model][name] for part in parts]) for name in METRICS
            }
            outcomes.append(PaperOutcome(sweep, setting, model, metrics))
    progress(len(settings), len(settings))
    return PaperStudy(tuple(outcomes), draws, seed)


def _metrics(
    table: FloatArray, accuracy: Accuracy | CustomAccuracy, cost: Cost
) -> dict[str, FloatArray]:
    """Return every metric of many games, one a row."""
    if isinstance(accuracy, Accuracy) and isinstance(cost, Linear):
        return _solve(table, accuracy)
    return _searched(table, accuracy, cost)


def _searched(
    table: FloatArray, accuracy: Accuracy | CustomAccuracy, cost: Cost
) -> dict[str, FloatArray]:
    """Return the same for rules of the caller's own, game by game."""
    rows = []
    for values in table:
        buyer = Buyer(TRAINING, ACCURACY_VALUE, accuracy, cost, 0.0, None, "budget")
        offer = best_offer(buyer, values)
        utilities = np.zeros(len(values))
        utilities[offer.equilibrium.participants] = offer.equilibrium.utilities
        count = float(offer.equilibrium.count)
        rows.append((count, offer.reward, offer.utility, utilities.mean(), utilities.std()))
    return dict(zip(METRICS, np.array(rows).T, strict=True))


def _solve(table: FloatArray, accuracy: Accuracy) -> dict[str, FloatArray]:
    """Return every metric of the paper's games, all rows at once."""
    n = table.shape[1]
    games = linear_draws(table)
    factor = TRAINING.noise_factor
    assert isinstance(factor, float)
    precisions = games.unit_precisions(factor)
    squares = games.shares**2  # an owner's utility is R s^2
    mean = squares.sum(axis=1) / n
    spread = np.sqrt((squares**2).sum(axis=1) / n - mean**2)
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
    return {
        "participants": np.where(rewards > 0, games.counts, 0).astype(np.float64),
        "reward": rewards,
        "server_utility": ACCURACY_VALUE * accuracies - rewards,
        "user_utility": rewards * mean,
        "user_spread": rewards * spread,
    }
