"""Training as the market sees it: rounds that open and close, answers, receipts, and pay."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import Conflict, InvalidInput, NotAllowed
from fedbourse.learning.engines.engine import Answers
from fedbourse.learning.models import model_named
from fedbourse.learning.rounds import weighted_mean
from fedbourse.ledger import Transfer
from fedbourse.market import log
from fedbourse.market.buying import ROUNDS_MAX, cancel, enough, known
from fedbourse.market.lifecycle import Command, after
from fedbourse.market.parties import MARKET
from fedbourse.market.service import escrow, role_of, taken, taken_by_owner
from fedbourse.market.settlement import earned
from fedbourse.market.task import Answer, Round
from fedbourse.units import MicroCredits
from fedbourse.wire.canonical import canonical, digest
from fedbourse.wire.messages import (
    answer_message,
    privacy_terms,
    query_message,
    receipt_message,
)

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Line, State, Task
    from fedbourse.wire.card import TaskCard

_FALSE_ALARM = 1e-9


def start(market: Market, unit: Unit, caller: Caller, task_id: str) -> Task:
    """Open round 0 with those who signed; the pay of the others goes back to the buyer."""
    task = taken(unit, caller, task_id, Command.TRAIN)
    waiting = unit.count_lines(task.id, state="offered")
    if waiting and market.now_ms() < known(task.deadline_ms):
        raise Conflict(f"{waiting} owners have neither signed nor declined, and still may")
    unit.decline_silent(task.id)
    lines = unit.lines(task.id)
    signed = [line for line in lines if line.state == "signed"]
    enough(task, len(signed), "have signed")
    declined = known(task.reward) - sum(line.payment for line in signed)
    if declined:
        route = escrow(task.id), task.buyer
        market.pay(unit, f"{task.id}/declined", route, declined, "declined")
    if task.card.payout == "upfront":
        _pay_upfront(market, unit, task, signed)
    task = market.record(
        unit,
        task,
        "training",
        {
            "by": role_of(caller, task),
            "signed": len(signed),
            "declined": len(lines) - len(signed),
            "declined_micro": declined,
            "signatures_root": log.root([_hash(str(line.signature)) for line in signed]),
        },
    )
    return _open_round(market, unit, task, 0, start_model(task.card), previous=task.last_hash)


def start_model(card: TaskCard) -> FloatArray:
    """Return the parameters of round 0, as the card fixes them."""
    model = model_named(card.model, features=card.features, classes=card.classes)
    return model.start(seed=card.start_seed)


def accept_answer(
    market: Market, unit: Unit, caller: Caller, task_id: str, *, round: int, body: bytes
) -> dict[str, Any]:
    """Store an answer, pay what it earned, and return the signed receipt: all or nothing."""
    caller.require("owner")
    if not 0 <= round < ROUNDS_MAX:
        raise Conflict(f"a round lies between 0 and {ROUNDS_MAX}; found {round}")
    before = unit.answer(task_id, round, caller.party)
    if before is not None:
        return _repeated(unit, before, body)
    task = taken_by_owner(market, unit, caller, task_id, Command.ANSWER)
    if round != task.round:
        raise Conflict(f"round {task.round} is open; the answer is to round {round}")
    line = unit.line(task.id, caller.party, lock="change")
    if line is None or line.state != "signed":
        raise NotAllowed(f"{caller.party} signed no terms of task {task.id}")
    before = unit.answer(task_id, round, caller.party)
    if before is not None:  # it came while this one waited for the line
        return _repeated(unit, before, body)
    query = unit.round(task.id, round)
    check_answer(body, task.card, budget=known(line.budget), task=task.id)
    message = answer_message(
        task=task.id,
        round=round,
        owner=caller.party,
        vector_hash=_hash(body),
        query=query.query,
    )
    answered = unit.count_answer(task.id, caller.party)
    due = earned(line.payment, answered=answered, rounds=task.card.rounds)
    paid = earned(line.payment, answered=answered - 1, rounds=task.card.rounds)
    if task.card.payout == "upfront":
        due = paid = line.payment
    receipt = receipt_message(
        task=task.id,
        owner=caller.party,
        round=round,
        answered=answered,
        earned_micro=due,
        answer=digest(message),
    )
    signed = {"receipt": receipt, "market_signature": market.key.sign(canonical(receipt))}
    unit.add_answer(
        Answer(
            task=task.id,
            round=round,
            owner=caller.party,
            vector=body,
            hash=digest(message),
            receipt=json.dumps(signed),
            at_ms=market.now_ms(),
        )
    )
    if due > paid:
        memo = f"answer {answered} of {task.card.rounds}"
        id = f"{task.id}/{caller.party}/{answered}"
        market.pay(unit, id, (escrow(task.id), caller.party), due - paid, memo)
    return signed


def check_answer(body: bytes, card: TaskCard, *, budget: float, task: str) -> None:
    """Refuse an answer of the wrong length, one that is not finite, or of an impossible size.

    Clipped means have at most norm L, so honest noise leaves the squared norm within these bounds
    but for two chances in 10^9. Pure noise passes as well: this is no proof of honest work.
    """
    if len(body) != 8 * card.dimension:
        raise InvalidInput(
            f"an answer is {card.dimension} little-endian doubles, {8 * card.dimension} bytes; "
            f"found {len(body)} bytes"
        )
    vector = np.frombuffer(body, dtype="<f8")
    if not np.isfinite(vector).all():
        raise InvalidInput("an answer holds finite numbers only; found one that is not")
    scale = privacy_terms(card, task=task, budget=budget).scale
    low, high = _chi_bounds(card.dimension)
    with np.errstate(over="ignore"):  # a norm that overflows is too large
        norm = float(np.linalg.norm(vector))
    if not scale * low <= norm <= card.clip + scale * high:
        raise InvalidInput(
            f"the norm of an answer with this noise lies between {scale * low:.6g} and "
            f"{card.clip + scale * high:.6g}; found {norm:.6g}"
        )


def close_round(market: Market, unit: Unit, task_id: str) -> Task:
    """Take one step along the answers that came, and open the next round or complete the task."""
    task = taken(unit, MARKET, task_id, Command.CLOSE_ROUND)
    closing = unit.round(task.id, task.round)
    answers = unit.answers(task.id, task.round)
    model = np.frombuffer(closing.model, dtype="<f8")
    void = len(answers) < task.card.min_participants
    if not void:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is seen below
            model = model - task.card.step_size * _mean(unit, task, answers)
    if not np.isfinite(model).all():
        reason = f"training diverged in round {task.round}: the model is no longer finite"
        return cancel(market, unit, MARKET, task.id, reason=reason)
    unit.close_round(task.id, task.round, at_ms=market.now_ms(), answers=len(answers))
    body = {
        "round": task.round,
        "answers": len(answers),
        "void": void,
        "answers_root": log.root([answer.hash for answer in answers]),
        "model_hash": _hash(model.tobytes()),
    }
    task = market.record(unit, task, "round", body)
    if task.round + 1 < task.card.rounds:
        return _open_round(market, unit, task, task.round + 1, model, previous=closing.query)
    return _complete(market, unit, task, model, previous=closing.query)


def _complete(market: Market, unit: Unit, task: Task, model: FloatArray, *, previous: str) -> Task:
    """Store the last model, and give back what nobody earned."""
    state: State = after(task.state, Command.COMPLETE, by="market")
    now = market.now_ms()
    data = model.astype("<f8").tobytes()
    last = Round(task.id, task.card.rounds, data, _hash(data), previous, now, now)
    unit.add_round(last)
    refunded = market.refund(unit, task)
    task = replace(task, state=state, round=task.card.rounds, deadline_ms=None)
    body = {"model_hash": last.model_hash, "refunded_micro": refunded}
    return market.record(unit, task, "completed", body)


def _open_round(
    market: Market, unit: Unit, task: Task, number: int, model: FloatArray, *, previous: str
) -> Task:
    data = model.astype("<f8").tobytes()
    deadline = market.moment_in(task.card.deadlines.round_s)
    message = query_message(
        task=task.id,
        round=number,
        model_hash=_hash(data),
        deadline_ms=deadline,
        previous=previous,
    )
    now = market.now_ms()
    unit.add_round(Round(task.id, number, data, _hash(data), digest(message), now, deadline))
    task = replace(task, round=number, deadline_ms=deadline)
    unit.save_task(task)
    return task


def _mean(unit: Unit, task: Task, answers: list[Answer]) -> FloatArray:
    budgets = {line.owner: known(line.budget) for line in unit.lines(task.id)}
    scales = [
        privacy_terms(task.card, task=task.id, budget=budgets[answer.owner]).scale
        for answer in answers
    ]
    vectors = np.stack([np.frombuffer(known(answer.vector), dtype="<f8") for answer in answers])
    came = Answers(owners=np.arange(len(answers)), vectors=vectors)
    return weighted_mean(came, np.array(scales), task.card.weights)


def _pay_upfront(market: Market, unit: Unit, task: Task, signed: list[Line]) -> None:
    transfers = [
        Transfer(
            f"{task.id}/{line.owner}/upfront",
            escrow(task.id),
            line.owner,
            MicroCredits(line.payment),
            "all of it before round 0",
        )
        for line in signed
    ]
    unit.post(transfers, at_ms=market.now_ms())


def _repeated(unit: Unit, before: Answer, body: bytes) -> dict[str, Any]:
    """Return the receipt of an answer that came before, if this is the same."""
    query = unit.round(before.task, before.round).query
    message = answer_message(
        task=before.task,
        round=before.round,
        owner=before.owner,
        vector_hash=_hash(body),
        query=query,
    )
    if digest(message) != before.hash:
        raise Conflict(f"{before.owner} has answered round {before.round} differently before")
    signed: dict[str, Any] = json.loads(before.receipt)
    return signed


@lru_cache
def _chi_bounds(dimension: int) -> tuple[float, float]:
    from scipy.stats import chi2

    low, high = chi2.ppf(_FALSE_ALARM, dimension), chi2.isf(_FALSE_ALARM, dimension)
    return math.sqrt(low), math.sqrt(high)


def _hash(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
