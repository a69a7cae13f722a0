"""What every command of the market shares: key, clock, salts, the log, and money for a task.

The commands themselves are functions in ``commands`` and ``price_discovery``. Each takes the
market, a transaction and the caller, checks them against the table of ``lifecycle``, and leaves an
event in the task's log.
"""

from __future__ import annotations

import math
import secrets
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Conflict, NotAllowed, NotFound
from fedbourse.ledger import Transfer
from fedbourse.market import log
from fedbourse.market.lifecycle import Command, Role, after
from fedbourse.market.parties import MARKET
from fedbourse.market.records import State
from fedbourse.protocol.messages import task_state_message
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Task
    from fedbourse.protocol.keys import SigningKey
    from fedbourse.protocol.messages import Message


T = TypeVar("T")
FUND = "fund"
"""The account of unearned pay. No token or device can stand for it: it is not a party's name."""


@dataclass(frozen=True)
class Fund:
    """Where the pay goes of rounds that were not delivered. No request takes money out of it."""

    account: str
    pays_to: str
    """Whom it is paid out to, in the operator's words."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _salt() -> str:
    return secrets.token_hex(16)


def _nobody(*_: object) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class PayoutLimits:
    """What the operator allows each account to withdraw; by default any amount, at any time."""

    min_micro: int = 1
    """The smallest withdrawal."""
    per_day: int = sys.maxsize
    """How many withdrawals within any 24 hours."""


@dataclass(frozen=True)
class Market:
    """One market: its key, its clock and its source of salts."""

    key: SigningKey
    now_ms: Callable[[], int] = field(default=_now_ms)
    salt: Callable[[], str] = field(default=_salt)
    fund_pays_to: str = "nobody yet: it stays in the account"
    """Whom the fund of unearned pay is paid out to, as the operator publishes it."""
    payout_limits: PayoutLimits = field(default_factory=PayoutLimits)
    """What the operator allows each account to withdraw."""
    on_due: Callable[[str], None] = field(default=_nobody)
    """Hears of each task that a command may have made due, once that is on disk."""
    on_event: Callable[[], None] = field(default=_nobody)
    """Hears that a task's log has grown, once that is on disk."""

    def moment_in(self, seconds: float) -> int:
        """Return the moment this many seconds from now."""
        return self.now_ms() + math.ceil(seconds * 1000)

    def record(self, tx: Transaction, task: Task, kind: str, body: dict[str, Any]) -> Task:
        """Append an event to the task's log, and store and sign the task as it stands with it."""
        event = log.next_event(
            task.id,
            kind,
            body | {"state": task.state.value},
            at_ms=self.now_ms(),
            after=(task.last_sequence, task.last_hash),
        )
        tx.append_event(event)
        task = replace(task, last_sequence=event.sequence, last_hash=event.hash)
        task = replace(task, state_signature=self.key.sign(canonical(state_message(task))))
        tx.save_task(task)
        tx.after_commit(self.on_event)
        return task

    def may_be_due(self, tx: Transaction, task: Task) -> None:
        """Let the scheduler look at a task as soon as this transaction has ended."""
        tx.after_commit(partial(self.on_due, task.id))

    def pay(self, tx: Transaction, id: str, route: tuple[str, str], amount: int, memo: str) -> bool:
        """Move money once, from one account to another; False where that was done before."""
        transfer = Transfer(id, *route, MicroCredits(amount), memo)
        return tx.post([transfer], at_ms=self.now_ms()) > 0

    @property
    def fund(self) -> dict[str, str]:
        """Where unearned pay goes: the account, and whom it is paid out to."""
        return asdict(Fund(FUND, self.fund_pays_to))


def state_message(task: Task) -> Message:
    """Return what the market says of how a task stands: all that devices act on."""
    return task_state_message(
        task=task.id,
        card=task.card.digest,
        state=task.state.value,
        sequence=task.last_sequence,
        last_hash=task.last_hash,
        tick=task.tick,
        total_budget=task.total_budget,
        reward_micro=task.reward,
        offer=task.offer or None,
    )


def escrow(task_id: str) -> str:
    """Return the name of a task's escrow account."""
    return f"escrow:{task_id}"


def enough(task: Task, count: int, what: str) -> None:
    """Refuse to go on with fewer owners than the card wants."""
    needed = task.card.min_participants
    if count < needed:
        raise Conflict(f"the card needs {needed} participants, and {count} {what}")


def present(value: T | None) -> T:
    """Return what a task in this state always has."""
    assert value is not None
    return value


def taken(tx: Transaction, caller: Caller, task_id: str, command: Command) -> Task:
    """Return a task for a change of state that the caller may make, in its next state.

    Nobody else can change the task before the transaction ends.
    """
    task = tx.task(task_id, lock="change")
    show(task, caller)
    return replace(task, state=after(task.state, command, by=role_of(caller, task)))


def taken_by_owner(
    market: Market, tx: Transaction, caller: Caller, task_id: str, command: Command
) -> Task:
    """Return a task that an owner's device may do this to; other owners may do so meanwhile."""
    caller.require("owner")
    if caller.device is None:
        raise NotAllowed(f"{command.value} needs a request that is signed by the owner's device")
    task = tx.task(task_id, lock="share")
    show(task, caller)
    after(task.state, command, by="owner")
    if task.deadline_ms is not None and market.now_ms() >= task.deadline_ms:
        raise Conflict(f"the deadline for {command.value} has passed")
    return task


def role_of(caller: Caller, task: Task) -> Role:
    """Return what a caller is to a task."""
    if caller is MARKET:
        return "market"
    if "buyer" in caller.scopes and caller.party == task.buyer:
        return "buyer"
    if "operator" in caller.scopes:
        return "operator"
    if "owner" in caller.scopes:
        return "owner"
    raise NotAllowed(f"task {task.id} belongs to another buyer; the caller is {caller.party}")


def show(task: Task, caller: Caller | None) -> Task:
    """Return a task, but one never opened only to its buyer, the operator, auditors, the market."""
    if (
        not was_opened(task)
        and caller is not MARKET
        and (
            caller is None
            or (caller.party != task.buyer and not caller.scopes & {"operator", "auditor"})
        )
    ):
        raise NotFound(f"there is no task {task.id!r}")
    return task


def was_opened(task: Task) -> bool:
    """Say whether a task was ever published: a draft that was cancelled was not."""
    cancelled_draft = task.state is State.CANCELLED and task.last_sequence < 2
    return task.state is not State.DRAFT and not cancelled_draft


def follows(previous: str, hash: str, what: str) -> None:
    """Refuse a message that does not hold the hash of the one before."""
    if previous != hash:
        raise Conflict(f"the {what} has the hash {hash}; the message follows {previous!r:.80}")
