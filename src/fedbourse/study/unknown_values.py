"""What a buyer loses by not knowing how values are distributed, task after task.

Each task has owners of its own, drawn from a distribution that the buyer does not know. It
announces the reward that is best for what it assumes: a guessed range, always; the values of all
who sold so far; or the estimate from all replies so far, in which owners who stayed out count as a
bound (``game.value_estimate``). Regret is what knowing the distribution would have added to its
expected utility.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game import (
    Accuracy,
    Distribution,
    Sample,
    Training,
    Uniform,
    best_reward,
    estimate_values,
)
from fedbourse.game.draws import linear_draws
from fedbourse.game.reward.concave import best_rewards
from fedbourse.study.trials import Mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedbourse.game.columns import FloatArray

TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
ACCURACY = Accuracy("precision")
ACCURACY_VALUE = 20.0
GUESS = Uniform(1.0, 5.0)
"""What a card assumes of values where it says nothing."""
_GAMES = 2000  # over which a reward's expected utility is taken
_DRAWS = 100  # of the buyer's, for each best reward

GUESSING, SELLERS, ESTIMATE = "the guess, always", "who sold, alone", "all replies"
METHODS = (GUESSING, SELLERS, ESTIMATE)


def true_distributions() -> dict[str, Distribution]:
    """Return the distributions that values are drawn from, by name."""
    from scipy.stats import lognorm, pareto

    return {
        "uniform, 1 to 5 (as guessed)": Uniform(1, 5),
        "uniform, 5 to 25": Uniform(5, 25),
        "lognormal, median 3, sigma 1": lognorm(s=1.0, scale=3.0),
        "Pareto, from 0.2, index 1.2": pareto(b=1.2, scale=0.2),
    }


@dataclass(frozen=True)
class RegretRow:
    """The regret of one way to choose the reward, in one task."""

    values: str
    """The distribution of values."""
    method: str
    """What the buyer goes by."""
    task: int
    best_reward: float
    """The best reward for who knows the distribution."""
    reward: float
    """The mean of the announced ones."""
    regret: Mean
    """Expected utility lost in this task, in credits."""
    total_regret: Mean
    """The same, summed over all tasks up to this one."""


@dataclass(frozen=True, eq=False)
class ExpectedUtility:
    """The buyer's expected utility at any reward, over many games of one distribution."""

    unit_precisions: FloatArray
    counts: FloatArray
    owners: int

    @classmethod
    def of(cls, values: Distribution, *, owners: int, seed: int) -> ExpectedUtility:
        """Draw the games."""
        rng = np.random.default_rng([seed, 1])
        games = linear_draws(np.asarray(values.rvs(size=(_GAMES, owners), random_state=rng)))
        factor = TRAINING.noise_factor
        assert isinstance(factor, float)
        return cls(games.unit_precisions(factor), games.counts.astype(np.float64), owners)

    @property
    def best(self) -> float:
        """Return the reward that is best on average over the games."""
        rewards, _ = best_rewards(
            self.unit_precisions,
            self.counts.astype(np.int64),
            owners=self.owners,
            accuracy=ACCURACY,
            accuracy_value=ACCURACY_VALUE,
            degree=1.0,
            together=True,
        )
        return float(rewards[0])

    def at(self, reward: float) -> float:
        """Return the mean utility at a reward."""
        if not reward:
            return ACCURACY_VALUE * ACCURACY.chance
        quality = ACCURACY.quality(self.unit_precisions * reward, self.counts, self.owners)
        accuracy = ACCURACY.chance + ACCURACY.range * float(np.exp(quality.log).mean())
        return ACCURACY_VALUE * accuracy - reward


def best_for(values: Distribution, *, owners: int) -> float:
    """Return the reward that a buyer announces who goes by a distribution."""
    offer = best_reward(
        values,
        TRAINING,
        accuracy_value=ACCURACY_VALUE,
        accuracy=ACCURACY,
        owners=owners,
        draws=_DRAWS,
    )
    return offer.reward


def bounds_of(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what settled tasks tell of values, a row a task: those below the cutoff, exactly."""
    cutoffs = linear_draws(values).cutoffs[:, None]
    return np.minimum(values, cutoffs), np.where(values < cutoffs, values, math.inf)


def run_regret_study(
    *,
    owners: int = 100,
    tasks: int = 50,
    repeats: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[RegretRow]:
    """Play all tasks, ``repeats`` times for each distribution, and return every task's row."""
    rows: list[RegretRow] = []
    distributions = true_distributions()
    for number, (name, values) in enumerate(distributions.items()):
        expected = ExpectedUtility.of(values, owners=owners, seed=seed)
        rewards = np.empty((repeats, len(METHODS), tasks))
        for k in range(repeats):
            progress(number * repeats + k, len(distributions) * repeats)
            rng = np.random.default_rng([seed, 2, k])
            drawn = np.asarray(values.rvs(size=(tasks, owners), random_state=rng))
            rewards[k] = list(_rewards(drawn, owners))
        rows += _rows(name, expected, rewards)
    progress(len(distributions) * repeats, len(distributions) * repeats)
    return rows


def _rewards(drawn: FloatArray, owners: int) -> Iterator[list[float]]:
    """Yield the rewards that each method announces in turn."""
    lows, highs = bounds_of(drawn)
    guessed = best_for(GUESS, owners=owners)
    tasks = range(1, len(drawn))
    yield [guessed] * len(drawn)
    sold = [Sample(lows[:k][np.isfinite(highs[:k])]) for k in tasks]
    yield [guessed, *(best_for(sample, owners=owners) for sample in sold)]
    estimates = (
        estimate_values(lows[:k].ravel(), highs[:k].ravel(), highest=GUESS.high) for k in tasks
    )
    yield [guessed, *(best_for(estimate, owners=owners) for estimate in estimates)]


def _rows(name: str, expected: ExpectedUtility, rewards: FloatArray) -> Iterator[RegretRow]:
    best = expected.best
    most = expected.at(best)
    different, places = np.unique(rewards, return_inverse=True)
    utilities = np.array([expected.at(float(reward)) for reward in different])
    regrets = most - utilities[places.reshape(rewards.shape)]
    totals = np.cumsum(regrets, axis=2)
    for method, way in enumerate(METHODS):
        for task in range(rewards.shape[2]):
            yield RegretRow(
                values=name,
                method=way,
                task=task + 1,
                best_reward=best,
                reward=float(rewards[:, method, task].mean()),
                regret=Mean.of(regrets[:, method, task].tolist()),
                total_regret=Mean.of(totals[:, method, task].tolist()),
            )
