"""Updates: taken once, checked, paid for in the same breath, or refused and remembered."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Conflict, InvalidInput, NotAllowed
from fedbourse.learning.update_check import fault_of
from fedbourse.market.commands.buyer import ROUNDS_MAX
from fedbourse.market.document_types import SignedReceipt
from fedbourse.market.lifecycle import Command
from fedbourse.market.records import RefusedUpdate, Update
from fedbourse.market.service import escrow, present, taken_by_owner
from fedbourse.protocol.messages import earned, receipt_message, update_message
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Allocation, RefusedFor, Task
    from fedbourse.market.service import Market
    from fedbourse.tasks.card import TaskCard

    Told = Callable[[RefusedFor], None]


def _nobody(reason: RefusedFor) -> None:
    """Tell nobody."""


def accept_update(
    market: Market,
    tx: Transaction,
    caller: Caller,
    task_id: str,
    *,
    round: int,
    body: bytes,
    body_hash: str = "",
    refused: Told = _nobody,
) -> dict[str, Any]:
    """Store an update, pay what it earned, and return the signed receipt: all or nothing.

    ``body_hash`` is SHA-256 of the body, where it is known already. ``refused`` hears why an update
    to a round that was opened is not accepted, before that raises; see ``remember_refused``.
    """
    caller.require("owner")
    if not 0 <= round < ROUNDS_MAX:
        raise Conflict(f"a round lies between 0 and {ROUNDS_MAX}; found {round}")
    body_hash = body_hash or _hash(body)
    before = tx.update(task_id, round, caller.party)
    if before is not None:
        return _repeated(tx, before, body_hash, refused)
    try:
        task = taken_by_owner(market, tx, caller, task_id, Command.UPDATE)
    except Conflict:
        refused("late")
        raise
    if round != task.round:
        if round < task.round:
            refused("late")
        raise Conflict(f"round {task.round} is open; the update is for round {round}")
    if task.reference_ends_ms is not None:
        raise Conflict(f"round {round} is not open yet: the buyer's reference gradient is to come")
    allocation = tx.allocation(task.id, caller.party, lock="change")
    if allocation is not None and allocation.state == "dismissed":
        raise NotAllowed(f"task {task.id} asks {caller.party} for no more updates")
    if allocation is None or allocation.state != "signed":
        raise NotAllowed(f"{caller.party} signed no terms of task {task.id}")
    before = tx.update(task_id, round, caller.party)
    if before is not None:  # it came while this one waited for the allocation
        return _repeated(tx, before, body_hash, refused)
    request = tx.request_hash(task.id, round)
    check_update(body, task.card, budget=present(allocation.budget), task=task.id, refused=refused)
    message = update_message(
        task=task.id, round=round, owner=caller.party, vector_hash=body_hash, request=request
    )
    return _paid(market, tx, task, allocation, body=body, hash=digest(message))


def _paid(
    market: Market, tx: Transaction, task: Task, allocation: Allocation, *, body: bytes, hash: str
) -> dict[str, Any]:
    """Store a good update with its receipt, and pay what it earned, or hold it."""
    delivered = allocation.delivered + 1
    due = earned(allocation.payment, delivered=delivered, rounds=task.card.rounds)
    if task.card.vesting == "upfront":
        due = allocation.payment
    more = due - allocation.earned
    held = MicroCredits(allocation.held + more if task.card.evidence else 0)
    tx.deliver(task.id, allocation.owner, delivered=delivered, earned=due, held=held)
    receipt = receipt_message(
        task=task.id,
        owner=allocation.owner,
        round=task.round,
        delivered=delivered,
        earned_micro=due,
        held_micro=held,
        update=hash,
    )
    signed = asdict(SignedReceipt(receipt, market.key.sign(canonical(receipt))))
    tx.add_update(
        Update(
            task=task.id,
            round=task.round,
            owner=allocation.owner,
            vector=body,
            hash=hash,
            receipt=json.dumps(signed),
            at_ms=market.now_ms(),
        )
    )
    if more and not held:
        memo = f"update {delivered} of {task.card.rounds}"
        id = f"{task.id}/{allocation.owner}/{delivered}"
        market.pay(tx, id, (escrow(task.id), allocation.owner), more, memo)
    market.may_be_due(tx, task)
    return signed


def remember_refused(
    market: Market, tx: Transaction, caller: Caller, task_id: str, *, round: int, reason: RefusedFor
) -> None:
    """Store that an owner who signed sent a late or bad update, in a transaction of its own.

    An owner leaves at most one row for each round that was opened, whatever it sends.
    """
    task = tx.task(task_id)
    allocation = tx.allocation(task.id, caller.party)
    if allocation is None or allocation.state != "signed" or not 0 <= round < task.card.rounds:
        return
    if tx.has_round(task.id, round):
        at_ms = market.now_ms()
        tx.put_refused_update(RefusedUpdate(task.id, round, caller.party, reason, at_ms))


def check_update(
    body: bytes, card: TaskCard, *, budget: float, task: str, refused: Told = _nobody
) -> None:
    """Refuse an update that no honest device can have sent; see ``learning.update_check``."""
    fault = fault_of(card.privacy_terms(task=task, budget=budget), body)
    if fault is not None:
        reason, sentence = fault
        refused(reason)
        raise InvalidInput(sentence)


def _repeated(tx: Transaction, before: Update, body_hash: str, refused: Told) -> dict[str, Any]:
    """Return the receipt of an update that came before, if this is the same."""
    message = update_message(
        task=before.task,
        round=before.round,
        owner=before.owner,
        vector_hash=body_hash,
        request=tx.request_hash(before.task, before.round),
    )
    if digest(message) != before.hash:
        refused("differs")
        raise Conflict(f"{before.owner} has sent another update for round {before.round}")
    signed: dict[str, Any] = json.loads(before.receipt)
    return signed


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
