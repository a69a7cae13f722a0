"""Where a task's money is: with its buyer, in escrow, with owners, or in the fund.

A transfer out of escrow tells an owner's pay, and so its budget. So does the balance, to one who
looks before and after an answer, or who subtracts a round that one owner missed from one that it
did not. While a task trains, its buyer is shown what follows from the number of closed rounds
alone; what owners did not earn is told once, as a total, when the task has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import NotAllowed
from fedbourse.market.accounts import may_see
from fedbourse.market.service import escrow, show
from fedbourse.market.task import State
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.task import Task


@dataclass(frozen=True)
class TaskMoney:
    """Micro-credits; what is held is in escrow, with owners, in the fund, or with the buyer."""

    held: int
    """The reward; before it is announced, what was reserved when the task opened."""
    escrow: int
    """What is in escrow; to the buyer of a task in training, the pay of rounds to come."""
    released: int = 0
    """What was reserved beyond the reward, and came back when it was announced."""
    refunded: int = 0
    """What came back at the end."""
    fund: int = 0
    exact: bool = True
    """Whether escrow is what the account holds; else it follows from the rounds alone."""

    @property
    def paid(self) -> int:
        """What owners have been paid; to the buyer of a task in training, the most it can be."""
        return self.held - self.escrow - self.refunded - self.fund

    @property
    def returned(self) -> int:
        """All that came back to the buyer."""
        return self.released + self.refunded

    @property
    def share_left(self) -> float:
        """The part of what was held that is still in escrow."""
        return self.escrow / self.held if self.held else 0.0

    @property
    def document(self) -> dict[str, int]:
        """The amounts by their names."""
        return {
            "held": self.held,
            "released": self.released,
            "refunded": self.refunded,
            "fund": self.fund,
            "earned": self.paid,
            "escrow": self.escrow,
        }


_MOVES = {"escrow": "held", "released": "released", "refund": "refunded", "fund": "fund"}
"""What transfers of escrow are for, by the end of their id; all others pay owners."""


def money_of(unit: Unit, caller: Caller, tasks: Sequence[Task]) -> list[TaskMoney]:
    """Return where the money of tasks is, to somebody who may see the escrow of each."""
    for task in tasks:
        _may_see_escrow(caller, task)
    moved = unit.moved([f"{task.id}/{end}" for task in tasks for end in _MOVES])
    held = unit.balances_of([escrow(task.id) for task in tasks])
    found = []
    for task in tasks:
        money = {name: int(moved.get(f"{task.id}/{end}", 0)) for end, name in _MOVES.items()}
        money["held"] -= money["released"]
        left = _shown(caller, task, held.get(escrow(task.id), MicroCredits(0)))
        found.append(TaskMoney(**money, escrow=int(left), exact=not _by_rule(caller, task)))
    return found


def money_for(unit: Unit, caller: Caller | None, task: Task) -> TaskMoney | None:
    """Return where the money is to those who may see its escrow; else None."""
    if caller is None:
        return None
    try:
        return money_of(unit, caller, [task])[0]
    except NotAllowed:
        return None


def visible_escrow(unit: Unit, caller: Caller, task: Task) -> MicroCredits:
    """Return what is in a task's escrow; to its buyer, in training, the pay of rounds to come."""
    _may_see_escrow(caller, task)
    return _shown(caller, task, unit.balance(escrow(task.id)))


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
