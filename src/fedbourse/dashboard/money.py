"""Where a task's money is: with its buyer, in escrow, with owners, or in the fund."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import FedbourseError
from fedbourse.market.accounts import visible_escrow
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.log_summary import summary

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.task import Task

_FIRST_EVENTS = 3
"""created, opened and announced: all that says what was reserved and released."""


@dataclass(frozen=True)
class TaskMoney:
    """Micro-credits; what is held is in escrow, with owners, in the fund, or with the buyer."""

    held: int
    """The reward; before it is announced, what was reserved when the task opened."""
    escrow: int
    released: int = 0
    """What was reserved beyond the reward, and came back when it was announced."""
    refunded: int = 0
    """What came back at the end."""
    fund: int = 0

    @property
    def paid(self) -> int:
        """What owners have been paid."""
        return self.held - self.escrow - self.refunded - self.fund

    @property
    def returned(self) -> int:
        """All that came back to the buyer."""
        return self.released + self.refunded

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
    events = unit.events(task.id, limit=_FIRST_EVENTS)
    if task.state in ENDED and task.last_sequence >= _FIRST_EVENTS:
        events += unit.events(task.id, after=task.last_sequence - 1, limit=1)
    log = summary((event.kind, event.at_ms, event.body) for event in events)
    return TaskMoney(
        held=log.reserved_micro - log.released_micro,
        escrow=left,
        released=log.released_micro,
        refunded=log.refunded_micro,
        fund=log.fund_micro,
    )


def money_for(unit: Unit, caller: Caller | None, task: Task) -> TaskMoney | None:
    """Return where the money is to those who may see the escrow's balance; else None."""
    if caller is None:
        return None
    try:
        return money_of(unit, caller, task)
    except FedbourseError:
        return None
