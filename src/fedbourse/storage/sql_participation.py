"""Interests, plans and settlements in SQL: lists of a million rows."""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Table, and_, bindparam, delete, func, insert, select, update

from fedbourse.errors import NotFound
from fedbourse.market.ports import AT_ONCE
from fedbourse.market.task import Interest, Line, Plan, Withdrawal
from fedbourse.storage.schema import interests, lines, plans, responses, withdrawals
from fedbourse.storage.unit import Part, storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fedbourse.market.ports import Lock, Said
    from fedbourse.market.task import LineState

_AT_ONCE = 10_000
_LINE = select(lines).where(lines.c.task == bindparam("task"), lines.c.owner == bindparam("owner"))
_COUNT_LINES = (
    select(func.count())
    .select_from(lines)
    .where(lines.c.task == bindparam("task"), lines.c.state == bindparam("state"))
)
_COUNT_ANSWER = (
    update(lines)
    .where(lines.c.task == bindparam("of_task"), lines.c.owner == bindparam("of_owner"))
    .values(answered=lines.c.answered + 1)
    .returning(lines.c.answered)
)
_TABLES = {table.name: table for table in (interests, plans, lines)}
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

    def columns(
        self, said: Said, task: str, *names: str, at_once: int = AT_ONCE
    ) -> Iterator[tuple[tuple[Any, ...], ...]]:
        """Return these columns of all owners' interests, plans or lines, so many at a time."""
        # Pages along the key, and no cursor of the server's: one that is left open does not outlive
        # a savepoint that is undone, and closing it then would break the transaction.
        table, after = _TABLES[said], ""
        query = select(table.c.owner, *(table.c[name] for name in names))
        query = query.where(table.c.task == task, table.c.owner > bindparam("after"))
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

    def put_plan(self, plan: Plan) -> None:
        """Store a plan, in place of an earlier one of the same owner."""
        self._put(plans, vars(plan) | {"budget": storable("a budget", plan.budget)})

    def plan(self, task: str, owner: str) -> Plan | None:
        """Return an owner's plan."""
        row = self._run(select(plans).where(_whose(plans, task, owner))).first()
        return row and Plan(*row)

    def plans(self, task: str, *, after: str = "", limit: int | None = None) -> list[Plan]:
        """Return those whose owner's name comes after this one."""
        return [Plan(*row) for row in self._page(plans, task, after, limit)]

    def count_plans(self, task: str, *, tick: int) -> int:
        """Return how many owners have answered this tick."""
        return self._count(plans, and_(plans.c.task == task, plans.c.tick == tick))

    def withdraw(self, withdrawal: Withdrawal, *, from_interests: bool) -> None:
        """Store that an owner has withdrawn, and forget its plan; its interest too where asked."""
        task, owner = withdrawal.task, withdrawal.owner
        self._run(insert(withdrawals).values(**vars(withdrawal)))
        for table in (plans, interests) if from_interests else (plans,):
            self._run(delete(table).where(_whose(table, task, owner)))
        self._forget_responses(task, owner)

    def withdrawal(self, task: str, owner: str) -> Withdrawal | None:
        """Return when an owner has withdrawn; None where it has not."""
        row = self._run(select(withdrawals).where(_whose(withdrawals, task, owner))).first()
        return row and Withdrawal(*row)

    def count_withdrawn(self, task: str) -> int:
        """Return how many of those whose interest is kept have withdrawn."""
        kept = and_(interests.c.task == task, interests.c.owner == withdrawals.c.owner)
        interested = select(interests.c.owner).where(kept).exists()
        return self._count(withdrawals, and_(withdrawals.c.task == task, interested))

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

    def count_lines(self, task: str, *, state: LineState) -> int:
        """Return how many lines are in a state."""
        return int(self._run(_COUNT_LINES, {"task": task, "state": state}).scalar_one())

    def decide_line(
        self, task: str, owner: str, state: LineState, *, signature: str | None = None
    ) -> None:
        """Store that an owner signed or declined."""
        statement = update(lines).where(_whose(lines, task, owner))
        if not self._changed(statement.values(state=state, signature=signature)):
            raise _no_line(task, owner)

    def decline_silent(self, task: str) -> None:
        """Turn every line that is still offered into a declined one."""
        silent = and_(lines.c.task == task, lines.c.state == "offered")
        self._run(update(lines).where(silent).values(state="declined"))

    def count_answer(self, task: str, owner: str) -> int:
        """Add one to an owner's answered rounds and return them."""
        answered = self._run(_COUNT_ANSWER, {"of_task": task, "of_owner": owner}).scalar()
        if answered is None:
            raise _no_line(task, owner)
        return int(answered)

    def erase(self, task: str, owner: str) -> None:
        """Forget an owner's value, budgets and salts in a task; the hashes and payment stay."""
        for table, secret in ((interests, "value"), (plans, "budget"), (lines, "budget")):
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


def _told(task: str) -> ColumnElement[bool]:
    return and_(interests.c.task == task, interests.c.value.is_not(None))


def _no_line(task: str, owner: str) -> NotFound:
    return NotFound(f"task {task!r:.60} has no line of {owner!r:.80}")
