"""Training as the market sees it: rounds that open and close, and the model that they move."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Conflict
from fedbourse.learning.aggregation import aggregate
from fedbourse.learning.update_check import update_numbers
from fedbourse.ledger import Transfer
from fedbourse.market import merkle
from fedbourse.market.commands.buyer import cancel
from fedbourse.market.evidence import end_block, judge_round, voided
from fedbourse.market.lifecycle import Command, after
from fedbourse.market.monitoring import watch
from fedbourse.market.parties import MARKET
from fedbourse.market.records import Round
from fedbourse.market.service import escrow, present, role_of, taken
from fedbourse.market.unearned import empty_escrow
from fedbourse.protocol.messages import round_request_message
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.game.columns import FloatArray
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Allocation, State, Task
    from fedbourse.market.service import Market
    from fedbourse.tasks.card import TaskCard

_IN_MEMORY_BYTES = 2**23


def review(market: Market, tx: Transaction, task_id: str) -> Task:
    """Everybody has signed: let the buyer look at the settlement for as long as the card says."""
    task = tx.task(task_id, lock="change")
    if not task.card.deadlines.review_s:
        return start(market, tx, MARKET, task_id)
    ends = market.moment_in(task.card.deadlines.review_s)
    task = replace(task, review_ends_ms=ends, deadline_ms=ends)
    return market.record(tx, task, "signed", {"review_ends_ms": ends})


def start(market: Market, tx: Transaction, caller: Caller, task_id: str) -> Task:
    """Open round 0 with those who signed: all who were chosen."""
    task = taken(tx, caller, task_id, Command.TRAIN)
    check_signatures(tx, task)
    allocations = tx.allocations(task.id)
    if task.card.vesting == "upfront":
        _pay_upfront(market, tx, task, allocations)
    task = replace(task, review_ends_ms=None)
    task = market.record(
        tx,
        task,
        "training",
        {
            "by": role_of(caller, task),
            "signed": len(allocations),
            "signatures_root": merkle.root(
                [_hash(str(allocation.signature)) for allocation in allocations]
            ),
        },
    )
    return _next_round(market, tx, task, 0, start_model(task.card), previous=task.last_hash)


def check_signatures(tx: Transaction, task: Task) -> int:
    """Return how many have signed: everybody who was chosen."""
    waiting = tx.count_allocations(task.id, state="offered")
    if waiting:
        raise Conflict(f"{waiting} owners have neither signed nor declined, and still may")
    if tx.count_allocations(task.id, state="declined"):
        raise Conflict("an owner has declined; the price is discovered again without it")
    return tx.count_allocations(task.id)


def start_model(card: TaskCard) -> FloatArray:
    """Return the parameters of round 0, as the card fixes them."""
    model = card.build()
    return model.start(seed=card.start_seed)


def close_round(market: Market, tx: Transaction, task_id: str) -> Task:
    """Take one step along the updates, and open the next round or complete the task."""
    task = taken(tx, MARKET, task_id, Command.CLOSE_ROUND)
    closing = tx.round(task.id, task.round)
    updates = tx.updates(task.id, task.round)
    model = np.frombuffer(closing.model, dtype="<f8")
    judged, dismissed = {}, frozenset[str]()
    if task.card.evidence is not None:
        judgement = judge_round(tx, task)
        task, dismissed = voided(task, judgement), judgement.dismissed
        judged = {"evidence": judgement.document}
    counted = [update.owner for update in updates if update.owner not in dismissed]
    void = len(counted) < task.card.min_participants
    if counted:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is seen below
            mean = _aggregate(tx, task, counted)
            model = model if void else model - task.card.step_size * mean
    if not np.isfinite(model).all():
        reason = f"training diverged in round {task.round}: the model is no longer finite"
        return cancel(market, tx, MARKET, task.id, reason=reason)
    if (spec := task.card.evidence) and spec.ends_block(task.round, rounds=task.card.rounds):
        judged["evidence"] |= end_block(market, tx, task)
    tx.close_round(
        task.id,
        task.round,
        at_ms=market.now_ms(),
        updates=len(updates),
        keep=task.card.evidence is not None,
    )
    body = {
        "round": task.round,
        "updates": len(updates),
        "void": void,
        "updates_root": merkle.root([update.hash for update in updates]),
        "model_hash": _hash(model.tobytes()),
        **judged,
    }
    task = market.record(tx, task, "round", body)
    if task.round + 1 < task.card.rounds:
        return _next_round(market, tx, task, task.round + 1, model, previous=closing.request_hash)
    return _complete(market, tx, task, model, previous=closing.request_hash)


def _aggregate(tx: Transaction, task: Task, owners: list[str]) -> FloatArray:
    """Return the mean of these owners' updates, having added them to what is known of devices.

    Vectors are read one after the other, twice, so that memory does not grow with their number.
    """
    card = task.card
    budgets = {allocation.owner: allocation.budget for allocation in tx.allocations(task.id)}
    terms = (card.privacy_terms(task=task.id, budget=present(budgets[owner])) for owner in owners)
    scales = np.array([each.scale for each in terms])

    counted = set(owners)

    def bodies() -> Iterator[tuple[str, bytes]]:
        at_once = max(1, _IN_MEMORY_BYTES // (8 * card.dimension))
        vectors = tx.vectors(task.id, task.round, at_once=at_once)
        return (each for each in vectors if each[0] in counted)

    blocks = (update_numbers(body, dimension=card.dimension)[None] for _, body in bodies())
    sums = aggregate(blocks, scales, card.aggregation, dimension=card.dimension)
    watch(tx, task, bodies(), scales, sums)
    return sums.mean


def _complete(
    market: Market, tx: Transaction, task: Task, model: FloatArray, *, previous: str
) -> Task:
    """Store the last model, and empty the escrow of what nobody earned."""
    state: State = after(task.state, Command.COMPLETE, by="market")
    now = market.now_ms()
    data = model.astype("<f8").tobytes()
    last = Round(task.id, task.card.rounds, data, _hash(data), previous, previous, now, now)
    tx.add_round(last)
    remainder = empty_escrow(market, tx, task, closed_rounds=task.card.rounds)
    task = replace(task, state=state, round=task.card.rounds, deadline_ms=None)
    body = {"model_hash": last.model_hash, **remainder.document}
    return market.record(tx, task, "completed", body)


def _next_round(
    market: Market, tx: Transaction, task: Task, number: int, model: FloatArray, *, previous: str
) -> Task:
    """Open a round; or let the buyer see its model, and wait for the reference gradient there."""
    data = model.astype("<f8").tobytes()
    deadline = market.moment_in(task.card.deadlines.round_s)
    round = Round(task.id, number, data, _hash(data), "", previous, market.now_ms(), deadline)
    spec = task.card.evidence
    waits = spec is not None and spec.source == "gradients"
    tx.add_round(round if waits else requested(market, task, round))
    ends = deadline if waits else None
    task = replace(task, round=number, deadline_ms=deadline, reference_ends_ms=ends)
    tx.save_task(task)
    return task


def requested(market: Market, task: Task, round: Round) -> Round:
    """Return a round with its request, which the market signs once for everybody."""
    message = round_request_message(
        task=task.id,
        card=task.card.digest,
        round=round.number,
        model_hash=round.model_hash,
        deadline_ms=round.deadline_ms,
        previous=round.previous,
    )
    signature = market.key.sign(canonical(message))
    return replace(round, request_hash=digest(message), signature=signature)


def _pay_upfront(market: Market, tx: Transaction, task: Task, signed: list[Allocation]) -> None:
    transfers = [
        Transfer(
            f"{task.id}/{allocation.owner}/upfront",
            escrow(task.id),
            allocation.owner,
            MicroCredits(allocation.payment),
            "all of it before round 0",
        )
        for allocation in signed
    ]
    for allocation in signed:
        tx.earn(task.id, allocation.owner, allocation.payment)
    tx.post(transfers, at_ms=market.now_ms())


def _hash(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
