"""Tasks and their logs in SQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    and_,
    bindparam,
    func,
    not_,
    or_,
    select,
    text,
    union,
    update,
)

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Conflict, NotFound
from fedbourse.market.lifecycle import ACTIVE
from fedbourse.market.log import Event
from fedbourse.market.ports import Lock
from fedbourse.market.records import State, Task, TaskOrder, TaskVersion, promised_micro
from fedbourse.storage.schema import events, exits, interests, openings, tasks
from fedbourse.storage.transaction import BaseTransaction, storable
from fedbourse.tasks.card import TaskCard

_VERSIONS = select(tasks.c.id, tasks.c.state, tasks.c.last_sequence, tasks.c.round).where(
    tasks.c.id.in_(bindparam("ids", expanding=True))
)
_OWN = (interests, exits)
_OPENED = select(events).join(openings)
_LISTED = ("words", "promised")
"""Columns by which lists are searched and ordered; they repeat the card."""
_FIXED = ("id", "buyer", "card", "created_ms", *_LISTED)
_TASK_COLUMNS = [each for each in tasks.c if each.name not in _LISTED]
_ORDERS: dict[TaskOrder, tuple[ColumnElement[Any], ...]] = {
    "newest": (),
    "reward": (func.coalesce(tasks.c.reward, tasks.c.promised).desc().nulls_last(),),
    "deadline": (tasks.c.deadline_ms.asc().nulls_last(),),
}
_TASK = select(*_TASK_COLUMNS).where(tasks.c.id == bindparam("task"))
_SAVE = (
    update(tasks)
    .where(tasks.c.id == bindparam("task"))
    .values({each.name: bindparam(each.name) for each in tasks.c if each.name not in _FIXED})
)


class SqlTasks(BaseTransaction):
    """``market.ports.Tasks``."""

    def add_task(self, task: Task) -> None:
        if not self._add(tasks, _row(task)):
            raise Conflict(f"there is a task {task.id} already")

    def task(self, task: str, *, lock: Lock = "none") -> Task:
        row = self._run(self._locked(_TASK, lock), {"task": task}).first()
        if row is None:
            raise _no_task(task)
        return _task(row)

    def save_task(self, task: Task) -> None:
        values = {name: value for name, value in _row(task).items() if name not in _FIXED}
        if not self._changed(_SAVE, values | {"task": task.id}):
            raise _no_task(task.id)

    def tasks(
        self,
        *,
        states: Sequence[State] = (),
        buyer: str | None = None,
        owner: str | None = None,
        seen_by: str | None = None,
        before: str | None = None,
        limit: int,
    ) -> list[Task]:
        query = select(*_TASK_COLUMNS).where(*_listed(states, seen_by))
        query = query.order_by(tasks.c.id.desc()).limit(limit)
        if buyer is not None:
            query = query.where(tasks.c.buyer == buyer)
        if owner is not None:
            parts = [select(each.c.task).where(each.c.owner == owner) for each in _OWN]
            query = query.where(tasks.c.id.in_(union(*parts)))
        if before is not None:
            query = query.where(tasks.c.id < before)
        return [_task(row) for row in self._run(query)]

    def search_tasks(
        self,
        *,
        states: Sequence[State] = (),
        seen_by: str | None = None,
        words: Sequence[str] = (),
        order: TaskOrder,
        skip: int,
        limit: int,
    ) -> list[Task]:
        ordered = (*_ORDERS[order], tasks.c.id.desc())
        # Ids are ordered first, so that only the cards of this page are read.
        page = select(tasks.c.id).where(*_listed(states, seen_by, words))
        page = page.order_by(*ordered).offset(skip).limit(limit)
        query = select(*_TASK_COLUMNS).where(tasks.c.id.in_(page)).order_by(*ordered)
        return [_task(row) for row in self._run(query)]

    def count_tasks(
        self, *, states: Sequence[State] = (), seen_by: str | None = None, words: Sequence[str] = ()
    ) -> int:
        query = select(func.count()).select_from(tasks).where(*_listed(states, seen_by, words))
        return int(self._run(query).scalar_one())

    def active_tasks(self) -> list[Task]:
        query = select(*_TASK_COLUMNS).where(*_listed(tuple(ACTIVE), None))
        return [_task(row) for row in self._run(query.order_by(tasks.c.id))]

    def versions(self, tasks: Collection[str]) -> dict[str, TaskVersion]:
        rows = self._run(_VERSIONS, {"ids": list(tasks)})
        return {
            row.id: TaskVersion(State(row.state), row.last_sequence + 1, row.round) for row in rows
        }

    def append_event(self, event: Event) -> None:
        body = canonical(dict(event.body)).decode()
        if not self._add(events, vars(event) | {"body": body}):
            raise Conflict(f"task {event.task} has an event {event.sequence} already")

    def events(self, task: str, *, after: int = -1, limit: int) -> list[Event]:
        query = (
            select(events)
            .where(events.c.task == task, events.c.sequence > after)
            .order_by(events.c.sequence)
            .limit(limit)
        )
        return [_event(row) for row in self._run(query)]

    def add_opening(self, number: int, task: Task) -> None:
        opening = {"number": number, "task": task.id, "sequence": task.last_sequence}
        if not self._add(openings, opening):
            raise Conflict(f"there is an opening {number}, or one of task {task.id}, already")

    def last_opening(self, *, lock: bool = False) -> Event | None:
        if lock and not self._sqlite:  # SQLite has one writer at a time
            self._run(text("LOCK TABLE openings IN SHARE ROW EXCLUSIVE MODE"))
        row = self._run(_OPENED.order_by(openings.c.number.desc()).limit(1)).first()
        return row and _event(row)

    def openings(self, *, after: int = -1, limit: int) -> list[Event]:
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
        "words": " ".join((task.card.goal, task.card.data, task.buyer, task.id)).casefold(),
        "promised": promised_micro(task.card),
    }


def _listed(
    states: Sequence[State], seen_by: str | None, words: Sequence[str] = ()
) -> list[ColumnElement[bool]]:
    """Return the conditions of a list of tasks."""
    conditions: list[ColumnElement[bool]] = []
    if states:
        conditions.append(tasks.c.state.in_([str(state) for state in states]))
    if seen_by is not None:
        cancelled_draft = and_(tasks.c.state == State.CANCELLED.value, tasks.c.last_sequence < 2)
        never_opened = or_(tasks.c.state == State.DRAFT.value, cancelled_draft)
        conditions.append(or_(not_(never_opened), tasks.c.buyer == seen_by))
    conditions += [tasks.c.words.contains(word, autoescape=True) for word in words]
    return conditions


@lru_cache(maxsize=256)
def _card(text: str) -> TaskCard:
    """Return a card; it never changes, and most requests are about a few of them."""
    return TaskCard.of(json.loads(text))


def _task(row: Row[Any]) -> Task:
    totals = tuple(json.loads(row.totals))
    parsed = {"card": _card(row.card), "state": State(row.state), "totals": totals}
    return Task(**{**row._mapping, **parsed})


def _no_task(task: str) -> NotFound:
    return NotFound(f"there is no task {task!r:.60}")
