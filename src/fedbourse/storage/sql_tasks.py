"""Tasks and their logs in SQL."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, text, union, update

from fedbourse.errors import Conflict, NotFound
from fedbourse.market.lifecycle import ACTIVE
from fedbourse.market.log import Event
from fedbourse.market.task import Mark, State, Task
from fedbourse.storage.schema import events, exits, interests, openings, tasks
from fedbourse.storage.unit import Part, storable
from fedbourse.wire.canonical import canonical
from fedbourse.wire.card import TaskCard

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlalchemy import Row

    from fedbourse.market.ports import Lock

_MARKS = select(tasks.c.id, tasks.c.state, tasks.c.last_sequence, tasks.c.round).where(
    tasks.c.id.in_(bindparam("ids", expanding=True))
)
_OWN = (interests, exits)
_OPENED = select(events).join(openings)
_FIXED = ("id", "buyer", "card", "created_ms")
_TASK = select(tasks).where(tasks.c.id == bindparam("task"))
_SAVE = (
    update(tasks)
    .where(tasks.c.id == bindparam("task"))
    .values({each.name: bindparam(each.name) for each in tasks.c if each.name not in _FIXED})
)


class SqlTasks(Part):
    """``market.ports.Tasks``."""

    def add_task(self, task: Task) -> None:
        """Store a new task."""
        if not self._add(tasks, _row(task)):
            raise Conflict(f"there is a task {task.id} already")

    def task(self, task: str, *, lock: Lock = "none") -> Task:
        """Return a task."""
        row = self._run(self._locked(_TASK, lock), {"task": task}).first()
        if row is None:
            raise _no_task(task)
        return _task(row)

    def save_task(self, task: Task) -> None:
        """Store a task as it now stands; its card, buyer and time of making never change."""
        values = {name: value for name, value in _row(task).items() if name not in _FIXED}
        if not self._changed(_SAVE, values | {"task": task.id}):
            raise _no_task(task.id)

    def tasks(
        self,
        *,
        states: Sequence[State] = (),
        buyer: str | None = None,
        owner: str | None = None,
        before: str | None = None,
        limit: int,
    ) -> list[Task]:
        """Return tasks, newest first: in these states (all if empty), those made before one.

        An owner's tasks are those that it is interested in or has withdrawn from.
        """
        query = select(tasks).order_by(tasks.c.id.desc()).limit(limit)
        if states:
            query = query.where(tasks.c.state.in_([str(state) for state in states]))
        if buyer is not None:
            query = query.where(tasks.c.buyer == buyer)
        if owner is not None:
            parts = [select(each.c.task).where(each.c.owner == owner) for each in _OWN]
            query = query.where(tasks.c.id.in_(union(*parts)))
        if before is not None:
            query = query.where(tasks.c.id < before)
        return [_task(row) for row in self._run(query)]

    def active_tasks(self) -> list[Task]:
        """Return the tasks that are open, announced, settled or in training."""
        query = select(tasks).where(tasks.c.state.in_([str(state) for state in ACTIVE]))
        return [_task(row) for row in self._run(query.order_by(tasks.c.id))]

    def marks(self, tasks: Collection[str]) -> dict[str, Mark]:
        """Return how far these tasks are; those that do not exist are left out."""
        found = self._run(_MARKS, {"ids": list(tasks)})
        return {row.id: Mark(State(row.state), row.last_sequence + 1, row.round) for row in found}

    def append_event(self, event: Event) -> None:
        """Add an event; a second one with its sequence number raises ``Conflict``."""
        body = canonical(dict(event.body)).decode()
        if not self._add(events, vars(event) | {"body": body}):
            raise Conflict(f"task {event.task} has an event {event.sequence} already")

    def events(self, task: str, *, after: int = -1, limit: int) -> list[Event]:
        """Return the events after a sequence number, in order."""
        query = (
            select(events)
            .where(events.c.task == task, events.c.sequence > after)
            .order_by(events.c.sequence)
            .limit(limit)
        )
        return [_event(row) for row in self._run(query)]

    def add_opening(self, number: int, task: Task) -> None:
        """Store that the task whose last event this is was opened as this one of all tasks."""
        opening = {"number": number, "task": task.id, "sequence": task.last_sequence}
        if not self._add(openings, opening):
            raise Conflict(f"there is an opening {number}, or one of task {task.id}, already")

    def last_opening(self, *, lock: bool = False) -> Event | None:
        """Return the event that opened a task last; locked, no other task opens meanwhile."""
        if lock and not self._sqlite:  # there a transaction that writes is alone
            self._run(text("LOCK TABLE openings IN SHARE ROW EXCLUSIVE MODE"))
        row = self._run(_OPENED.order_by(openings.c.number.desc()).limit(1)).first()
        return row and _event(row)

    def openings(self, *, after: int = -1, limit: int) -> list[Event]:
        """Return the events that opened tasks, in the order of opening, after a number."""
        query = _OPENED.where(openings.c.number > after).order_by(openings.c.number).limit(limit)
        return [_event(row) for row in self._run(query)]


def _event(row: Row[Any]) -> Event:
    return Event(**{**row._mapping, "body": json.loads(row.body)})


def _row(task: Task) -> dict[str, Any]:
    return vars(task) | {
        "card": canonical(task.card.document).decode(),
        "state": str(task.state),
        "total_budget": storable("the total budget", task.total_budget),
        "totals": json.dumps(task.totals),
    }


@lru_cache(maxsize=256)
def _card(text: str) -> TaskCard:
    """Return a card; it never changes, and most requests are about few of them."""
    return TaskCard.of(json.loads(text))


def _task(row: Row[Any]) -> Task:
    return Task(
        **{
            **row._mapping,
            "card": _card(row.card),
            "state": State(row.state),
            "totals": tuple(json.loads(row.totals)),
        }
    )


def _no_task(task: str) -> NotFound:
    return NotFound(f"there is no task {task!r:.60}")
