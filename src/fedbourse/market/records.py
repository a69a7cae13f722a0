"""A task and all that belongs to it, as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from fedbourse.encoding.documents import shown_as
from fedbourse.units import MicroCredits, micro_credits

if TYPE_CHECKING:
    from fedbourse.tasks.card import TaskCard


_NOTHING = MicroCredits(0)


class State(StrEnum):
    """Where a task stands; ``market.lifecycle`` says what leads from one to the next."""

    DRAFT = "draft"
    OPEN = "open"
    ANNOUNCED = "announced"
    SETTLED = "settled"
    TRAINING = "training"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Task:
    """A task as it stands now."""

    id: str
    """Rises with time, so that lists have an order."""
    buyer: str
    card: TaskCard
    state: State
    created_ms: int
    deadline_ms: int | None = None
    """When the state ends by itself."""
    interested: int = 0
    """How many owners the offer went to; 0 before it."""
    reward: MicroCredits | None = None
    """R, from the announcement on."""
    tick: int = 0
    tick_ends_ms: int | None = None
    total_budget: float | None = None
    """P, as announced at this tick."""
    totals: tuple[float, ...] = ()
    """P of every tick so far."""
    first_tick: int = 0
    """The first tick of this run of discovery: another one begins whenever somebody is out."""
    asked: int = 0
    """How many devices this tick waits for: a zero stands for every larger total."""
    settled_tick: int | None = None
    """The tick whose replies are the plans; None before the settlement."""
    offer: str = ""
    """The hash of the last offer, which replies refer to."""
    review_ends_ms: int | None = None
    """When training starts, once everybody has signed: until then the buyer may look and cancel."""
    reference_ends_ms: int | None = None
    """Until when the next round waits for the buyer's reference gradient; None where none does."""
    round: int = 0
    """The open round while training, or the one that waits to open, counting from 0."""
    void_block: int | None = None
    """The last block of rounds whose evidence was void before it ended."""
    last_sequence: int = -1
    last_hash: str = ""
    """The end of the event log: what the next event follows."""
    state_signature: str = ""
    """The market's, of the task as it stood after that event (``protocol.messages``)."""


@dataclass(frozen=True)
class Interest:
    """An owner likes a card, and may say what privacy is worth to it."""

    task: str
    owner: str
    value: float | None
    """nu; null where it is withheld, or was erased."""
    salt: str
    leaf: str
    """The salted hash of the message, which the log vouches for."""
    at_ms: int
    zero_from: float | None = None
    """The smallest total to which the owner has replied zero: that holds at every larger one."""


@dataclass(frozen=True)
class TickReply:
    """The budget that an owner would sell at the total announced at a tick.

    It is final when the tick closes. The replies to the tick that a task settles at are its plans.
    """

    task: str
    tick: int
    owner: str
    budget: float | None
    """rho, 0 or more; null once it was erased."""
    salt: str
    leaf: str
    at_ms: int


ExitReason = Literal["left", "missed", "declined", "unsigned"]


@dataclass(frozen=True)
class Exit:
    """An owner is out of a task before training began, for good; no reply of it counts any more."""

    task: str
    owner: str
    tick: int
    """The tick at or after which it went."""
    reason: ExitReason
    """left: by its own wish; missed: a tick; declined: its terms; unsigned: not in time."""
    at_ms: int
    """The first time counts."""


AllocationState = Literal["offered", "signed", "declined", "dismissed"]
"""dismissed: signed, and asked no more, because its updates do not agree with the reference."""
TRAINED: tuple[AllocationState, ...] = ("signed", "dismissed")
"""The states of those who signed."""


@dataclass(frozen=True)
class Allocation:
    """One owner's part of the settlement: what it sells, what it is paid, and how far it is."""

    task: str
    owner: str
    position: int
    """Its place among the leaves of the settlement: those with pay, by their names."""
    budget: float | None
    """rho; null once it was erased."""
    payment: MicroCredits = field(metadata=shown_as("payment_micro"))
    """p_i, of which the owner earns a part with each delivered round."""
    salt: str
    leaf: str
    state: AllocationState = "offered"
    signature: str | None = None
    """The device's signature of its terms."""
    delivered: int = 0
    """Rounds delivered so far."""
    earned: MicroCredits = field(default=_NOTHING, metadata=shown_as("earned_micro"))
    """Earned so far: of the payment, and of others' rounds where the card shares them."""
    held: MicroCredits = field(default=_NOTHING, metadata=shown_as("held_micro"))
    """The part of it that is not paid yet, because the card has evidence."""

    @property
    def trained(self) -> bool:
        """Whether its terms were signed, dismissed or not."""
        return self.state in TRAINED


