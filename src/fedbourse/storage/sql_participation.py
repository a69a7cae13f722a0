"""Interests, replies to ticks and settlements in SQL: lists of a million rows."""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
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

from fedbourse.errors import NotFound
from fedbourse.market.ports import AT_ONCE
from fedbourse.market.task import Exit, Interest, Line, TickReply
from fedbourse.storage.schema import exits, interests, lines, nodes, replies, responses
from fedbourse.storage.unit import Part, storable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from fedbourse.market.ports import Lock, Said
    from fedbourse.market.task import LineState
    from fedbourse.units import MicroCredits

_AT_ONCE = 10_000
_LINE = select(lines).where(lines.c.task == bindparam("task"), lines.c.owner == bindparam("owner"))
_COUNT_LINES = (
    select(func.count())
    .select_from(lines)
    .where(lines.c.task == bindparam("task"), lines.c.state == bindparam("state"))
)
_DELIVER = (
    update(lines)
    .where(lines.c.task == bindparam("of_task"), lines.c.owner == bindparam("of_owner"))
    .values(answered=bindparam("now_answered"), earned=bindparam("now_earned"))
)
_COUNT_REPLIES = (
    select(func.count())
    .select_from(replies)
    .where(replies.c.task == bindparam("task"), replies.c.tick == bindparam("tick"))
)
_TABLES = {table.name: table for table in (interests, lines)}
_LINE_COLUMNS = tuple(column.name for column in lines.columns)


