"""What a step of a buyer's would do, found by reading alone: a look at it holds up nobody.

A preview tells a buyer nothing about a single owner. It follows from the card, from how many owners
there are, and from money as the buyer sees it anyway: looked at before and after an owner acts,
exact numbers would tell that owner's value or pay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedbourse.errors import Conflict, InvalidGame, InvalidTransfer
from fedbourse.market.commands.buyer import check_reference, checked_reserve
from fedbourse.market.commands.training import check_signatures
from fedbourse.market.lifecycle import Command, after
from fedbourse.market.offers import choose_reward
from fedbourse.market.records import State
from fedbourse.market.service import enough, role_of
from fedbourse.market.task_money import pay_to_come, visible_escrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Task


@dataclass(frozen=True)
class Move:
    """Money on its way."""

    debit: str
    credit: str
    micro: int


@dataclass(frozen=True)
class Preview:
    """What a step would do."""

    refusal: str = ""
    """Why it cannot be taken now; empty where it can."""
    moves: tuple[Move, ...] = ()
    balance: int = 0
    balance_after: int = 0
    escrow: int = 0
    escrow_after: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    """What the log would say of it."""
    sealed: bool = False
    """Whether what it moves is not shown, because it follows from values that owners told."""

    @property
    def spent(self) -> int:
        """What would leave the buyer's account."""
        return max(0, self.balance - self.balance_after)


@dataclass(frozen=True)
class _Effect:
    """What a step moves, and says."""

    spent: int = 0
    """What leaves the buyer's account; below 0 what comes back to it."""
    owners: int = 0
    fund: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    sealed: bool = False


def preview(tx: Transaction, caller: Caller, task: Task, command: Command) -> Preview:
    """Return what a step of somebody who may take it would do, or why it cannot be taken now."""
    role = role_of(caller, task)
    balance, held = int(tx.balance(task.buyer)), int(visible_escrow(tx, caller, task))
    try:
        after(task.state, command, by=role)
        effect = _EFFECTS[command](tx, task, held)
    except (Conflict, InvalidGame, InvalidTransfer) as error:
        return Preview(str(error), (), balance, balance, held, held)
    return _shown(effect, balance, held)


def _shown(effect: _Effect, balance: int, held: int) -> Preview:
    moves = (
        Move("account", "escrow", effect.spent),
        Move("escrow", "owners", effect.owners),
        Move("escrow", "fund", effect.fund),
        Move("escrow", "account", -effect.spent),
    )
    return Preview(
        moves=tuple(move for move in moves if move.micro > 0),
        balance=balance,
        balance_after=balance - effect.spent,
        escrow=held,
        escrow_after=held + effect.spent - effect.owners - effect.fund,
        facts=effect.facts,
        sealed=effect.sealed,
    )


def _opening(tx: Transaction, task: Task, held: int) -> _Effect:
    check_reference(tx, task)
    reserve = checked_reserve(tx, task)
    return _Effect(spent=reserve, facts={"reserved_micro": reserve})


def _announcing(tx: Transaction, task: Task, held: int) -> _Effect:
    interested = tx.count_interests(task.id)
    enough(task, interested, "are interested")
    if task.card.reward == "best-reported":
        return _Effect(facts={"offer": {"interested": interested}}, sealed=True)
    reward, _ = choose_reward(task.card, interested=interested)
    facts = {"offer": {"interested": interested, "reward_micro": int(reward)}}
    return _Effect(spent=int(reward) - held, facts=facts)


def _training(tx: Transaction, task: Task, held: int) -> _Effect:
    signed = check_signatures(tx, task)
    upfront = held if task.card.vesting == "upfront" else 0
    return _Effect(owners=upfront, facts={"signed": signed})


def _cancelling(tx: Transaction, task: Task, held: int) -> _Effect:
    """Return what cancelling brings back, up to a rounding.

    A buyer does not see what owners did not earn of closed rounds: where that comes back as well,
    this is the least.
    """
    training = task.state is State.TRAINING
    absent = max(0, held - int(pay_to_come(task))) if training else 0
    if task.card.unearned == "refund":
        absent = 0
    return _Effect(
        spent=absent - held,
        owners=absent if task.card.unearned == "share" else 0,
        fund=absent if task.card.unearned == "fund" else 0,
    )


_EFFECTS: dict[Command, Callable[[Transaction, Task, int], _Effect]] = {
    Command.OPEN: _opening,
    Command.ANNOUNCE: _announcing,
    Command.TRAIN: _training,
    Command.CANCEL: _cancelling,
}
