"""The step between rounds in which a buyer that keeps its records sends the gradient of them.

A round's model is known once the round before has closed. The market lets the buyer see it, and
opens the round when the buyer's reference gradient is in, or when the time for that is over. The
event that opens the round has the hash of the gradient, and the round request follows that event:
so the gradient was fixed before any update of the round could exist.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from fedbourse.errors import Conflict, InvalidInput
from fedbourse.market.commands.training import requested
from fedbourse.market.evidence import spec_of, without_reference
from fedbourse.market.lifecycle import Command
from fedbourse.market.parties import MARKET
from fedbourse.market.service import role_of, taken
from fedbourse.tasks.evidence import reference_gradient

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Task
    from fedbourse.market.service import Market


def put_reference_gradient(
    market: Market, tx: Transaction, caller: Caller, task_id: str, *, round: int, content: bytes
) -> Task:
    """Store the reference gradient of the round that waits for it, and open the round."""
    task = taken(tx, caller, task_id, Command.OPEN_ROUND)
    if task.card.evidence is None or task.card.evidence.source != "gradients":
        raise Conflict("the card does not let the buyer send reference gradients")
    if round != task.round or task.reference_ends_ms is None:
        return _repeated(tx, task, round, content)
    if market.now_ms() >= task.reference_ends_ms:
        raise Conflict(f"the time for the reference gradient of round {round} is over")
    _check_shares(tx, task, content)
    tx.add_reference_gradient(task.id, round, content)
    return _open(market, tx, task, by=caller, hash=hashlib.sha256(content).hexdigest())


def open_without_gradient(market: Market, tx: Transaction, task_id: str) -> Task:
    """Open a round whose reference gradient did not come in time: its block cannot be judged."""
    task = taken(tx, MARKET, task_id, Command.OPEN_ROUND)
    return _open(market, tx, without_reference(tx, task), by=MARKET, hash=None)


def _open(market: Market, tx: Transaction, task: Task, *, by: Caller, hash: str | None) -> Task:
    deadline = market.moment_in(task.card.deadlines.round_s)
    task = replace(task, deadline_ms=deadline, reference_ends_ms=None)
    body = {
        "by": role_of(by, task),
        "round": task.round,
        "reference": hash,
        "deadline_ms": deadline,
    }
    task = market.record(tx, task, "reference", body)
    waiting = tx.round(task.id, task.round)
    opened = replace(
        waiting, previous=task.last_hash, opened_ms=market.now_ms(), deadline_ms=deadline
    )
    tx.open_round(requested(market, task, opened))
    return task


def _repeated(tx: Transaction, task: Task, round: int, content: bytes) -> Task:
    """Return the task, if the round was opened with the same gradient."""
    if round > task.round:
        raise Conflict(f"round {round} is still to come; the task is at round {task.round}")
    before = tx.reference_gradient(task.id, round)
    if before is None:
        raise Conflict(f"round {round} was opened without a reference gradient; it came too late")
    if before != content:
        raise Conflict(
            f"round {round} was opened with the reference gradient "
            f"{hashlib.sha256(before).hexdigest()}; another one is refused"
        )
    return tx.task(task.id)


def _check_shares(tx: Transaction, task: Task, content: bytes) -> None:
    """Refuse a gradient that is none, or whose classes are not those of the first one."""
    card, spec = task.card, spec_of(task.card)
    given = reference_gradient(content, card, spec)
    first = tx.first_reference_gradient(task.id)
    if first is None or given.shares is None:
        return
    shares = reference_gradient(first, card, spec).shares
    if shares is None or given.shares.tobytes() != shares.tobytes():
        raise InvalidInput("the classes of the reference and their shares change in no round")