class SqlParticipation(Part):
    """``market.ports.Participation``."""

    def put_interest(self, interest: Interest) -> None:
        """Store an interest, in place of an earlier one of the same owner."""
        self._put(interests, vars(interest) | {"value": storable("a value", interest.value)})

    def interest(self, task: str, owner: str) -> Interest | None:
        """Return an owner's interest."""
        row = self._run(select(interests).where(_whose(interests, task, owner))).first()
        return row and Interest(*row)

    def interests(self, task: str, *, after: str = "", limit: int | None = None) -> list[Interest]:
        """Return those whose owner's name comes after this one."""
        return [Interest(*row) for row in self._page(interests, task, after, limit)]

    def count_interests(self, task: str) -> int:
        """Return how many there are."""
        return self._count(interests, interests.c.task == task)

    def counts_of_interests(self, tasks: Collection[str]) -> dict[str, int]:
        """Return how many there are in each task; where there are none it is left out."""
        query = select(interests.c.task, func.count()).where(interests.c.task.in_(tasks))
        return dict(self._run(query.group_by(interests.c.task)).all())

    def columns(
        self, said: Said, task: str, *names: str, at_once: int = AT_ONCE
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        """Return these columns of all owners' interests or lines, so many at a time."""
        table = _TABLES[said]
        return self._columns(table, table.c.task == task, names, at_once)

    def _columns(
        self, table: Table, which: ColumnElement[bool], names: tuple[str, ...], at_once: int
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        # Pages along the key, and no cursor of the server's: one that is left open does not outlive
        # a savepoint that is undone, and closing it then would break the transaction.
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
        """Return how many owners have told their values."""
        return self._count(interests, _told(task))

    def report_number(self, task: str, number: int) -> tuple[int, str]:
        """Return when, and by whom, this one of the values that are told came in; 1 is first."""
        order = interests.c.at_ms, interests.c.owner
        query = select(*order).where(_told(task)).order_by(*order).offset(number - 1).limit(1)
        at_ms, owner = self._run(query).one()
        return int(at_ms), str(owner)

    def put_reply(self, reply: TickReply) -> None:
        """Store a reply, in place of an earlier one to the same tick."""
        self._put(replies, vars(reply) | {"budget": storable("a budget", reply.budget)})

    def replies_of(self, task: str, owner: str) -> list[TickReply]:
        """Return an owner's replies, by tick."""
        return self.replies(task, [owner]).get(owner, [])

    def replies(self, task: str, owners: Collection[str]) -> dict[str, list[TickReply]]:
        """Return the replies of several owners, each by tick."""
        query = select(replies).where(replies.c.task == task, replies.c.owner.in_(owners))
        by_owner: dict[str, list[TickReply]] = {}
        for row in self._run(query.order_by(replies.c.owner, replies.c.tick)):
            by_owner.setdefault(row.owner, []).append(TickReply(*row))
        return by_owner

    def replies_in(
        self, task: str, tick: int, *names: str, at_once: int = AT_ONCE
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        """Return these columns of all replies to a tick of owners who are not out of the task."""
        which = and_(replies.c.task == task, replies.c.tick == tick, ~_is_out(replies))
        return self._columns(replies, which, names, at_once)

    def count_replies(self, task: str, tick: int) -> int:
        """Return how many owners have replied to this tick."""
        return int(self._run(_COUNT_REPLIES, {"task": task, "tick": tick}).scalar_one())

    def count_asked(self, task: str, *, total_budget: float) -> int:
        """Return how many owners must reply to this total: not out, and no zero below it."""
        return self._count(interests, _is_asked(task, total_budget))

    def miss_tick(self, task: str, *, tick: int, total_budget: float, at_ms: int) -> int:
        """Close a tick: who had to reply and did not is out; return how many."""
        here = and_(
            replies.c.task == task, replies.c.tick == tick, replies.c.owner == interests.c.owner
        )
        silent = ~select(replies.c.owner).where(here).exists()
        gone: list[Any] = [literal(tick), literal("missed"), literal(at_ms)]
        missed = select(interests.c.task, interests.c.owner, *gone).where(
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
        """Store that an owner is out of a task, unless it is already."""
        self._add(exits, vars(gone))

    def withdraw(self, gone: Exit, *, from_interests: bool) -> None:
        """Store that an owner has left, and forget its replies; its interest too where asked."""
        self.add_exit(gone)
        own = _whose(replies, gone.task, gone.owner)
        self._run(delete(replies).where(own, replies.c.tick == gone.tick))
        self._run(update(replies).where(own).values(budget=None, salt=""))
        if from_interests:
            self._run(delete(interests).where(_whose(interests, gone.task, gone.owner)))
        self._forget_responses(gone.task, gone.owner)

    def exit(self, task: str, owner: str) -> Exit | None:
        """Return how an owner got out of a task; None where it did not."""
        row = self._run(select(exits).where(_whose(exits, task, owner))).first()
        return row and Exit(*row)

    def exits(self, task: str, owners: Collection[str]) -> dict[str, Exit]:
        """Return how several owners got out of a task; who did not is left out."""
        query = select(exits).where(exits.c.task == task, exits.c.owner.in_(owners))
        return {row.owner: Exit(*row) for row in self._run(query)}

    def count_exits(self, task: str) -> int:
        """Return how many of those whose interest is kept are out."""
        kept = and_(interests.c.task == exits.c.task, interests.c.owner == exits.c.owner)
        interested = select(interests.c.owner).where(kept).exists()
        return self._count(exits, and_(exits.c.task == task, interested))

    def add_lines(self, lines: Iterable[Line]) -> None:
        """Store a settlement: up to a million lines."""
        rows = _rows_of(lines)
        if self._sqlite:
            self._add_lines_sqlite(rows)
        else:
            self._add_lines_postgresql(rows)

    def _add_lines_sqlite(self, rows: Iterator[tuple[Any, ...]]) -> None:
        statement = str(insert(lines).compile(dialect=self._connection.dialect))
        while some := list(islice(rows, _AT_ONCE)):
            self._connection.exec_driver_sql(statement, some)

    def _add_lines_postgresql(self, rows: Iterator[tuple[Any, ...]]) -> None:
        driver: Any = self._connection.connection.driver_connection
        statement = f"COPY lines ({', '.join(_LINE_COLUMNS)}) FROM STDIN"
        # Lines may be made of what is read here: nothing else can be asked while a COPY runs.
        while some := list(islice(rows, _AT_ONCE)):
            self._copy(driver, statement, some)

    def _copy(self, driver: Any, statement: str, rows: list[tuple[Any, ...]]) -> None:
        try:
            with driver.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except Exception as error:
            ours = self._database.explain(error)
            if ours is None:
                raise
            raise ours from error

    def line(self, task: str, owner: str, *, lock: Lock = "none") -> Line | None:
        """Return an owner's line."""
        row = self._run(self._locked(_LINE, lock), {"task": task, "owner": owner}).first()
        return row and Line(*row)

    def lines(self, task: str, *, after: str = "", limit: int | None = None) -> list[Line]:
        """Return lines whose owner's name comes after this one."""
        return [Line(*row) for row in self._page(lines, task, after, limit)]

    def count_lines(self, task: str, *, state: LineState | None = None) -> int:
        """Return how many lines there are, or how many are in a state."""
        if state is None:
            return self._count(lines, lines.c.task == task)
        return int(self._run(_COUNT_LINES, {"task": task, "state": state}).scalar_one())

    def drop_lines(self, task: str) -> None:
        """Forget a settlement that is made again, with the nodes of its tree."""
        self._run(delete(nodes).where(nodes.c.task == task))
        self._run(delete(lines).where(lines.c.task == task))

    def decide_line(
        self, task: str, owner: str, state: LineState, *, signature: str | None = None
    ) -> None:
        """Store that an owner signed or declined."""
        statement = update(lines).where(_whose(lines, task, owner))
        if not self._changed(statement.values(state=state, signature=signature)):
            raise _no_line(task, owner)

    def deliver(self, task: str, owner: str, *, answered: int, earned: MicroCredits) -> None:
        """Store how many rounds an owner has delivered, and what it has earned in all."""
        whose = {"of_task": task, "of_owner": owner}
        if not self._changed(_DELIVER, whose | {"now_answered": answered, "now_earned": earned}):
            raise _no_line(task, owner)

    def earn(self, task: str, owner: str, amount: int) -> None:
        """Add to what an owner has earned."""
        statement = update(lines).where(_whose(lines, task, owner))
        if not self._changed(statement.values(earned=lines.c.earned + amount)):
            raise _no_line(task, owner)

    def erase(self, task: str, owner: str) -> None:
        """Forget an owner's value, budgets and salts in a task; the hashes and payment stay."""
        for table, secret in ((interests, "value"), (replies, "budget"), (lines, "budget")):
            values = {secret: None, "salt": ""}
            self._run(update(table).where(_whose(table, task, owner)).values(**values))
        self._forget_responses(task, owner)

    def _forget_responses(self, task: str, owner: str) -> None:
        """Forget what was answered to an owner's writes: it repeats what it said."""
        said = and_(responses.c.caller == owner, responses.c.body.contains(f'"task":"{task}"'))
        self._run(delete(responses).where(said))

    def _page(self, table: Table, task: str, after: str, limit: int | None) -> Any:
        query = select(table).where(table.c.task == task, table.c.owner > after)
        return self._run(query.order_by(table.c.owner).limit(limit))

    def _count(self, table: Table, which: ColumnElement[bool]) -> int:
        return int(self._run(select(func.count()).select_from(table).where(which)).scalar_one())


def _rows_of(found: Iterable[Line]) -> Iterator[tuple[Any, ...]]:
    columns = attrgetter(*_LINE_COLUMNS)
    for line in found:
        storable("a budget", line.budget)
        yield columns(line)


def _whose(table: Table, task: str, owner: str) -> ColumnElement[bool]:
    return and_(table.c.task == task, table.c.owner == owner)


def _is_out(table: Table) -> ColumnElement[bool]:
    same = and_(exits.c.task == table.c.task, exits.c.owner == table.c.owner)
    return select(exits.c.owner).where(same).exists()


def _is_asked(task: str, total_budget: float) -> ColumnElement[bool]:
    """Say who must reply to this total: whoever is not out, and said zero to none below it."""
    open_to = or_(interests.c.zero_from.is_(None), interests.c.zero_from > total_budget)
    return and_(interests.c.task == task, open_to, ~_is_out(interests))


def _told(task: str) -> ColumnElement[bool]:
    return and_(interests.c.task == task, interests.c.value.is_not(None))


def _no_line(task: str, owner: str) -> NotFound:
    return NotFound(f"task {task!r:.60} has no line of {owner!r:.80}")
