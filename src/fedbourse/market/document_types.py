"""The documents that the market responds with, other than its own records.

The API describes them as they stand here (``web.shapes``), with what is said under each item. An
``Annotated[Message, Shape]`` is a plain document already, because it was signed or logged as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - read by web.shapes, as all of these
from dataclasses import dataclass
from typing import Annotated, Any

from fedbourse.market.commands.payouts import Payout, PayoutState  # noqa: TC001
from fedbourse.market.log import Event  # noqa: TC001
from fedbourse.market.log_summary import OutCounts, Settlement
from fedbourse.market.parties import Scope, Token  # noqa: TC001
from fedbourse.market.records import Allocation, Entry, Exit, Interest, State, TickReply  # noqa: TC001
from fedbourse.market.service import Fund
from fedbourse.market.task_money import TaskMoney  # noqa: TC001
from fedbourse.protocol.messages import Message, ReceiptMessage, TermsMessage
from fedbourse.tasks.card import TaskCard

# Tasks


@dataclass(frozen=True)
class TaskDocument:
    """What everybody may see of a task, but its card."""

    task: str
    state: State
    buyer: str
    card: str
    """The card's hash."""
    goal: str
    data: str
    created_ms: int
    deadline_ms: int | None
    """When the state ends by itself."""
    reward_micro: int | None
    """R, from the announcement on."""
    interested: int | None
    tick: int
    tick_ends_ms: int | None
    total_budget: float | None
    """P, as announced at this tick."""
    settled_tick: int | None
    """The tick whose replies are the plans."""
    review_ends_ms: int | None
    """When training starts, once everybody has signed: until then the buyer may cancel."""
    reference_ends_ms: int | None
    """Until when the next round waits for the buyer's reference gradient."""
    offer: str | None
    """The hash of the last offer, which plans refer to."""
    round: int
    rounds: int
    events: int
    last_hash: str
    """The end of the event log."""
    state_signature: str
    """The market's, of the message of kind task-state: task, card, state, sequence (events - 1),
    last_hash, tick, total_budget, reward_micro and offer. It is made once, with the last event."""


@dataclass(frozen=True)
class TaskPage:
    """Tasks, newest first."""

    tasks: Sequence[TaskDocument]
    next: str | None
    """``before`` of the next page."""


@dataclass(frozen=True)
class PublishedCard:
    """A card, its hash, and the fund that its unearned pay may go to."""

    card: Annotated[Message, TaskCard]
    digest: str
    fund: Annotated[Mapping[str, str], Fund]
    """As it was pinned in the log when the task opened; of a draft, as it is now."""


@dataclass(frozen=True)
class EventPage:
    """Events in order."""

    events: Sequence[Event]
    next: int | None
    """``after`` of the next page."""


@dataclass(frozen=True)
class Participants:
    """How many allocations are in each state."""

    offered: int
    signed: int
    declined: int
    dismissed: int
    """They signed, and are asked no more."""


@dataclass(frozen=True)
class TaskReport(TaskDocument):
    """The totals of a task."""

    card_document: Annotated[Message, TaskCard]
    participants: Participants
    settlement: Settlement | None
    out: Annotated[Mapping[str, int], OutCounts]
    restarts: int
    """How often the price was discovered again without owners who were struck out."""
    money_micro: TaskMoney
    refused_updates: Mapping[str, int]
    """How many updates earned nothing, by reason."""
    rounds_closed: Sequence[Mapping[str, Any]]
    """The bodies of the log's events of rounds."""


# Owners


@dataclass(frozen=True)
class OfferedTerms:
    """Terms, their hash, and the market's signature of them."""

    terms: Annotated[Message, TermsMessage]
    digest: str
    market_signature: str


@dataclass(frozen=True)
class SignedReceipt:
    """A receipt, and the market's signature of it."""

    receipt: Annotated[Message, ReceiptMessage]
    market_signature: str


@dataclass(frozen=True)
class OwnerRecords:
    """What one owner said and was promised."""

    owner: str
    interest: Interest
    replies: Sequence[TickReply]
    exit: Exit | None
    allocation: Allocation | None


