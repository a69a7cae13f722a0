"""Answers: taken once, checked, paid for in the same breath, or refused and remembered."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from fedbourse.errors import Conflict, InvalidInput, NotAllowed
from fedbourse.learning.answer_check import fault_of
from fedbourse.market.buying import ROUNDS_MAX
from fedbourse.market.lifecycle import Command
from fedbourse.market.service import escrow, present, taken_by_owner
from fedbourse.market.task import Answer, RefusedAnswer
from fedbourse.wire.canonical import canonical, digest
from fedbourse.wire.messages import answer_message, earned, privacy_terms, receipt_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Line, RefusedFor, Task
    from fedbourse.wire.card import TaskCard

    Told = Callable[[RefusedFor], None]


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
    check_answer(body, task.card, budget=present(line.budget), task=task.id, refused=refused)
    message = answer_message(
        task=task.id, round=round, owner=caller.party, vector_hash=body_hash, query=query
    )
    return _paid(market, unit, task, line, body=body, hash=digest(message))


def _paid(
    market: Market, unit: Unit, task: Task, line: Line, *, body: bytes, hash: str
) -> dict[str, Any]:
    """Store a good answer with its receipt, and pay what it earned."""
    answered = line.answered + 1
    due = earned(line.payment, answered=answered, rounds=task.card.rounds)
    if task.card.vesting == "upfront":
        due = line.payment
    unit.deliver(task.id, line.owner, answered=answered, earned=due)
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
    if due > line.earned:
        memo = f"answer {answered} of {task.card.rounds}"
        id = f"{task.id}/{line.owner}/{answered}"
        market.pay(unit, id, (escrow(task.id), line.owner), due - line.earned, memo)
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
    """Refuse an answer that no honest device can have sent; see ``learning.answer_check``."""
    fault = fault_of(privacy_terms(card, task=task, budget=budget), body)
    if fault is not None:
        reason, sentence = fault
        refused(reason)
        raise InvalidInput(sentence)


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


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
