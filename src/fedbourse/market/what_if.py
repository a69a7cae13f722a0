"""What other rewards would buy, for a buyer who has not settled yet.

The result rests on values that owners reported, and must not tell the buyer a single one.
So it takes five of them who take part, new ones count five at a time, and numbers are rounded: one
more value never shows for itself. That is a rule of thumb and no differential privacy: whoever has
devices of its own among the five knows more.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - read by web.shapes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedbourse.errors import Conflict, InvalidInput
from fedbourse.game import ACCURACY_MODELS, Stream
from fedbourse.game import what_if as game_what_if
from fedbourse.market.offers import accuracy_of, assumed_values, training_of, value_stream
from fedbourse.market.records import State
from fedbourse.market.service import show
from fedbourse.units import REWARD_MAX, REWARD_MIN, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.game import WhatIf
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Task

REWARDS_MAX = 200
GROUP = 5
"""Fewer owners than this are never shown for themselves."""
_DIGITS = 3
_ACCURACY_DECIMALS = 4
_STATES = (State.DRAFT, State.OPEN, State.ANNOUNCED)
Basis = Literal["reported", "assumed"]


@dataclass(frozen=True)
class ModelWhatIf:
    """What rewards would buy, by one accuracy model."""

    model: str
    accuracy: Sequence[float]
    """One for each reward."""
    utility: Sequence[float]
    """The buyer's, in credits: accuracy value times accuracy, less the reward."""
    best_reward: float
    """The best of all rewards, in credits; 0 where none pays."""
    best_utility: float


@dataclass(frozen=True)
class WhatIfDocument:
    """What rewards would buy. A number that rests on owners' values is shown rounded."""

    task: str
    basis: Basis
    why: str
    """Whose values it rests on, and why."""
    owners: int
    participants: int
    """How many owners would take part, at every reward."""
    rewards: Sequence[float]
    """In credits."""
    total_budgets: Sequence[float]
    """P, one for each reward."""
    models: Sequence[ModelWhatIf]


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
    tx: Transaction,
    caller: Caller,
    task_id: str,
    *,
    rewards: Sequence[float],
    owners: int | None = None,
) -> WhatIfDocument:
    """Return what rewards would buy: for the task's buyer, auditors and the operator.

    ``owners`` asks for as many with values as the card assumes them, whatever owners told.
    """
    task = show(tx.task(task_id), caller)
    if caller.party != task.buyer:
        caller.require("auditor", "operator")
    if task.state not in _STATES:
        raise Conflict(
            f"a what-if needs a task that is draft, open or announced; it is {task.state.value}"
        )
    if task.card.sells_lots:
        raise InvalidInput(
            "a what-if is about pay in proportion to budgets; the card sells equal lots by the "
            "clock, which fedbourse lab compares with other mechanisms"
        )
    if task.card.assumptions is None:
        raise InvalidInput(
            "the card states no assumptions; a what-if needs them, for what accuracy is worth"
        )
    interested, reports = tx.count_interests(task.id), tx.count_reported(task.id)
    if owners is None and reports >= GROUP:
        used = reports - reports % GROUP
        result = _bought(task, _first_reported(tx, task, used), rewards)
        if result.participants >= GROUP:
            why = f"the values that {used} of {interested} owners told"
            return _document(task, "reported", why, result, round_off=True)
        reason = f"of {used} owners who told theirs fewer than {GROUP} would take part"
    elif owners is None:
        reason = f"{reports} of {interested} told theirs, {GROUP} are needed"
    else:
        reason = "as asked for"
    count = owners or max(interested, task.card.min_participants)
    assumptions = task.card.assumptions
    why = f"{count} owners with values {assumptions.values_text}: {reason}"
    result = _bought(task, assumed_values(task.card, count), rewards)
    return _document(task, "assumed", why, result, round_off=False)


def _first_reported(tx: Transaction, task: Task, count: int) -> Stream:
    """Return the values that were told first, in the order of owners."""
    last = tx.report_number(task.id, count)

    def read() -> Iterator[tuple[tuple[Any, ...], ...]]:
        for values, owners, moments in tx.columns("interests", task.id, "value", "owner", "at_ms"):
            rows = zip(values, moments, owners, strict=True)
            yield (tuple(v if (at, who) <= last else None for v, at, who in rows),)

    return value_stream(read)


def _bought(task: Task, values: Stream, rewards: Sequence[float]) -> WhatIf:
    models = [accuracy_of(task.card, name) for name in ACCURACY_MODELS]
    return game_what_if(
        values,
        training_of(task.card),
        rewards=np.array(rewards),
        accuracy_value=task.card.assumed.accuracy_value,
        accuracy=models,
    )


def _document(
    task: Task, basis: Basis, why: str, result: WhatIf, *, round_off: bool
) -> WhatIfDocument:
    accuracy_value = task.card.assumed.accuracy_value
    per_credit = float(result.total_budgets[0] / result.rewards[0])
    if round_off:
        per_credit = _rounded(per_credit)
    models = []
    for name, accuracies in result.accuracy.items():
        reward, utility = result.best[name]
        accuracy, best_accuracy = accuracies, (utility + reward) / accuracy_value
        if round_off:  # utilities as well: they tell the accuracy
            reward = _rounded(reward)
            accuracy = accuracies.round(_ACCURACY_DECIMALS)
            best_accuracy = round(best_accuracy, _ACCURACY_DECIMALS)
        models.append(
            ModelWhatIf(
                model=name,
                accuracy=accuracy.tolist(),
                utility=(accuracy_value * accuracy - result.rewards).tolist(),
                best_reward=reward,
                best_utility=accuracy_value * best_accuracy - reward,
            )
        )
    return WhatIfDocument(
        task=task.id,
        basis=basis,
        why=why,
        owners=result.owners,
        participants=result.participants,
        rewards=result.rewards.tolist(),
        total_budgets=(per_credit * result.rewards).tolist(),
        models=models,
    )


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
