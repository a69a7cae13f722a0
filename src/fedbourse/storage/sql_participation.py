"""Interests, tick replies and allocations in SQL: lists of a million rows."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import sqlite

from fedbourse.errors import NotFound
from fedbourse.market.ports import AT_ONCE
from fedbourse.market.records import Allocation, Exit, Interest, TickReply
from fedbourse.storage.identity_tables import responses
from fedbourse.storage.schema import allocations, exits, interests, nodes, replies
from fedbourse.storage.transaction import BaseTransaction, few, storable
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from fedbourse.market.ports import Lock, Said
    from fedbourse.market.records import AllocationState

_AT_ONCE = 10_000


def _owned(table: Table) -> Select[Any]:
    whose = table.c.task == bindparam("task"), table.c.owner == bindparam("owner")
    return select(table).where(*whose)


_ALLOCATION, _INTEREST, _EXIT = _owned(allocations), _owned(interests), _owned(exits)
_COUNT_ALLOCATIONS = (
    select(func.count())
    .select_from(allocations)
    .where(allocations.c.task == bindparam("task"), allocations.c.state == bindparam("state"))
)
_DELIVER = (
    update(allocations)
    .where(allocations.c.task == bindparam("of_task"), allocations.c.owner == bindparam("of_owner"))
    .values(
        delivered=bindparam("now_delivered"),
        earned=bindparam("now_earned"),
        held=bindparam("now_held"),
    )
)
_COUNT_REPLIES = (
    select(func.count())
    .select_from(replies)
    .where(replies.c.task == bindparam("task"), replies.c.tick == bindparam("tick"))
)


@lru_cache
def _replies_of(sqlite: bool) -> Select[Any]:
    whose = few(replies.c.owner == bindparam("owner"), sqlite)
    query = select(replies).where(replies.c.task == bindparam("task"), whose)
    return query.order_by(replies.c.tick)


_TABLES = {table.name: table for table in (interests, allocations)}
_ALLOCATION_COLUMNS = tuple(column.name for column in allocations.columns)
_INSERT_ALLOCATIONS = str(insert(allocations).compile(dialect=sqlite.dialect()))
_COPY_ALLOCATIONS = f"COPY {allocations.name} ({', '.join(_ALLOCATION_COLUMNS)}) FROM STDIN"


class SqlParticipation(BaseTransaction):
    """``market.ports.Participation``."""

    def put_interest(self, interest: Interest) -> None:
        self._put(interests, vars(interest) | {"value": storable("a value", interest.value)})

    def interest(self, task: str, owner: str) -> Interest | None:
        row = self._run(_INTEREST, {"task": task, "owner": owner}).first()
        return row and Interest(*row)

    def interests(self, task: str, *, after: str = "", limit: int | None = None) -> list[Interest]:
        return [Interest(*row) for row in self._page(interests, task, after, limit)]

    def count_interests(self, task: str) -> int:
        return self._count(interests, interests.c.task == task)

    def counts_of_interests(self, tasks: Collection[str]) -> dict[str, int]:
        cached = self._database.counts.of(tasks)
        others = [task for task in tasks if task not in cached]
        if not others:
            return cached
        query = select(interests.c.task, func.count()).where(interests.c.task.in_(others))
        counts = dict(self._run(query.group_by(interests.c.task)).all())
        self._database.counts.keep(counts)
        return cached | counts

    def columns(
        self, said: Said, task: str, *names: str, at_once: int = AT_ONCE
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        table = _TABLES[said]
        return self._columns(table, table.c.task == task, names, at_once)

    def _columns(
        self, table: Table, which: ColumnElement[bool], names: tuple[str, ...], at_once: int
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        # Pages by key instead of a cursor on the server: an open one does not survive the rollback
        # of a savepoint, and closing it then would break the transaction.
        after = ""
        query = select(table.c.owner, *(table.c[name] for name in names))
        query = query.where(which, table.c.owner > bindparam("after"))
        query = query.order_by(table.c.owner).limit(at_once)
        while rows := self._run(query, {"after": after}).all():
            owners, *columns = zip(*rows, strict=True)
            yield tuple(columns)
            if len(rows) < at_once:
                return
            after = owners[-1]

    def count_reported(self, task: str) -> int:
        return self._count(interests, _reported(task))

    def report_number(self, task: str, number: int) -> tuple[int, str]:
        order = interests.c.at_ms, interests.c.owner
        query = select(*order).where(_reported(task)).order_by(*order).offset(number - 1).limit(1)
        at_ms, owner = self._run(query).one()
        return int(at_ms), str(owner)

    def put_reply(self, reply: TickReply) -> None:
        self._put(replies, vars(reply) | {"budget": storable("a budget", reply.budget)})

    def replies_of(self, task: str, owner: str) -> list[TickReply]:
        rows = self._run(_replies_of(self._sqlite), {"task": task, "owner": owner})
        return [TickReply(*row) for row in rows]

    def replies(self, task: str, owners: Collection[str]) -> dict[str, list[TickReply]]:
        whose = few(replies.c.owner.in_(owners), self._sqlite)
        query = select(replies).where(replies.c.task == task, whose)
        by_owner: dict[str, list[TickReply]] = {}
        for row in self._run(query.order_by(replies.c.owner, replies.c.tick)):
            by_owner.setdefault(row.owner, []).append(TickReply(*row))
        return by_owner

    def replies_in(
        self, task: str, tick: int, *names: str, at_once: int = AT_ONCE
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        which = and_(replies.c.task == task, replies.c.tick == tick, ~_is_out(replies))
        return self._columns(replies, which, names, at_once)

    def count_replies(self, task: str, tick: int) -> int:
        return int(self._run(_COUNT_REPLIES, {"task": task, "tick": tick}).scalar_one())

    def count_asked(self, task: str, *, total_budget: float) -> int:
        return self._count(interests, _is_asked(task, total_budget))

    def miss_tick(self, task: str, *, tick: int, total_budget: float, at_ms: int) -> int:
        here = and_(
            replies.c.task == task, replies.c.tick == tick, replies.c.owner == interests.c.owner
        )
        silent = ~select(replies.c.owner).where(here).exists()
        reason: list[Any] = [literal(tick), literal("missed"), literal(at_ms)]
        missed = select(interests.c.task, interests.c.owner, *reason).where(
            _is_asked(task, total_budget), silent
        )
        columns = ["task", "owner", "tick", "reason", "at_ms"]
        adding = insert(exits).from_select(columns, missed)
        count = self._run(adding.execution_options(preserve_rowcount=True)).rowcount
        zero = select(replies.c.owner).where(here, replies.c.budget == 0).exists()
        self._run(
            update(interests)
            .where(_is_asked(task, total_budget), zero)
            .values(zero_from=total_budget)
        )
        return int(count)

    def add_exit(self, gone: Exit) -> None:
        self._add(exits, vars(gone))

    def leave_task(self, gone: Exit, *, from_interests: bool) -> None:
        self.add_exit(gone)
        own = self._whose(replies, gone.task, gone.owner)
        self._run(delete(replies).where(own, replies.c.tick == gone.tick))
        self._run(update(replies).where(own).values(budget=None, salt=""))
        if from_interests:
            self._run(delete(interests).where(self._whose(interests, gone.task, gone.owner)))
        self._forget_responses(gone.task, gone.owner)

    def exit(self, task: str, owner: str) -> Exit | None:
        row = self._run(_EXIT, {"task": task, "owner": owner}).first()
        return row and Exit(*row)

    def exits(self, task: str, owners: Collection[str]) -> dict[str, Exit]:
        query = select(exits).where(exits.c.task == task, exits.c.owner.in_(owners))
        return {row.owner: Exit(*row) for row in self._run(query)}

    def count_exits(self, task: str) -> int:
        same = and_(interests.c.task == exits.c.task, interests.c.owner == exits.c.owner)
        interested = select(interests.c.owner).where(same).exists()
        return self._count(exits, and_(exits.c.task == task, interested))

    def add_allocations(self, allocations: Iterable[Allocation]) -> None:
        rows = _rows_of(allocations)
        # In batches: what makes allocations may read here, which it cannot while a COPY runs.
        while batch := list(islice(rows, _AT_ONCE)):
            if self._sqlite:
                self._connection.exec_driver_sql(_INSERT_ALLOCATIONS, batch)
            else:
                self._copy_allocations(batch)

    def _copy_allocations(self, rows: list[tuple[Any, ...]]) -> None:
        driver: Any = self._connection.connection.driver_connection
        try:
            with driver.cursor() as cursor, cursor.copy(_COPY_ALLOCATIONS) as copy:
                for row in rows:
                    copy.write_row(row)
        except Exception as error:
            explained = self._database.explain(error)
            if explained is None:
                raise
            raise explained from error

    def allocation(self, task: str, owner: str, *, lock: Lock = "none") -> Allocation | None:
        row = self._run(self._locked(_ALLOCATION, lock), {"task": task, "owner": owner}).first()
        return row and Allocation(*row)

    def allocations(
        self, task: str, *, after: str = "", limit: int | None = None
    ) -> list[Allocation]:
        return [Allocation(*row) for row in self._page(allocations, task, after, limit)]

    def count_allocations(self, task: str, *, state: AllocationState | None = None) -> int:
        if state is None:
            return self._count(allocations, allocations.c.task == task)
        return int(self._run(_COUNT_ALLOCATIONS, {"task": task, "state": state}).scalar_one())

    def drop_allocations(self, task: str) -> None:
        self._run(delete(nodes).where(nodes.c.task == task))
        self._run(delete(allocations).where(allocations.c.task == task))

    def decide_allocation(
        self, task: str, owner: str, state: AllocationState, *, signature: str | None = None
    ) -> None:
        self._update_allocation(task, owner, state=state, signature=signature)

    def _update_allocation(self, task: str, owner: str, **values: object) -> None:
        statement = update(allocations).where(self._whose(allocations, task, owner))
        if not self._changed(statement.values(**values)):
            raise _no_allocation(task, owner)

    def deliver(
        self, task: str, owner: str, *, delivered: int, earned: MicroCredits, held: MicroCredits
    ) -> None:
        now = {"now_delivered": delivered, "now_earned": earned, "now_held": held}
        if not self._changed(_DELIVER, {"of_task": task, "of_owner": owner} | now):
            raise _no_allocation(task, owner)

    def judge_allocation(
        self, task: str, owner: str, state: AllocationState, *, earned: int, held: int
    ) -> None:
        self._update_allocation(task, owner, state=state, earned=earned, held=held)

    def earn(self, task: str, owner: str, amount: int) -> None:
        self._update_allocation(task, owner, earned=allocations.c.earned + amount)

    def earned(self, owner: str) -> MicroCredits:
        # Whoever has an allocation was interested; interests have an index by owner.
        own = and_(allocations.c.task == interests.c.task, allocations.c.owner == interests.c.owner)
        query = select(func.sum(allocations.c.earned)).select_from(interests.join(allocations, own))
        total = self._run(query.where(interests.c.owner == owner)).scalar()
        return MicroCredits(int(total or 0))

    def erase(self, task: str, owner: str) -> None:
        for table, secret in ((interests, "value"), (replies, "budget"), (allocations, "budget")):
            values = {secret: None, "salt": ""}
            self._run(update(table).where(self._whose(table, task, owner)).values(**values))
        self._forget_responses(task, owner)

    def _forget_responses(self, task: str, owner: str) -> None:
        """Delete the responses to an owner's writes, which repeat what it sent."""
        own = and_(responses.c.caller == owner, responses.c.body.contains(f'"task":"{task}"'))
        self._run(delete(responses).where(own))

    def _whose(self, table: Table, task: str, owner: str) -> ColumnElement[bool]:
        return and_(table.c.task == task, few(table.c.owner == owner, self._sqlite))

    def _page(self, table: Table, task: str, after: str, limit: int | None) -> Any:
        query = select(table).where(table.c.task == task, table.c.owner > after)
        return self._run(query.order_by(table.c.owner).limit(limit))

    def _count(self, table: Table, which: ColumnElement[bool]) -> int:
        return int(self._run(select(func.count()).select_from(table).where(which)).scalar_one())


def _rows_of(settled: Iterable[Allocation]) -> Iterator[tuple[Any, ...]]:
    columns = attrgetter(*_ALLOCATION_COLUMNS)
    for allocation in settled:
        storable("a budget", allocation.budget)
        yield columns(allocation)


def _is_out(table: Table) -> ColumnElement[bool]:
    same = and_(exits.c.task == table.c.task, exits.c.owner == table.c.owner)
    return select(exits.c.owner).where(same).exists()


def _is_asked(task: str, total_budget: float) -> ColumnElement[bool]:
    """Select who must reply to this total: not out, and without a zero at a smaller total."""
    open_to = or_(interests.c.zero_from.is_(None), interests.c.zero_from > total_budget)
    return and_(interests.c.task == task, open_to, ~_is_out(interests))


def _reported(task: str) -> ColumnElement[bool]:
    return and_(interests.c.task == task, interests.c.value.is_not(None))


def _no_allocation(task: str, owner: str) -> NotFound:
    return NotFound(f"task {task!r:.60} has no allocation of {owner!r:.80}")
