"""Another key for the market: the old one vouches for it, and what devices act on is signed anew.

From then on a device that has followed believes the new key alone, also about what was said before:
whoever finds the old key later can say nothing with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedbourse.market.service import state_message
from fedbourse.market.task import State
from fedbourse.wire.canonical import canonical
from fedbourse.wire.messages import query_message
from fedbourse.wire.rotation import rotate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task
    from fedbourse.wire.keys import SigningKey
    from fedbourse.wire.rotation import Rotation

_AT_ONCE = 1000


def rotate_key(market: Market, unit: Unit, new: SigningKey) -> Rotation:
    """Let a new key take the place of the market's, which nobody may sign with meanwhile.

    One signature for each task, and one for each open round; terms and receipts that owners hold
    stay as they were signed.
    """
    rotation = rotate(market.key, new, at_ms=market.now_ms())
    unit.add_rotation(rotation)
    for task in _tasks(unit):
        signature = new.sign(canonical(state_message(task)))
        unit.save_task(replace(task, state_signature=signature))
        if task.state is State.TRAINING:
            _sign_round(unit, task, new)
    return rotation


def current_key(rotations: Sequence[Rotation]) -> str | None:
    """Return the key that no other has replaced; None where there was only ever one."""
    replaced = {rotation.old for rotation in rotations}
    return next((each.new for each in rotations if each.new not in replaced), None)


def _tasks(unit: Unit) -> Iterator[Task]:
    before: str | None = None
    while page := unit.tasks(before=before, limit=_AT_ONCE):
        yield from page
        before = page[-1].id


def _sign_round(unit: Unit, task: Task, key: SigningKey) -> None:
    asked = unit.round(task.id, task.round)
    message = query_message(
        task=task.id,
        card=task.card.digest,
        round=asked.number,
        model_hash=asked.model_hash,
        deadline_ms=asked.deadline_ms,
        previous=asked.previous,
    )
    unit.sign_round(task.id, asked.number, key.sign(canonical(message)))
