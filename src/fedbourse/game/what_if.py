"""What every reward would buy, by every accuracy model, from one look at the owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.accuracy import ACCURACY_MODELS, Accuracy, accuracy_named
from fedbourse.game.buyer import Buyer
from fedbourse.game.columns import positive
from fedbourse.game.costs import Cost, PrivacyCost, cost_named
from fedbourse.game.reward_concave import best_rewards
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedbourse.game.columns import FloatArray
    from fedbourse.game.training import Training


@dataclass(frozen=True, eq=False)
class WhatIf:
    """What each of some rewards would buy, by each accuracy model."""

    rewards: FloatArray
    owners: int
    """All of them."""
    participants: int
    """How many take part, at every one of the rewards."""
    total_budgets: FloatArray
    accuracy: dict[str, FloatArray]
    """By the name of the model, one for each reward."""
    utility: dict[str, FloatArray]
    """The buyer's: weight * accuracy - reward."""
    best: dict[str, tuple[float, float]]
    """By the name of the model: the best of all rewards, and the utility there."""


def what_if(
    values: object,
    training: Training,
    *,
    rewards: object,
    weight: float,
    accuracy: Iterable[str | Accuracy] = ACCURACY_MODELS,
    cost: str | PrivacyCost | Cost = "linear",
) -> WhatIf:
    """Return what each of the rewards would buy.

    ``values`` are whatever ``equilibrium`` takes: a column, a stream, a ``Support``. They are
    looked at once, for with a linear or a quadratic cost all budgets grow with a power of the
    reward. Other costs need ``best_reward`` and ``equilibrium``, reward by reward.

    >>> from fedbourse import Training
    >>> training = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
    >>> found = what_if([1, 2, 3], training, rewards=[0.5, 1, 2], weight=20)
    >>> found.participants, found.accuracy["precision"].round(3).tolist()
    (2, [0.972, 0.985, 0.993])
    """
    known = cost_named(cost)
    if known.degree is None:
        raise InvalidGame(
            "what_if needs a linear or a quadratic cost, where one look serves every reward; "
            f"found {known.name}"
        )
    amounts = positive("rewards", rewards)
    worth = number("weight", weight, above=0)
    models = [accuracy_named(model) for model in accuracy]
    buyers = [Buyer(training, worth, model, known, 0.0, None, "budget") for model in models]
    if not buyers:
        raise InvalidGame("accuracy must name at least one model; found none")
    unit = buyers[0].equilibrium(values, 1.0)
    precisions, weights = buyers[0].precisions(unit)
    scales = amounts ** (1.0 / known.degree)
    count = np.array([unit.count])
    found: dict[str, FloatArray] = {}
    best: dict[str, tuple[float, float]] = {}
    for buyer in buyers:
        model = buyer.accuracy
        found[model.model] = np.array(
            [model.of(precisions * scale, unit.owners, weights) for scale in scales]
        )
        (reward,), _ = best_rewards(
            precisions[None, :],
            count,
            weights=weights,
            owners=unit.owners,
            accuracy=model,
            weight=worth,
            degree=known.degree,
        )
        paid = precisions * reward ** (1.0 / known.degree) if reward else precisions[:0]
        best[model.model] = float(reward), buyer.utility(paid, weights, unit.owners, float(reward))
    return WhatIf(
        rewards=amounts,
        owners=unit.owners,
        participants=unit.count,
        total_budgets=unit.total_budget * scales,
        accuracy=found,
        utility={name: worth * accuracies - amounts for name, accuracies in found.items()},
        best=best,
    )
