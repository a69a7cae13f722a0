"""What other rewards would buy, for a buyer who has not settled yet.

The answer rests on values that owners told the market, and must not tell the buyer a single one.
So it takes five of them who take part, new ones count five at a time, and numbers are rounded: one
more value never shows for itself. That is a rule of thumb and no differential privacy: whoever has
devices of its own among the five knows more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import Conflict, InvalidInput
from fedbourse.game import ACCURACY_MODELS, Stream
from fedbourse.game import what_if as game_what_if
from fedbourse.market.offers import accuracy_of, assumed_values, told_in, training_of
from fedbourse.market.service import show
from fedbourse.market.task import State
from fedbourse.units import REWARD_MAX, REWARD_MIN, number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedbourse.game import WhatIf
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.task import Task

REWARDS_MAX = 200
GROUP = 5
"""Fewer owners than this are never shown for themselves."""
_DIGITS = 3
_ACCURACY_DECIMALS = 4
_STATES = (State.DRAFT, State.OPEN, State.ANNOUNCED)


def rewards_in(text: str) -> list[float]:
    """Read rewards that are separated by commas.

    >>> rewards_in("1,2.5")
    [1.0, 2.5]
    """
    parts = text.split(",")
    if len(parts) > REWARDS_MAX:
        raise InvalidInput(f"rewards must be at most {REWARDS_MAX} numbers; found {len(parts)}")
    try:
        amounts = [float(part) for part in parts]
    except ValueError:
        raise InvalidInput(
            f"rewards must be numbers separated by commas, such as 1,2,5; found {text!r:.60}"
        ) from None
    return [
        number("rewards", amount, at_least=REWARD_MIN, at_most=REWARD_MAX) for amount in amounts
    ]


def of_task(
    unit: Unit, caller: Caller, task_id: str, *, rewards: Sequence[float], owners: int | None = None
) -> dict[str, Any]:
    """Return what rewards would buy: for the task's buyer, auditors and the operator.

    ``owners`` asks for as many with values as the card assumes them, whatever owners told.
    """
    task = show(unit.task(task_id), caller)
    if caller.party != task.buyer:
        caller.require("auditor", "operator")
    if task.state not in _STATES:
        raise Conflict(
            f"a what-if needs a task that is draft, open or announced; it is {task.state.value}"
        )
    if task.card.assumptions is None:
        raise InvalidInput(
            "the card states no assumptions; a what-if needs them, for what accuracy is worth"
        )
    interested, told = unit.count_interests(task.id), unit.count_reported(task.id)
    if owners is None and told >= GROUP:
        used = told - told % GROUP
        found = _bought(task, _first_told(unit, task, used), rewards)
        if found.participants >= GROUP:
            why = f"the values that {used} of {interested} owners told"
            return _document(task, "reported", why, found, round_off=True)
        reason = f"of {used} owners who told theirs fewer than {GROUP} would take part"
    elif owners is None:
        reason = f"{told} of {interested} told theirs, {GROUP} are needed"
    else:
        reason = "as asked for"
    count = owners or max(interested, task.card.min_participants)
    said = task.card.assumptions
    why = (
        f"{count} owners with values spread evenly over {said.values_low:g} to "
        f"{said.values_high:g}: {reason}"
    )
    found = _bought(task, assumed_values(task.card, count), rewards)
    return _document(task, "assumed", why, found, round_off=False)


def _first_told(unit: Unit, task: Task, count: int) -> Stream:
    """Return the values that were told first, in the order of owners."""
    last = unit.report_number(task.id, count)

    def read() -> Iterator[tuple[tuple[Any, ...], ...]]:
        for values, owners, moments in unit.columns(
            "interests", task.id, "value", "owner", "at_ms"
        ):
            came = zip(values, moments, owners, strict=True)
            yield (tuple(v if (at, who) <= last else None for v, at, who in came),)

    return told_in(read)


def _bought(task: Task, values: Stream, rewards: Sequence[float]) -> WhatIf:
    models = [accuracy_of(task.card, name) for name in ACCURACY_MODELS]
    return game_what_if(
        values,
        training_of(task.card),
        rewards=np.array(rewards),
        weight=task.card.assumed.weight,
        accuracy=models,
    )


def _document(
    task: Task, basis: str, why: str, found: WhatIf, *, round_off: bool
) -> dict[str, Any]:
    weight = task.card.assumed.weight
    per_credit = float(found.total_budgets[0] / found.rewards[0])
    if round_off:
        per_credit = _rounded(per_credit)
    models = []
    for name, accuracies in found.accuracy.items():
        reward, utility = found.best[name]
        accuracy, best_accuracy = accuracies, (utility + reward) / weight
        if round_off:  # utilities as well: they tell the accuracy
            reward = _rounded(reward)
            accuracy = accuracies.round(_ACCURACY_DECIMALS)
            best_accuracy = round(best_accuracy, _ACCURACY_DECIMALS)
        models.append(
            {
                "model": name,
                "accuracy": accuracy.tolist(),
                "utility": (weight * accuracy - found.rewards).tolist(),
                "best_reward": reward,
                "best_utility": weight * best_accuracy - reward,
            }
        )
    return {
        "task": task.id,
        "basis": basis,
        "why": why,
        "owners": found.owners,
        "participants": found.participants,
        "rewards": found.rewards.tolist(),
        "total_budgets": (per_credit * found.rewards).tolist(),
        "models": models,
    }


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
