"""The messages of a trade, each holding the hash of the one before.

card, interest, offer, plan, terms, round request, update, receipt: plain documents, so that each
side can write down what the other must have hashed and signed.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.errors import InvalidInput
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from fedbourse.tasks.card import TaskCard

Message = dict[str, Any]


def enrolment_message(*, device: str, owner: str, host: str) -> Message:
    """The market has taken a device in, under the name by which the device reached it."""
    return {"kind": "enrolment", "device": device, "owner": owner, "host": host}


def market_message(*, host: str, challenge: str) -> Message:
    """The market that is reached by this name responds to somebody's challenge."""
    return {"kind": "market", "host": host, "challenge": challenge}


@dataclass(frozen=True)
class LogHead:
    """Where a log ended at a moment."""

    kind: Literal["log head"]
    of: str
    """A task's id; or market, for the list of all tasks that were opened."""
    length: int
    """How many events, or opened tasks."""
    hash: str
    """The hash of the last of them; empty where there is none."""
    at_ms: int


def log_head_message(*, of: str, length: int, hash: str, at_ms: int) -> Message:
    """The market's log, or a task's, has so many links at this moment, the last with this hash."""
    return asdict(LogHead("log head", of=of, length=length, hash=hash, at_ms=at_ms))


def rotation_message(*, old: str, new: str, at_ms: int) -> Message:
    """The market signs with another key from this moment on; both keys sign this."""
    return {"kind": "key-rotation", "old": old, "new": new, "at_ms": at_ms}


def task_state_message(
    *,
    task: str,
    card: str,
    state: str,
    sequence: int,
    last_hash: str,
    tick: int,
    total_budget: float | None,
    reward_micro: int | None,
    offer: str | None,
) -> Message:
    """The market says how a task stands after the event with this number and hash in its log.

    It signs this once for everybody, with each event. R, P and the hash of the offer are null
    before they are announced.
    """
    return {
        "kind": "task-state",
        "task": task,
        "card": card,
        "state": state,
        "sequence": sequence,
        "last_hash": last_hash,
        "tick": tick,
        "total_budget": total_budget,
        "reward_micro": reward_micro,
        "offer": offer,
    }


def participation_message(
    *,
    task: str,
    owner: str,
    sequence: int,
    allocation: str | None,
    terms: str | None,
    exit: str | None,
    earned_micro: int,
    held_micro: int,
) -> Message:
    """The market says what an owner is to a task, as of this event of its log.

    ``allocation`` is its state, ``terms`` the hash of its terms, ``exit`` why the owner is out of
    the task; each is null where there is none. Of what it has earned, some may be held.
    """
    return {
        "kind": "participation",
        "task": task,
        "owner": owner,
        "sequence": sequence,
        "allocation": allocation,
        "terms": terms,
        "exit": exit,
        "earned_micro": earned_micro,
        "held_micro": held_micro,
    }


def interest_message(*, task: str, owner: str, value: float | None, card: str) -> Message:
    """An owner likes the card with this hash; it reports its value, or None."""
    return {"kind": "interest", "task": task, "owner": owner, "value": value, "previous": card}


def offer_message(
    *,
    task: str,
    reward_micro: int,
    method: str,
    interested: int,
    tick: int,
    total_budget: float,
    tick_ends_ms: int,
    plans_end_ms: int,
    previous: str,
) -> Message:
    """The market announces R and P; ``previous`` is the offer before, or the card."""
    return {
        "kind": "offer",
        "task": task,
        "reward_micro": reward_micro,
        "method": method,
        "interested": interested,
        "tick": tick,
        "total_budget": total_budget,
        "tick_ends_ms": tick_ends_ms,
        "plans_end_ms": plans_end_ms,
        "previous": previous,
    }


def plan_message(*, task: str, owner: str, tick: int, budget: float, offer: str) -> Message:
    """An owner replies to the offer with this hash with a budget."""
    return {
        "kind": "plan",
        "task": task,
        "owner": owner,
        "tick": tick,
        "budget": budget,
        "previous": offer,
    }


