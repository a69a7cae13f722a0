"""Where a task's money is: with its buyer, in escrow, with owners, or in the fund.

A transfer out of escrow tells an owner's pay, and so its budget. So does the balance, to one who
looks before and after an update, or who subtracts a round that one owner missed from one that it
did not. While a task trains, its buyer is shown what follows from the number of closed rounds
alone; what owners did not earn is told once, as a total, when the task has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedbourse.encoding.documents import NOT_SHOWN
from fedbourse.errors import NotAllowed
from fedbourse.market.commands.accounts import may_see
from fedbourse.market.commands.buyer import TASKS_MAX
from fedbourse.market.lifecycle import ACTIVE
from fedbourse.market.records import State
from fedbourse.market.service import escrow, show
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Task


@dataclass(frozen=True)
class TaskMoney:
    """Where the reward is, in micro-credits: in escrow, with owners, in the fund, or refunded."""

    held: int
    """The reward; before it is announced, what was reserved when the task opened."""
    released: int
    """What was reserved beyond the reward, and went back when it was announced."""
    refunded: int
    """What went back to the buyer at the end."""
    fund: int
    """Pay that nobody earned: of rounds that were not delivered, or that evidence decided on."""
    earned: int
    """What owners were paid; to the buyer of a task in training, the most it can be."""
    escrow: int
    """What is still held; to the buyer of a task in training, the pay of rounds to come."""
    exact: bool = field(metadata=NOT_SHOWN)
    """Whether escrow is what the account holds; else it follows from the rounds alone."""

    @property
    def returned(self) -> int:
        """All that came back to the buyer."""
        return self.released + self.refunded

    @property
    def share_left(self) -> float:
        """The part of what was held that is still in escrow."""
        return self.escrow / self.held if self.held else 0.0


_MOVES = {"escrow": "held", "released": "released", "refund": "refunded", "fund": "fund"}
"""What transfers of escrow are for, by the end of their id; all others pay owners."""


def money_of(tx: Transaction, caller: Caller, tasks: Sequence[Task]) -> list[TaskMoney]:
    """Return where the money of tasks is, to somebody who may see the escrow of each."""
    for task in tasks:
        _may_see_escrow(caller, task)
    moved = tx.moved([f"{task.id}/{end}" for task in tasks for end in _MOVES])
    held = tx.balances_of([escrow(task.id) for task in tasks])
    money_of_tasks = []
    for task in tasks:
        money = {name: int(moved.get(f"{task.id}/{end}", 0)) for end, name in _MOVES.items()}
        money["held"] -= money["released"]
        left = int(_shown(caller, task, held.get(escrow(task.id), MicroCredits(0))))
        earned = money["held"] - left - money["refunded"] - money["fund"]
        exact = not _by_rule(caller, task)
        money_of_tasks.append(TaskMoney(**money, earned=earned, escrow=left, exact=exact))
    return money_of_tasks


def money_of_buyer(tx: Transaction, caller: Caller) -> TaskMoney:
    """Return where the money of all of a buyer's tasks is, as that buyer may see it."""
    moved = tx.moved_for(caller.party, _MOVES)
    money = {name: int(moved[end]) for end, name in _MOVES.items()}
    money["held"] -= money["released"]
    still = [state for state in ACTIVE if state is not State.TRAINING]  # others hold nothing
    left = tx.held_for(caller.party, still)
    training = tx.tasks(states=[State.TRAINING], buyer=caller.party, limit=TASKS_MAX)
    in_training = money_of(tx, caller, training)
    escrowed = left + sum(each.escrow for each in in_training)
    return TaskMoney(
        **money,
        earned=money["held"] - escrowed - money["refunded"] - money["fund"],
        escrow=escrowed,
        exact=all(each.exact for each in in_training),
    )


def money_for(tx: Transaction, caller: Caller | None, task: Task) -> TaskMoney | None:
    """Return where the money is to those who may see its escrow; else None."""
    if caller is None:
        return None
    try:
        return money_of(tx, caller, [task])[0]
    except NotAllowed:
        return None


def visible_escrow(tx: Transaction, caller: Caller, task: Task) -> MicroCredits:
    """Return what is in a task's escrow; to its buyer, in training, the pay of rounds to come."""
    _may_see_escrow(caller, task)
    return _shown(caller, task, tx.balance(escrow(task.id)))


def _may_see_escrow(caller: Caller, task: Task) -> None:
    if show(task, caller).buyer != caller.party:
        may_see(caller, escrow(task.id))


def _shown(caller: Caller, task: Task, held: MicroCredits) -> MicroCredits:
    return pay_to_come(task) if _by_rule(caller, task) else held


def _by_rule(caller: Caller, task: Task) -> bool:
    return task.state is State.TRAINING and not caller.scopes & {"operator", "auditor"}


def pay_to_come(task: Task) -> MicroCredits:
    """Return the pay of the rounds that are not closed, of a task in training."""
    if task.card.vesting == "upfront":
        return MicroCredits(0)
    reward = int(task.reward or 0)
    return MicroCredits(reward - reward * task.round // task.card.rounds)
