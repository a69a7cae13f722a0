"""The heads of logs: how long a log is, and the hash that its next link must follow.

A task's log is the chain of its events. The market's log is the chain of the events that opened
tasks: each holds its number and the hash of the opening before, so that no task can vanish. Whoever
keeps a signed head can tell later, from what came after it, whether the log still extends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.market.service import show

if TYPE_CHECKING:
    from fedbourse.market.log import Event
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction

MARKET_LOG = "market"


@dataclass(frozen=True)
class Head:
    """Where a log ends."""

    of: str
    """A task's id, or ``market``."""
    length: int
    hash: str
    """Of its last link; empty where there is none yet."""


def head_of_task(tx: Transaction, caller: Caller | None, task_id: str) -> Head:
    """Return where a task's log ends, to somebody who may see the task."""
    task = show(tx.task(task_id), caller)
    return Head(task.id, task.last_sequence + 1, task.last_hash)


def head_of_market(tx: Transaction) -> Head:
    """Return where the chain of openings ends."""
    return _head_after(tx.last_opening())


def next_opening(tx: Transaction) -> dict[str, Any]:
    """Return what the event that opens a task says of its place; nobody else can take it."""
    last = _head_after(tx.last_opening(lock=True))
    return {"opening": last.length, "previous_opening": last.hash}


def _head_after(opened: Event | None) -> Head:
    if opened is None:
        return Head(MARKET_LOG, 0, "")
    return Head(MARKET_LOG, opened.body["opening"] + 1, opened.hash)
