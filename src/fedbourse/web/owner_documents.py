"""What the service answers about owners: what they said, their lines, rounds and receipts."""

from __future__ import annotations

from typing import Any, Literal

from fedbourse.market import drift
from fedbourse.market.task import ExitReason, LineState  # noqa: TC001 - pydantic reads them
from fedbourse.web.bodies import HASH, MS, SIGNATURE, TASK, Body, example

_SALT = "9f86d081884c7d659a2feaa0c55ad015"
_INTEREST: dict[str, Any] = {
    "task": TASK,
    "owner": "owner:ann",
    "value": None,
    "salt": _SALT,
    "leaf": HASH,
    "at_ms": MS,
    "zero_from": None,
}
_EXIT: dict[str, Any] = {
    "task": TASK,
    "owner": "owner:ann",
    "tick": 3,
    "reason": "left",
    "at_ms": MS,
}
_PLAN: dict[str, Any] = {
    "task": TASK,
    "owner": "owner:ann",
    "tick": 3,
    "budget": 0.0625,
    "salt": _SALT,
    "leaf": HASH,
    "at_ms": MS,
}
_LINE: dict[str, Any] = {
    "task": TASK,
    "owner": "owner:ann",
    "position": 0,
    "budget": 0.0625,
    "payment_micro": 416_667,
    "earned_micro": 4_166,
    "held_micro": 0,
    "salt": _SALT,
    "leaf": HASH,
    "state": "signed",
    "signature": SIGNATURE,
    "answered": 1,
}
_TERMS: dict[str, Any] = {
    "kind": "terms",
    "task": TASK,
    "card": HASH,
    "owner": "owner:ann",
    "tick": 3,
    "total_budget": 1.5,
    "budget": 0.0625,
    "noise_scale": 0.06,
    "clip": 1.0,
    "rounds": 100,
    "dimension": 116,
    "samples": 1000,
    "payment_micro": 416_667,
    "vesting": "by-round",
    "unearned": "fund",
    "previous": HASH,
}
_RECEIPT: dict[str, Any] = {
    "receipt": {
        "kind": "receipt",
        "task": TASK,
        "owner": "owner:ann",
        "round": 0,
        "answered": 1,
        "earned_micro": 4_166,
        "previous": HASH,
    },
    "market_signature": SIGNATURE,
}
_DRIFT: dict[str, Any] = {
    "owner": "owner:ann",
    "answers": 100,
    "squares": 11640.5,
    "squares_low": 10894.2,
    "squares_high": 16120.9,
    "agreement": 1.25,
    "repeats": 0,
    "refused": {"late": 1},
    "flags": [],
}


_OWNER: dict[str, Any] = {
    "owner": "owner:ann",
    "interest": _INTEREST,
    "replies": [_PLAN],
    "exit": None,
    "line": _LINE,
}


class InterestDocument(Body):
    """An owner's interest, as the market keeps it."""

    model_config = example(**_INTEREST)
    task: str
    owner: str
    value: float | None
    salt: str
    leaf: str
    """The salted hash, which the log vouches for."""
    at_ms: int
    zero_from: float | None
    """The smallest total to which the owner has replied zero: that holds at every larger one."""


class ExitDocument(Body):
    """How an owner got out of a task before training began."""

    model_config = example(**_EXIT)
    task: str
    owner: str
    tick: int
    """The tick at or after which it went."""
    reason: ExitReason
    """left: by its own wish; missed: a tick; declined: its terms; unsigned: not in time."""
    at_ms: int
    """The first time counts."""


class PlanDocument(Body):
    """An owner's reply to a tick, as the market keeps it."""

    model_config = example(**_PLAN)
    task: str
    owner: str
    tick: int
    budget: float | None
    """null once it was erased."""
    salt: str
    leaf: str
    at_ms: int


class LineDocument(Body):
    """An owner's line of the settlement."""

    model_config = example(**_LINE)
    task: str
    owner: str
    position: int
    budget: float | None
    payment_micro: int
    earned_micro: int
    held_micro: int
    """What is earned and held back."""
    salt: str
    leaf: str
    state: LineState
    signature: str | None
    answered: int


class TermsMessage(Body):
    """What both sides sign."""

    model_config = example(**_TERMS)
    kind: Literal["terms"]
    task: str
    card: str
    owner: str
    tick: int
    total_budget: float
    """P of the tick that the owner replied to with this budget."""
    budget: float
    noise_scale: float
    """There to be read: a device computes its own."""
    clip: float
    rounds: int
    dimension: int
    samples: int
    payment_micro: int
    vesting: str
    unearned: str
    """Where the pay of rounds goes that are not delivered."""
    previous: str
    """The hash of the owner's line."""


