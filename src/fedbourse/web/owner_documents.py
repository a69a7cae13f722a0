"""What the service answers about owners: what they said, their lines, rounds and receipts."""

from __future__ import annotations

from typing import Any, Literal

from fedbourse.market import drift
from fedbourse.market.task import LineState  # noqa: TC001 - pydantic reads them
from fedbourse.web.bodies import HASH, MS, SIGNATURE, TASK, Body, example

_SALT = "9f86d081884c7d659a2feaa0c55ad015"
_INTEREST: dict[str, Any] = {
    "task": TASK,
    "owner": "owner:ann",
    "value": None,
    "salt": _SALT,
    "leaf": HASH,
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
    "budget": 0.0625,
    "noise_scale": 0.06,
    "clip": 1.0,
    "rounds": 100,
    "dimension": 116,
    "samples": 1000,
    "payment_micro": 416_667,
    "payout": "vested",
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


class PlanDocument(Body):
    """An owner's plan, as the market keeps it."""

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
    budget: float
    noise_scale: float
    """There to be read: a device computes its own."""
    clip: float
    rounds: int
    dimension: int
    samples: int
    payment_micro: int
    payout: str
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
        withdrawn_ms=None,
        line=_LINE,
        terms={"terms": _TERMS, "digest": HASH, "market_signature": SIGNATURE},
        receipt=_RECEIPT,
    )
    task: str
    owner: str
    interest: InterestDocument | None
    plan: PlanDocument | None
    withdrawn_ms: int | None
    """When the owner withdrew from the task; null where it has not."""
    line: LineDocument | None
    terms: OfferedTerms | None
    receipt: SignedReceipt | None


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

    model_config = example(owner="owner:ann", interest=_INTEREST, plan=_PLAN, line=_LINE)
    owner: str
    interest: InterestDocument
    plan: PlanDocument | None
    line: LineDocument | None


class OwnerPage(Body):
    """Owners by name."""

    model_config = example(
        owners=[{"owner": "owner:ann", "interest": _INTEREST, "plan": _PLAN, "line": _LINE}],
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


class AnswerList(Body):
    """The answers of a round, by the names of their owners."""

    model_config = example(answers=[{"owner": "owner:ann", "hash": "a" * 64}])
    answers: list[AnswerEntry]


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


class WithdrawalDocument(Body):
    """That an owner has withdrawn from a task."""

    model_config = example(task=TASK, owner="owner:ann", at_ms=MS)
    task: str
    owner: str
    at_ms: int
    """The first time counts."""


class Erased(Body):
    """What was forgotten."""

    model_config = example(task=TASK, owner="owner:ann")
    task: str
    owner: str