def allocation_document(*, owner: str, budget: float, payment_micro: int) -> Message:
    """One allocation of a settlement, as its salted hash covers it."""
    return {"owner": owner, "budget": budget, "payment_micro": payment_micro}


@dataclass(frozen=True)
class TermsMessage:
    """What both sides sign."""

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
    hold_rounds: int
    """For how many rounds pay is held at most, until evidence is decided on; 0 for none."""
    previous: str
    """The hash of the owner's allocation."""


def terms_message(
    card: TaskCard,
    *,
    task: str,
    owner: str,
    tick: int,
    total_budget: float,
    budget: float,
    payment_micro: int,
    allocation: str,
) -> Message:
    """What both sides sign; ``allocation`` is the hash of the owner's allocation."""
    message = TermsMessage(
        "terms",
        task=task,
        card=card.digest,
        owner=owner,
        tick=tick,
        total_budget=total_budget,
        budget=budget,
        noise_scale=card.privacy_terms(task=task, budget=budget).scale,
        clip=card.clip,
        rounds=card.rounds,
        dimension=card.dimension,
        samples=card.samples,
        payment_micro=payment_micro,
        vesting=card.vesting,
        unearned=card.unearned,
        hold_rounds=card.evidence.block_rounds(card.rounds) if card.evidence else 0,
        previous=allocation,
    )
    return asdict(message)


def round_request_message(
    *, task: str, card: str, round: int, model_hash: str, deadline_ms: int, previous: str
) -> Message:
    """The market asks about a model; ``previous`` is the request before, or the log's last event.

    The market signs it once for everybody, when the round opens.
    """
    return {
        "kind": "round-request",
        "task": task,
        "card": card,
        "round": round,
        "model_hash": model_hash,
        "deadline_ms": deadline_ms,
        "previous": previous,
    }


def update_message(*, task: str, round: int, owner: str, vector_hash: str, request: str) -> Message:
    """A device responds to the round request with this hash."""
    return {
        "kind": "update",
        "task": task,
        "round": round,
        "owner": owner,
        "vector_hash": vector_hash,
        "previous": request,
    }


@dataclass(frozen=True)
class ReceiptMessage:
    """What an owner has earned so far."""

    kind: Literal["receipt"]
    task: str
    owner: str
    round: int
    delivered: int
    earned_micro: int
    held_micro: int
    """The part of it that is not paid yet, because the card has evidence."""
    previous: str
    """The hash of the update."""


def receipt_message(
    *,
    task: str,
    owner: str,
    round: int,
    delivered: int,
    earned_micro: int,
    held_micro: int,
    update: str,
) -> Message:
    """The market confirms an update, and what its owner has earned so far."""
    return asdict(
        ReceiptMessage(
            "receipt",
            task=task,
            owner=owner,
            round=round,
            delivered=delivered,
            earned_micro=earned_micro,
            held_micro=held_micro,
            previous=update,
        )
    )


PRICE_SLACK = Fraction(1, 10**6)
"""How far below the price that a device replied to its pay may lie, as a part of it."""


def min_pay(*, budget: float, total_budget: float, reward_micro: int) -> MicroCredits:
    """Return the least pay that a device signs for: its budget at the price it replied to, R/P.

    >>> min_pay(budget=0.5, total_budget=2.0, reward_micro=1_000_000)
    249999
    """
    exact = Fraction(budget) * reward_micro / Fraction(total_budget)
    return MicroCredits(math.floor((1 - PRICE_SLACK) * exact))


def earned(payment: int, *, delivered: int, rounds: int) -> MicroCredits:
    """Return what an owner has earned after some delivered rounds: floor(p k / T).

    Since zCDP adds, pay and privacy loss keep the agreed ratio all along.

    >>> earned(100, delivered=1, rounds=3)
    33
    """
    if not 0 <= delivered <= rounds:
        raise InvalidInput(f"delivered must lie between 0 and {rounds} rounds; found {delivered}")
    return MicroCredits(int(payment) * int(delivered) // int(rounds))