@dataclass(frozen=True)
class OwnerPage:
    """Owners by name."""

    owners: Sequence[OwnerRecords]
    next: str | None
    """``after`` of the next page."""


@dataclass(frozen=True)
class Participation:
    """All that the market keeps of one owner in one task."""

    task: str
    owner: str
    interest: Interest | None
    plan: TickReply | None
    """The reply that counts: to the tick settled at, else the last one."""
    replies: Sequence[TickReply]
    exit: Exit | None
    """How the owner got out of the task; null where it did not."""
    allocation: Allocation | None
    terms: OfferedTerms | None
    receipt: Annotated[Message, SignedReceipt] | None
    sequence: int
    """The number of the last event in the task's log: all of this is as of then."""
    signature: str
    """The market's, of the message of kind participation: task, owner, sequence, the allocation's
    state, the terms' hash and the exit's reason, null for what is not there, earned_micro and
    held_micro."""


@dataclass(frozen=True)
class Proof:
    """The path from an owner's allocation to the root in the log."""

    leaf: str
    position: int
    path: Sequence[str]
    """Neighbours on the way up; an empty one stands for none."""
    root: str


@dataclass(frozen=True)
class UpdateEntry:
    """One owner's update."""

    owner: str
    hash: str
    """The hash of the update message, which its receipt refers to."""


@dataclass(frozen=True)
class UpdatePage:
    """The updates of a round, by the names of their owners."""

    updates: Sequence[UpdateEntry]
    next: str | None
    """What ``after`` is for the next page; null on the last."""


@dataclass(frozen=True)
class Erased:
    """What was forgotten."""

    task: str
    owner: str


# Money


@dataclass(frozen=True)
class Balance:
    """What an account holds."""

    party: str
    balance_micro: int


@dataclass(frozen=True)
class AccountDocument(Balance):
    """What an account holds, and what is on its way out of it."""

    leaving_micro: int
    """Its pay-outs that are neither confirmed nor returned; the balance is without them."""


@dataclass(frozen=True)
class BalancePage:
    """Accounts by name."""

    accounts: Sequence[Balance]
    next: str | None
    """``after`` of the next page."""


@dataclass(frozen=True)
class EntryPage:
    """Transfers in the order of posting."""

    entries: Sequence[Entry]
    next: int | None
    """``after`` of the next page."""


@dataclass(frozen=True)
class WithdrawalDone:
    """A pay-out that was requested."""

    id: str
    party: str
    amount_micro: int
    destination: str
    state: PayoutState
    balance_micro: int


@dataclass(frozen=True)
class PayoutPage:
    """Pay-outs, in the order that the route says."""

    payouts: Sequence[Payout]
    next: str | None
    """``after`` or ``before`` of the next page."""


@dataclass(frozen=True)
class FundFacts(Fund):
    """The fund, and what it holds."""

    balance_micro: int


# Who is let in


@dataclass(frozen=True)
class TokenMade:
    """A token; it is shown this once."""

    id: str
    party: str
    scopes: frozenset[Scope]
    expires_ms: int | None
    token: str = ""
    """The secret itself, of which the market keeps a hash alone."""


@dataclass(frozen=True)
class TokenPage:
    """Tokens by id."""

    tokens: Sequence[Token]
    next: str | None
    """``after`` of the next page."""


@dataclass(frozen=True)
class TokenEnded:
    """A token that is accepted no longer."""

    id: str
    revoked_ms: int


@dataclass(frozen=True)
class EnrolmentTokenMade:
    """A one-time token; it is shown this once."""

    id: str
    owner: str
    expires_ms: int
    token: str = ""
    """The secret itself, of which the market keeps a hash alone."""


@dataclass(frozen=True)
class Enrolled:
    """A device that was taken in."""

    device: str
    owner: str
    market_public_key: str
    """The key that the market signs terms and receipts with; pin it."""
    signature: str
    """The proof that the market holds this key: its signature of the message of kind enrolment,
    with device, owner and the host that the request was sent to."""
