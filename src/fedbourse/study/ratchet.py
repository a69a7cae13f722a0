"""What owners gain by holding back in early tasks, where the buyer learns from their replies.

The same owners take part in every task. A group acts as if its values were larger in the first
tasks and as they are in the others. With the rewards that truthful replies lead to, acting dear has
a gain or a loss of its own; what the group gets beyond it comes from rewards that the buyer raised
because of what it learnt: the ratchet effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game import estimate_values
from fedbourse.game.draws import linear_draws
from fedbourse.study.trials import Mean
from fedbourse.study.unknown_values import (
    ACCURACY,
    ACCURACY_VALUE,
    GUESS,
    TRAINING,
    best_for,
    bounds_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray

ALL_TASKS, LATEST = "all past tasks", "each owner's latest replies"
MEMORIES = (ALL_TASKS, LATEST)
"""What the buyer estimates from: every task of every owner, or each owner once."""
GROUPS = (1, 3, 10, 100)
"""How many owners act dear: those of the lowest values."""
FACTORS = (1.1, 1.5, 3.0)
EARLY = (1, 5, 20)
"""In how many tasks the group holds back."""


@dataclass(frozen=True)
class RatchetRow:
    """What a group gains over all tasks, in parts of what truthful replies earn it."""

    memory: str
    group: int
    factor: float
    """What its values are multiplied by while it holds back."""
    early: int
    """In how many tasks it does."""
    acting: Mean
    """The gain with the rewards that truthful replies lead to."""
    ratchet: Mean
    """What other rewards add."""
    gain: Mean
    """Both together."""
    buyer_loss: Mean
    """What the buyer's utility falls by over all tasks, in credits."""


@dataclass(frozen=True, eq=False)
class _Play:
    """How all owners act, and what that brings at a reward of 1."""

    values: FloatArray
    """As acted."""
    utility: float
    """The group's, by its true values."""
    precision: float
    """The sum of the participants'."""

    @classmethod
    def of(cls, true: FloatArray, group: int, factor: float) -> _Play:
        """Let the group of lowest values (which come sorted) act dear."""
        acted = np.concatenate([factor * true[:group], true[group:]])
        tau = float(linear_draws(acted[None, :]).cutoffs[0])
        shares = np.maximum(0.0, 1.0 - acted / tau)
        utilities = shares * (1.0 - true / tau)
        factor_of_noise = TRAINING.noise_factor
        assert isinstance(factor_of_noise, float)
        return cls(acted, float(utilities[:group].sum()), 1.0 / (tau * factor_of_noise))

    def buyer_utility(self, rewards: FloatArray) -> FloatArray:
        """Return what the buyer has at these rewards."""
        quality = ACCURACY.quality(
            self.precision * rewards[:, None], np.ones(len(rewards)), len(self.values)
        )
        accuracy = ACCURACY.chance + ACCURACY.range * np.exp(quality.log)
        return np.asarray(ACCURACY_VALUE * accuracy - rewards)


def run_ratchet_study(
    *,
    owners: int = 100,
    tasks: int = 50,
    repeats: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[RatchetRow]:
    """Let groups hold back in front of a buyer who learns; values are uniform, as it guessed."""
    groups = [group for group in GROUPS if group < owners] + [owners]
    early = [count for count in EARLY if count < tasks]
    settings = list(product(groups, FACTORS, early))
    outcomes: dict[tuple[str, int, float, int], list[tuple[float, ...]]] = {}
    first = best_for(GUESS, owners=owners)
    for k in range(repeats):
        rng = np.random.default_rng([seed, 3, k])
        true = np.sort(GUESS.rvs(size=(owners,), random_state=rng))
        for place, (group, factor, count) in enumerate(settings):
            progress(k * len(settings) + place, repeats * len(settings))
            honest, dear = _Play.of(true, group, 1.0), _Play.of(true, group, factor)
            truthful = np.array([first] + [_learnt(honest, dear, 0, 1)] * (tasks - 1))
            for memory in MEMORIES:
                rewards = _announced(honest, dear, memory, early=count, tasks=tasks, first=first)
                outcomes.setdefault((memory, group, factor, count), []).append(
                    _compare(honest, dear, count, truthful, rewards)
                )
    progress(repeats * len(settings), repeats * len(settings))
    return [
        RatchetRow(*setting, *(Mean.of(numbers) for numbers in zip(*each, strict=True)))
        for setting, each in sorted(outcomes.items())
    ]


def _announced(
    honest: _Play, dear: _Play, memory: str, *, early: int, tasks: int, first: float
) -> FloatArray:
    """Return the reward of each task."""
    while_dear = [_learnt(honest, dear, 1, 0)] * early
    after = range(1, tasks - early)
    if memory == LATEST:
        later = [_learnt(honest, dear, 0, 1)] * len(after)
    else:
        later = [_learnt(honest, dear, early, count) for count in after]
    return np.array([first, *while_dear, *later])


def _learnt(honest: _Play, dear: _Play, dear_tasks: int, honest_tasks: int) -> float:
    """Return the best reward for what so many tasks of either kind tell."""
    lows, highs = bounds_of(np.stack([dear.values, honest.values]))
    counts = np.repeat([dear_tasks, honest_tasks], len(honest.values))
    past = counts > 0
    estimate = estimate_values(
        lows.ravel()[past], highs.ravel()[past], owners=counts[past], highest=GUESS.high
    )
    return best_for(estimate, owners=len(honest.values))


def _compare(
    honest: _Play, dear: _Play, early: int, truthful: FloatArray, rewards: FloatArray
) -> tuple[float, float, float, float]:
    """Return the parts of the group's gain, their sum, and the buyer's loss."""
    per_unit = np.repeat([dear.utility, honest.utility], [early, len(rewards) - early])
    before = honest.utility * truthful.sum()
    acting = float(((per_unit - honest.utility) * truthful).sum() / before)
    ratchet = float((per_unit * (rewards - truthful)).sum() / before)
    buyer = honest.buyer_utility(truthful).sum() - (
        dear.buyer_utility(rewards[:early]).sum() + honest.buyer_utility(rewards[early:]).sum()
    )
    return acting, ratchet, acting + ratchet, float(buyer)