@dataclass(frozen=True)
class Round:
    """One round of training: the model that was asked about, and what became of it."""

    task: str
    number: int
    model: bytes
    """The parameters, as little-endian doubles; dropped once the round is closed."""
    model_hash: str
    """SHA-256 of ``model``."""
    request_hash: str
    """The hash of the round request, which updates refer to."""
    previous: str
    """The hash of the message before: the request before, the event that began training, or
    the event that opened the round."""
    opened_ms: int
    deadline_ms: int
    """Of updates; before the round opens, of the buyer's reference gradient."""
    closed_ms: int | None = None
    updates: int = 0
    """How many came in time; known once the round is closed."""
    signature: str = ""
    """The market's, of the round request, made once when the round opened; a round that waits to
    open, and the last model, which nothing is asked about, have none."""


@dataclass(frozen=True)
class Update:
    """What a device sent in a round."""

    task: str
    round: int
    owner: str
    vector: bytes | None
    """Little-endian doubles or floats; dropped once the round is closed."""
    hash: str
    """The hash of the update message, which its receipt refers to."""
    receipt: str
    """The signed receipt, as JSON."""
    at_ms: int


RefusedFor = Literal["late", "length", "not finite", "norm", "differs"]
"""Why an update was refused: it came after its round, or cannot be one, or a second one."""


@dataclass(frozen=True)
class RefusedUpdate:
    """An update that earned nothing; of several to one round, the last."""

    task: str
    round: int
    owner: str
    reason: RefusedFor
    at_ms: int


@dataclass(frozen=True)
class DeviceStatistics:
    """The sums of an owner's updates over the rounds that are closed (``market.monitoring``)."""

    task: str
    owner: str
    updates: int = 0
    squares: float = 0.0
    """Squared norms, in units of the noise: of |y|^2 / sigma^2."""
    compared: int = 0
    """Rounds in which others sent updates too."""
    agreement: float = 0.0
    """How far updates point where the others' mean points: of <y, u> / (sigma |u|)."""
    repeats: int = 0
    """Updates that were the same numbers as the one before."""
    last_vector: str = ""
    """The hash of the last update's numbers."""


@dataclass(frozen=True)
class DeviceEvidence:
    """What an owner's updates have shown in a block of rounds (``market.evidence``)."""

    task: str
    block: int
    owner: str
    document: str
    """The sums, as JSON (``learning.evidence``)."""
    dismissed_round: int | None = None
    """The round in which they fell to the bound."""


@dataclass(frozen=True)
class TaskVersion:
    """How far a task is: what those wait for who wait for something new."""

    state: State
    events: int
    round: int


def version_of(task: Task) -> TaskVersion:
    """Return how far a task is."""
    return TaskVersion(task.state, task.last_sequence + 1, task.round)


def promised_micro(card: TaskCard) -> int | None:
    """Return the reward that a card promises; None where it is still to be computed."""
    return None if isinstance(card.reward, str) else micro_credits(f"{card.reward:.6f}")


TaskOrder = Literal["newest", "reward", "deadline"]
"""In which order tasks are listed; what has no reward or deadline comes last."""


@dataclass(frozen=True)
class ClosedRound:
    """A round that is over, and how many updates it had."""

    number: int
    updates: int


@dataclass(frozen=True)
class Entry:
    """A transfer as the books hold it."""

    sequence: int
    id: str
    debit: str
    credit: str
    amount: MicroCredits
    memo: str
    at_ms: int


@dataclass(frozen=True)
class Response:
    """The response to a write, stored so that a repeated request gets the same one."""

    fingerprint: str
    """The hash of the request."""
    status: int
    body: str