class OfferedTerms(Body):
    """Terms, their hash, and the market's signature of them."""

    model_config = example(terms=_TERMS, digest=HASH, market_signature=SIGNATURE)
    terms: TermsMessage
    digest: str
    market_signature: str


class ReceiptMessage(Body):
    """What an owner has earned so far."""

    model_config = example(**_RECEIPT["receipt"])
    kind: Literal["receipt"]
    task: str
    owner: str
    round: int
    answered: int
    earned_micro: int
    previous: str
    """The hash of the answer."""


class SignedReceipt(Body):
    """A receipt, and the market's signature of it."""

    model_config = example(**_RECEIPT)
    receipt: ReceiptMessage
    market_signature: str


class Mine(Body):
    """All that the market keeps of one owner in one task."""

    model_config = example(
        task=TASK,
        owner="owner:ann",
        interest=_INTEREST,
        plan=_PLAN,
        replies=[_PLAN],
        exit=None,
        line=_LINE,
        terms={"terms": _TERMS, "digest": HASH, "market_signature": SIGNATURE},
        receipt=_RECEIPT,
        sequence=8,
        signature=SIGNATURE,
    )
    task: str
    owner: str
    interest: InterestDocument | None
    plan: PlanDocument | None
    """The reply that counts: to the tick settled at, else the last one."""
    replies: list[PlanDocument]
    exit: ExitDocument | None
    """How the owner got out of the task; null where it did not."""
    line: LineDocument | None
    terms: OfferedTerms | None
    receipt: SignedReceipt | None
    sequence: int
    """The number of the last event in the task's log: all of this is as of then."""
    signature: str
    """The market's, of the message of kind participation: task, owner, sequence, the line's state,
    the terms' hash and the exit's reason; null for what is not there."""


class Proof(Body):
    """The path from an owner's line to the root in the log."""

    model_config = example(leaf=HASH, position=0, path=[HASH], root=HASH)
    leaf: str
    position: int
    path: list[str]
    """Neighbours on the way up; an empty one stands for none."""
    root: str


class OwnerRecords(Body):
    """What one owner said and was promised."""

    model_config = example(**_OWNER)
    owner: str
    interest: InterestDocument
    replies: list[PlanDocument]
    exit: ExitDocument | None
    line: LineDocument | None


class OwnerPage(Body):
    """Owners by name."""

    model_config = example(
        owners=[_OWNER],
        next=None,
    )
    owners: list[OwnerRecords]
    next: str | None
    """``after`` of the next page."""


class AnswerEntry(Body):
    """One owner's answer."""

    model_config = example(owner="owner:ann", hash="a" * 64)
    owner: str
    hash: str
    """The hash of the answer message, which its receipt refers to."""


class AnswerPage(Body):
    """The answers of a round, by the names of their owners."""

    model_config = example(answers=[{"owner": "owner:ann", "hash": "a" * 64}], next=None)
    answers: list[AnswerEntry]
    next: str | None
    """What ``after`` is for the next page; null on the last."""


class DeviceDrift(Body):
    """What an owner's answers say of its device, over the rounds that are closed."""

    model_config = example(**_DRIFT)
    owner: str
    answers: int
    squares: float
    """The sum of squared norms, in units of the noise's variance."""
    squares_low: float | None
    """Below this, answers are smaller than their noise; null once the budget was erased."""
    squares_high: float | None
    """Above this, they are larger than clip and noise allow."""
    agreement: float | None
    """How far they point where the others' do; below -4.75, they pull against them."""
    repeats: int
    """Answers with the same numbers as the one before."""
    refused: dict[str, int]
    """Rounds whose answer was refused, by reason; of several to a round the last."""
    flags: list[str]
    """What stands out, in words."""


class DriftPage(Body):
    """Devices by their owners' names."""

    model_config = example(task=TASK, devices=[_DRIFT], note=drift.NOTE, next=None)
    task: str
    devices: list[DeviceDrift]
    note: str
    """What these numbers cannot tell."""
    next: str | None
    """``after`` of the next page."""


class Erased(Body):
    """What was forgotten."""

    model_config = example(task=TASK, owner="owner:ann")
    task: str
    owner: str
