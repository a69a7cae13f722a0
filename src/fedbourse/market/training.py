"""Training as the market sees it: rounds that open and close, and the model that they move."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import Conflict
from fedbourse.learning.models import model_named
from fedbourse.ledger import Transfer
from fedbourse.market import merkle
from fedbourse.market.buying import cancel
from fedbourse.market.drift import mean_and_drift
from fedbourse.market.lifecycle import Command, after
from fedbourse.market.parties import MARKET
from fedbourse.market.service import escrow, role_of, taken
from fedbourse.market.task import Round
from fedbourse.market.unearned import empty_escrow
from fedbourse.units import MicroCredits
from fedbourse.wire.canonical import canonical, digest
from fedbourse.wire.messages import query_message

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Line, State, Task
    from fedbourse.wire.card import TaskCard


def review(market: Market, unit: Unit, task_id: str) -> Task:
    """Everybody has signed: let the buyer look at the settlement for as long as the card says."""
    task = unit.task(task_id, lock="change")
    if not task.card.deadlines.review_s:
        return start(market, unit, MARKET, task_id)
    ends = market.moment_in(task.card.deadlines.review_s)
    task = replace(task, review_ends_ms=ends, deadline_ms=ends)
    return market.record(unit, task, "signed", {"review_ends_ms": ends})


def start(market: Market, unit: Unit, caller: Caller, task_id: str) -> Task:
    """Open round 0 with those who signed: all who were chosen."""
    task = taken(unit, caller, task_id, Command.TRAIN)
    check_signatures(unit, task)
    lines = unit.lines(task.id)
    if task.card.vesting == "upfront":
        _pay_upfront(market, unit, task, lines)
    task = replace(task, review_ends_ms=None)
    task = market.record(
        unit,
        task,
        "training",
        {
            "by": role_of(caller, task),
            "signed": len(lines),
            "signatures_root": merkle.root([_hash(str(line.signature)) for line in lines]),
        },
    )
    return _open_round(market, unit, task, 0, start_model(task.card), previous=task.last_hash)


def check_signatures(unit: Unit, task: Task) -> int:
    """Return how many have signed: everybody who was chosen."""
    waiting = unit.count_lines(task.id, state="offered")
    if waiting:
        raise Conflict(f"{waiting} owners have neither signed nor declined, and still may")
    if unit.count_lines(task.id, state="declined"):
        raise Conflict("an owner has declined; the price is discovered again without it")
    return unit.count_lines(task.id)


def start_model(card: TaskCard) -> FloatArray:
    """Return the parameters of round 0, as the card fixes them."""
    model = model_named(card.model, features=card.features, classes=card.classes)
    return model.start(seed=card.start_seed)


def close_round(market: Market, unit: Unit, task_id: str) -> Task:
    """Take one step along the answers that came, and open the next round or complete the task."""
    task = taken(unit, MARKET, task_id, Command.CLOSE_ROUND)
    closing = unit.round(task.id, task.round)
    answers = unit.answers(task.id, task.round)
    model = np.frombuffer(closing.model, dtype="<f8")
    void = len(answers) < task.card.min_participants
    if answers:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is seen below
            mean = mean_and_drift(unit, task)
            model = model if void else model - task.card.step_size * mean
    if not np.isfinite(model).all():
        reason = f"training diverged in round {task.round}: the model is no longer finite"
        return cancel(market, unit, MARKET, task.id, reason=reason)
    unit.close_round(task.id, task.round, at_ms=market.now_ms(), answers=len(answers))
    body = {
        "round": task.round,
        "answers": len(answers),
        "void": void,
        "answers_root": merkle.root([answer.hash for answer in answers]),
        "model_hash": _hash(model.tobytes()),
    }
    task = market.record(unit, task, "round", body)
    if task.round + 1 < task.card.rounds:
        return _open_round(market, unit, task, task.round + 1, model, previous=closing.query)
    return _complete(market, unit, task, model, previous=closing.query)


def _complete(market: Market, unit: Unit, task: Task, model: FloatArray, *, previous: str) -> Task:
    """Store the last model, and empty the escrow of what nobody earned."""
    state: State = after(task.state, Command.COMPLETE, by="market")
    now = market.now_ms()
    data = model.astype("<f8").tobytes()
    last = Round(task.id, task.card.rounds, data, _hash(data), previous, previous, now, now)
    unit.add_round(last)
    remainder = empty_escrow(market, unit, task, closed_rounds=task.card.rounds)
    task = replace(task, state=state, round=task.card.rounds, deadline_ms=None)
    body = {"model_hash": last.model_hash, **remainder.document}
    return market.record(unit, task, "completed", body)


def _open_round(
    market: Market, unit: Unit, task: Task, number: int, model: FloatArray, *, previous: str
) -> Task:
    data = model.astype("<f8").tobytes()
    deadline = market.moment_in(task.card.deadlines.round_s)
    message = query_message(
        task=task.id,
        card=task.card.digest,
        round=number,
        model_hash=_hash(data),
        deadline_ms=deadline,
        previous=previous,
    )
    opened = Round(
        task=task.id,
        number=number,
        model=data,
        model_hash=_hash(data),
        query=digest(message),
        previous=previous,
        opened_ms=market.now_ms(),
        deadline_ms=deadline,
        signature=market.key.sign(canonical(message)),
    )
    unit.add_round(opened)
    task = replace(task, round=number, deadline_ms=deadline)
    unit.save_task(task)
    return task


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
    for line in signed:
        unit.earn(task.id, line.owner, line.payment)
    unit.post(transfers, at_ms=market.now_ms())


def _hash(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
