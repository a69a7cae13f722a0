"""Answers: taken once, checked, paid for in the same breath, or refused and remembered."""

from __future__ import annotations

import hashlib
import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import Conflict, InvalidInput, NotAllowed
from fedbourse.market.buying import ROUNDS_MAX, known
from fedbourse.market.lifecycle import Command
from fedbourse.market.service import escrow, taken_by_owner
from fedbourse.market.task import Answer, RefusedAnswer
from fedbourse.wire.canonical import canonical, digest
from fedbourse.wire.messages import answer_message, earned, privacy_terms, receipt_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Line, RefusedFor, Task
    from fedbourse.wire.card import TaskCard

    Told = Callable[[RefusedFor], None]

_FALSE_ALARM = 1e-9


def _nobody(reason: RefusedFor) -> None:
    """Tell nobody."""


def accept_answer(
    market: Market,
    unit: Unit,
    caller: Caller,
    task_id: str,
    *,
    round: int,
    body: bytes,
    body_hash: str = "",
    refused: Told = _nobody,
) -> dict[str, Any]:
    """Store an answer, pay what it earned, and return the signed receipt: all or nothing.

    ``body_hash`` is SHA-256 of the body, where it is known already. ``refused`` hears why an answer
    to a round that was opened is not accepted, before that raises; see ``remember_refused``.
    """
    caller.require("owner")
    if not 0 <= round < ROUNDS_MAX:
        raise Conflict(f"a round lies between 0 and {ROUNDS_MAX}; found {round}")
    body_hash = body_hash or _hash(body)
    before = unit.answer(task_id, round, caller.party)
    if before is not None:
        return _repeated(unit, before, body_hash, refused)
    try:
        task = taken_by_owner(market, unit, caller, task_id, Command.ANSWER)
    except Conflict:
        refused("late")
        raise
    if round != task.round:
        if round < task.round:
            refused("late")
        raise Conflict(f"round {task.round} is open; the answer is to round {round}")
    line = unit.line(task.id, caller.party, lock="change")
    if line is None or line.state != "signed":
        raise NotAllowed(f"{caller.party} signed no terms of task {task.id}")
    before = unit.answer(task_id, round, caller.party)
    if before is not None:  # it came while this one waited for the line
        return _repeated(unit, before, body_hash, refused)
    query = unit.query_hash(task.id, round)
    check_answer(body, task.card, budget=known(line.budget), task=task.id, refused=refused)
    message = answer_message(
        task=task.id, round=round, owner=caller.party, vector_hash=body_hash, query=query
    )
    return _paid(market, unit, task, line, body=body, hash=digest(message))


def _paid(
    market: Market, unit: Unit, task: Task, line: Line, *, body: bytes, hash: str
) -> dict[str, Any]:
    """Store a good answer with its receipt, and pay what it earned."""
    answered = unit.count_answer(task.id, line.owner)
    due = earned(line.payment, answered=answered, rounds=task.card.rounds)
    paid = earned(line.payment, answered=answered - 1, rounds=task.card.rounds)
    if task.card.payout == "upfront":
        due = paid = line.payment
    receipt = receipt_message(
        task=task.id,
        owner=line.owner,
        round=task.round,
        answered=answered,
        earned_micro=due,
        answer=hash,
    )
    signed = {"receipt": receipt, "market_signature": market.key.sign(canonical(receipt))}
    unit.add_answer(
        Answer(
            task=task.id,
            round=task.round,
            owner=line.owner,
            vector=body,
            hash=hash,
            receipt=json.dumps(signed),
            at_ms=market.now_ms(),
        )
    )
    if due > paid:
        memo = f"answer {answered} of {task.card.rounds}"
        id = f"{task.id}/{line.owner}/{answered}"
        market.pay(unit, id, (escrow(task.id), line.owner), due - paid, memo)
    return signed


def remember_refused(
    market: Market, unit: Unit, caller: Caller, task_id: str, *, round: int, reason: RefusedFor
) -> None:
    """Store that an owner who signed sent a late or bad answer, in a transaction of its own.

    An owner leaves at most one row for each round that was opened, whatever it sends.
    """
    task = unit.task(task_id)
    line = unit.line(task.id, caller.party)
    if line is None or line.state != "signed" or not 0 <= round < task.card.rounds:
        return
    if unit.has_round(task.id, round):
        at_ms = market.now_ms()
        unit.put_refused_answer(RefusedAnswer(task.id, round, caller.party, reason, at_ms))


def check_answer(
    body: bytes, card: TaskCard, *, budget: float, task: str, refused: Told = _nobody
) -> None:
    """Refuse an answer of the wrong length, one that is not finite, or of an impossible size.

    Clipped means have at most norm L, so honest noise leaves the squared norm within these bounds
    but for two chances in 10^9. Pure noise passes as well: this is no proof of honest work.
    """
    d = card.dimension
    if len(body) not in (8 * d, 4 * d):
        refused("length")
        raise InvalidInput(
            f"an answer is {d} little-endian doubles, {8 * d} bytes, or floats, {4 * d} bytes; "
            f"found {len(body)} bytes"
        )
    vector = vector_of(body, dimension=d)
    with np.errstate(over="ignore"):  # a norm that overflows is too large
        norm = float(np.linalg.norm(vector))
    # A norm that is finite has no part that is not.
    if not math.isfinite(norm) and not np.isfinite(vector).all():
        refused("not finite")
        raise InvalidInput("an answer holds finite numbers only; found one that is not")
    scale = privacy_terms(card, task=task, budget=budget).scale
    low, high = _chi_bounds(d)
    if not scale * low <= norm <= card.clip + scale * high:
        refused("norm")
        raise InvalidInput(
            f"the norm of an answer with this noise lies between {scale * low:.6g} and "
            f"{card.clip + scale * high:.6g}; found {norm:.6g}"
        )


def vector_of(body: bytes, *, dimension: int) -> FloatArray:
    """Return the numbers of an answer: doubles, or floats where there are half as many bytes.

    >>> import struct
    >>> vector_of(struct.pack("<2f", 0.5, -2.0), dimension=2)
    array([ 0.5, -2. ])
    """
    kind = "<f8" if len(body) == 8 * dimension else "<f4"
    return np.frombuffer(body, dtype=kind).astype(np.float64, copy=False)


def _repeated(unit: Unit, before: Answer, body_hash: str, refused: Told) -> dict[str, Any]:
    """Return the receipt of an answer that came before, if this is the same."""
    message = answer_message(
        task=before.task,
        round=before.round,
        owner=before.owner,
        vector_hash=body_hash,
        query=unit.query_hash(before.task, before.round),
    )
    if digest(message) != before.hash:
        refused("differs")
        raise Conflict(f"{before.owner} has answered round {before.round} differently before")
    signed: dict[str, Any] = json.loads(before.receipt)
    return signed


@lru_cache
def _chi_bounds(dimension: int) -> tuple[float, float]:
    from scipy.stats import chi2

    low, high = chi2.ppf(_FALSE_ALARM, dimension), chi2.isf(_FALSE_ALARM, dimension)
    return math.sqrt(low), math.sqrt(high)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
