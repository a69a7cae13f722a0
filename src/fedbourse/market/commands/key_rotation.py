"""Another key for the market: the old one vouches for it, and what devices act on is signed anew.

From then on a device that has followed believes the new key alone, also about what was said before:
whoever finds the old key later can say nothing with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedbourse.encoding.canonical import canonical
from fedbourse.market.records import State
from fedbourse.market.service import state_message
from fedbourse.protocol.messages import round_request_message
from fedbourse.protocol.rotation import rotate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Task
    from fedbourse.market.service import Market
    from fedbourse.protocol.keys import SigningKey
    from fedbourse.protocol.rotation import Rotation

_AT_ONCE = 1000


def rotate_key(market: Market, tx: Transaction, new: SigningKey) -> Rotation:
    """Let a new key take the place of the market's, which nobody may sign with meanwhile.

    One signature for each task, and one for each open round; terms and receipts that owners hold
    stay as they were signed.
    """
    rotation = rotate(market.key, new, at_ms=market.now_ms())
    tx.add_rotation(rotation)
    for task in _tasks(tx):
        signature = new.sign(canonical(state_message(task)))
        tx.save_task(replace(task, state_signature=signature))
        if task.state is State.TRAINING and task.reference_ends_ms is None:
            _sign_round(tx, task, new)
    return rotation


def current_key(rotations: Sequence[Rotation]) -> str | None:
    """Return the key that no other has replaced; None where there was only ever one."""
    replaced = {rotation.old for rotation in rotations}
    return next((each.new for each in rotations if each.new not in replaced), None)


def _tasks(tx: Transaction) -> Iterator[Task]:
    before: str | None = None
    while page := tx.tasks(before=before, limit=_AT_ONCE):
        yield from page
        before = page[-1].id


def _sign_round(tx: Transaction, task: Task, key: SigningKey) -> None:
    round = tx.round(task.id, task.round)
    message = round_request_message(
        task=task.id,
        card=task.card.digest,
        round=round.number,
        model_hash=round.model_hash,
        deadline_ms=round.deadline_ms,
        previous=round.previous,
    )
    tx.sign_round(task.id, round.number, key.sign(canonical(message)))
