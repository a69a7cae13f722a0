"""What every reward would buy, by every accuracy model, from one look at the owners."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedbourse.errors import InvalidGame, InvalidInput
from fedbourse.game.accuracy import ACCURACY_MODELS, AnyAccuracy, accuracy_named
from fedbourse.game.buyer import Buyer
from fedbourse.game.column_files import loaded
from fedbourse.game.columns import FloatArray, positive
from fedbourse.game.costs import Cost, PrivacyCost, cost_named
from fedbourse.game.presentation import Chart, Columns, Line, Presentable
from fedbourse.game.reward.best import best_scaled_reward, best_searched_reward
from fedbourse.game.training import Training
from fedbourse.units import number


@dataclass(frozen=True, eq=False, repr=False)
class WhatIf(Presentable):
    """What each of some rewards would buy, by each accuracy model."""

    rewards: FloatArray
    owners: int
    """All of them."""
    participants: int
    """How many take part, at each of the rewards."""
    total_budgets: FloatArray
    accuracy: dict[str, FloatArray]
    """By the name of the model, one for each reward."""
    utility: dict[str, FloatArray]
    """The buyer's: accuracy value * accuracy - reward."""
    best: dict[str, tuple[float, float]]
    """By the name of the model: the best of all rewards, and the utility there."""

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = {"owners": self.owners, "participants": self.participants}
        for name, (reward, utility) in self.best.items():
            facts |= {f"best_reward_{name}": reward, f"best_utility_{name}": utility}
        return facts

    def _rows(self) -> Columns:
        rows = {"reward": self.rewards, "total_budget": self.total_budgets}
        for name in self.accuracy:
            rows |= {f"accuracy_{name}": self.accuracy[name], f"utility_{name}": self.utility[name]}
        return rows

    def _chart(self) -> Chart:
        order = np.argsort(self.rewards)
        lines = [Line(m, self.rewards[order], each[order]) for m, each in self.utility.items()]
        return Chart(
            title=f"{self.participants} of {self.owners} owners take part at every reward",
            x_label="reward",
            y_label="the buyer's utility",
            lines=tuple(lines),
        )


def what_if(
    values: object,
    training: Training,
    *,
    rewards: object,
    accuracy_value: float,
    accuracy: Iterable[AnyAccuracy] = ACCURACY_MODELS,
    cost: str | PrivacyCost | Cost = "linear",
) -> WhatIf:
    """Return what each of the rewards would buy.

    ``values`` are whatever ``equilibrium`` takes: a column, a stream, a ``ParticipantSketch``. They
    are read once, for with a linear or a quadratic cost all budgets grow with a power of the
    reward. Other costs need ``best_reward`` and ``equilibrium``, reward by reward.

    >>> from fedbourse import Training
    >>> training = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
    >>> table = what_if([1, 2, 3], training, rewards=[0.5, 1, 2], accuracy_value=20)
    >>> table.participants, table.accuracy["precision"].round(3).tolist()
    (2, [0.972, 0.985, 0.993])
    """
    family = cost_named(cost)
    if family.degree is None:
        raise InvalidGame(
            "what_if needs a linear or a quadratic cost, where one reading serves every reward; "
            f"found {family.name}"
        )
    amounts = positive("rewards", loaded("rewards", rewards, "reward"))
    worth = number("accuracy_value", accuracy_value, above=0)
    models = [accuracy_named(model) for model in accuracy]
    buyers = [Buyer(training, worth, model, family, 0.0, None, "budget") for model in models]
    if not buyers:
        raise InvalidGame("accuracy must name at least one model; found none")
    unit = buyers[0].equilibrium(values, 1.0)
    scales = amounts ** (1.0 / family.degree)
    accuracies: dict[str, FloatArray] = {}
    best: dict[str, tuple[float, float]] = {}
    for buyer in buyers:
        model = buyer.accuracy
        if model.model in accuracies:
            raise InvalidInput(f"accuracy names the model {model.model!r} twice; give each once")
        precisions, multiplicities = buyer.precisions(unit)
        accuracies[model.model] = np.array(
            [model.of(precisions * scale, unit.owners, multiplicities) for scale in scales]
        )
        if buyer.formula is None:
            reward = best_searched_reward(buyer, unit, precisions, multiplicities)
        else:
            reward, _ = best_scaled_reward(buyer, unit, precisions, multiplicities)
        scaled = precisions * reward ** (1.0 / family.degree) if reward else precisions[:0]
        best[model.model] = reward, buyer.utility(scaled, multiplicities, unit.owners, reward)
    return WhatIf(
        rewards=amounts,
        owners=unit.owners,
        participants=unit.count,
        total_budgets=unit.total_budget * scales,
        accuracy=accuracies,
        utility={name: worth * each - amounts for name, each in accuracies.items()},
        best=best,
    )
