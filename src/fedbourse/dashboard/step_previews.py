"""What a step of a task would do: found by taking it in a transaction that is undone.

So the page and the step cannot disagree, but where exact numbers would tell a buyer something about
a single owner: those are left out, or computed from what the buyer sees anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from fedbourse.dashboard.forms import Form
from fedbourse.errors import FedbourseError, NotAllowed
from fedbourse.market import buying, training
from fedbourse.market.accounts import visible_escrow
from fedbourse.market.lifecycle import Command
from fedbourse.market.service import FUND, escrow, role_of, show
from fedbourse.market.task import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.dashboard.visits import KnownPageVisit
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task

_REASON_MAX = 400


class Confirm(Form):
    """That a step was looked at, and is wanted."""

    shown_micro: Annotated[int, Field(ge=0)]
    """What the page said would leave the account."""
    reason: Annotated[str, Field(max_length=_REASON_MAX)] = ""
    confirm_upfront: bool = False
    """That all of the reward is paid before round 0, whoever then delivers."""


_TRIED = Confirm(shown_micro=0, confirm_upfront=True)
"""What a step is tried out with."""


@dataclass(frozen=True)
class Step:
    """Something that a buyer does to a task."""

    command: Command
    label: str
    confirm: str
    take: Callable[[Market, Unit, Caller, str, Confirm], Task]


STEPS: dict[str, Step] = {
    "open": Step(
        Command.OPEN,
        "Publish it",
        "Reserve the reward and publish the task",
        lambda market, unit, caller, task, form: buying.open_task(
            market, unit, caller, task, confirm_upfront=form.confirm_upfront
        ),
    ),
    "announce": Step(
        Command.ANNOUNCE,
        "Announce the reward",
        "Announce the reward",
        lambda market, unit, caller, task, _form: buying.announce(market, unit, caller, task),
    ),
    "train": Step(
        Command.TRAIN,
        "Start training",
        "Start training",
        lambda market, unit, caller, task, _form: training.start(market, unit, caller, task),
    ),
    "cancel": Step(
        Command.CANCEL,
        "Cancel the task",
        "Cancel the task",
        lambda market, unit, caller, task, form: buying.cancel(
            market, unit, caller, task, reason=form.reason
        ),
    ),
}


@dataclass(frozen=True)
class Move:
    """Money on its way."""

    source: str
    target: str
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
    """What the log would say of it, of which nothing may tell a single owner's value or pay."""
    sealed: bool = False
    """Whether what it moves is not shown, because it follows from values that owners told."""

    @property
    def taken(self) -> int:
        """What would leave the buyer's account."""
        return max(0, self.balance - self.balance_after)


class _UndoneError(Exception):
    """Ends a transaction that only tried something out."""


def preview(visit: KnownPageVisit, task_id: str, step: str) -> tuple[Task, Preview]:
    """Take a step, look at what it did, and undo it."""
    market, caller = visit.market, visit.caller
    seen = Preview()
    with visit.service.store.begin() as unit:
        task = show(unit.task(task_id, lock="change"), caller)
        role_of(caller, task)
        before = _Balances.of(unit, task)
        shown_escrow = int(visible_escrow(unit, caller, task))
        try:
            with unit.savepoint():
                STEPS[step].take(market, unit, caller, task.id, _TRIED)
                seen = _difference(unit, task, before)
                raise _UndoneError
        except _UndoneError:
            pass
        except NotAllowed:
            raise
        except FedbourseError as error:
            if error.http_status >= 500:
                raise
            seen = before.unchanged(escrow=shown_escrow, refusal=str(error))
    if not seen.refusal and not caller.scopes & {"operator", "auditor"}:
        seen = _without_owners(task, step, seen, before, shown_escrow)
    return task, seen


@dataclass(frozen=True)
class _Balances:
    """What the accounts around a task hold."""

    account: int
    escrow: int
    fund: int

    @classmethod
    def of(cls, unit: Unit, task: Task) -> _Balances:
        accounts = (task.buyer, escrow(task.id), FUND)
        return cls(*(int(unit.balance(account)) for account in accounts))

    def unchanged(self, *, escrow: int, **items: Any) -> Preview:
        """Return the preview of a step that moves nothing, or does not show what it moves."""
        return Preview(
            balance=self.account,
            balance_after=self.account,
            escrow=escrow,
            escrow_after=escrow,
            **items,
        )


def _difference(unit: Unit, task: Task, before: _Balances) -> Preview:
    """Return what a step that was just taken has moved."""
    after_it = _Balances.of(unit, task)
    taken = before.account - after_it.account
    to_fund = after_it.fund - before.fund
    facts: dict[str, Any] = {}
    for event in unit.events(task.id, after=task.last_sequence, limit=10):
        facts |= event.body
    return Preview(
        moves=_moves(
            taken=taken,
            owners=taken + before.escrow - after_it.escrow - to_fund,
            fund=to_fund,
        ),
        balance=before.account,
        balance_after=after_it.account,
        escrow=before.escrow,
        escrow_after=after_it.escrow,
        facts=facts,
    )


def _moves(*, taken: int, owners: int = 0, fund: int = 0) -> tuple[Move, ...]:
    """Return the moves that are there, given what leaves the account (or comes back to it)."""
    moves = (
        Move("account", "escrow", taken),
        Move("escrow", "owners", owners),
        Move("escrow", "fund", fund),
        Move("escrow", "account", -taken),
    )
    return tuple(move for move in moves if move.micro > 0)


def _without_owners(
    task: Task, step: str, seen: Preview, before: _Balances, shown_escrow: int
) -> Preview:
    """Return a preview that tells a buyer nothing new about any single owner.

    Looked at before and after an owner acts, exact numbers would tell that owner's value or pay:
    the first total, a reward that follows from told values, and what an answer earns in the round
    that is open.
    """
    if step == "announce":
        offer = {name: seen.facts["offer"][name] for name in ("interested", "reward_micro")}
        if task.card.reward == "best-reported":
            facts = {"offer": {"interested": offer["interested"]}}
            return before.unchanged(escrow=shown_escrow, facts=facts, sealed=True)
        return replace(seen, facts={"offer": offer})
    if step == "cancel" and task.state is State.TRAINING:
        return _cancelled_training(task, before, shown_escrow)
    return seen


def _cancelled_training(task: Task, before: _Balances, shown_escrow: int) -> Preview:
    """Return what cancelling brings back, from what the buyer sees: up to a rounding."""
    reward = int(task.reward or 0)
    absent = 0
    if task.card.vesting == "by-round":
        due = reward * task.round // task.card.rounds
        absent = min(shown_escrow, max(0, due - (reward - shown_escrow)))
    unearned = task.card.unearned
    back = shown_escrow - (0 if unearned == "refund" else absent)
    return Preview(
        moves=_moves(
            taken=-back,
            owners=absent if unearned == "share" else 0,
            fund=absent if unearned == "fund" else 0,
        ),
        balance=before.account,
        balance_after=before.account + back,
        escrow=shown_escrow,
    )
