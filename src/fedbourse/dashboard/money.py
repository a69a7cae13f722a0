"""Where a task's money is: with its buyer, in escrow, or with owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import FedbourseError
from fedbourse.market.accounts import visible_escrow
from fedbourse.market.lifecycle import ENDED

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.task import Task

_BEFORE_TRAINING = 400
"""More events than can come before training: a task has at most 200 ticks."""


@dataclass(frozen=True)
class TaskMoney:
    """Micro-credits; what was held is in escrow, paid to owners, or back with the buyer."""

    held: int
    escrow: int
    returned: int

    @property
    def paid(self) -> int:
        """What owners have been paid: the buyer's spend."""
        return self.held - self.escrow - self.returned

    @property
    def share_left(self) -> float:
        """The part of what was held that is still in escrow."""
        return self.escrow / self.held if self.held else 0.0


def money_of(unit: Unit, caller: Caller, task: Task) -> TaskMoney:
    """Return where a task's money is, without a look at each owner's pay.

    It is for those who may see the escrow's balance, and to its buyer that of the last closed
    round.
    """
    left = int(visible_escrow(unit, caller, task))
    if task.reward is None:
        return TaskMoney(0, 0, 0)
    returned = 0
    for event in unit.events(task.id, limit=_BEFORE_TRAINING):
        if event.kind == "training":
            returned += event.body["declined_micro"]
            break
    if task.state in ENDED:
        for event in unit.events(task.id, after=task.last_sequence - 1, limit=1):
            returned += event.body["refunded_micro"]
    return TaskMoney(int(task.reward), left, returned)


def money_for(unit: Unit, caller: Caller | None, task: Task) -> TaskMoney | None:
    """Return where the money is to those who may see the escrow's balance; else None."""
    if caller is None:
        return None
    try:
        return money_of(unit, caller, task)
    except FedbourseError:
        return None
