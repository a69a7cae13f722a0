"""What all parts of a transaction share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Executable, Select, Table, func
from sqlalchemy.dialects import postgresql, sqlite

from fedbourse.errors import InvalidNumber
from fedbourse.market.ports import Lock
from fedbourse.storage.engine import Database


class BaseTransaction:
    """An open transaction."""

    def __init__(self, connection: Connection, database: Database, *, writes: bool) -> None:
        self._connection = connection
        self._database = database
        self._writes = writes
        self.on_commit: list[Callable[[], None]] = []

    def after_commit(self, work: Callable[[], None]) -> None:
        """Do this once the transaction is committed; never where it is rolled back."""
        self.on_commit.append(work)

    @property
    def _sqlite(self) -> bool:
        return self._database.kind == "sqlite"

    def _run(self, statement: Executable, values: Any = None) -> Any:
        """Run a statement; the types of its rows are those of the schema."""
        return self._connection.execute(statement, values)

    def _changed(self, statement: Executable, values: Any = None) -> bool:
        """Run a statement; return whether it changed a row."""
        counting = statement.execution_options(preserve_rowcount=True)
        return bool(self._run(counting, values).rowcount > 0)

    def _insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        return sqlite.insert(table) if self._sqlite else postgresql.insert(table)

    def _add(self, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert a row; return False where there is one with its key."""
        return bool(self._run(_insert_new(table, self._sqlite), dict(values)).rowcount > 0)

    def _put(self, table: Table, values: Mapping[str, Any]) -> None:
        """Insert a row, or replace the one with its key."""
        keys = [column.name for column in table.primary_key]
        others = {name: value for name, value in values.items() if name not in keys}
        self._run(
            self._insert(table)
            .values(**values)
            .on_conflict_do_update(index_elements=keys, set_=others)
        )

    def _locked(self, statement: Select[Any], lock: Lock) -> Select[Any]:
        # On SQLite there is one writer at a time, and a reader has a snapshot anyway.
        if lock == "none" or self._sqlite or not self._writes:
            return statement
        return _lock_rows(statement, lock)


# Building a statement costs more than running it: those of every request are cached.
@lru_cache(maxsize=64)
def _insert_new(table: Table, to_sqlite: bool) -> Executable:
    insert = sqlite.insert(table) if to_sqlite else postgresql.insert(table)
    return insert.on_conflict_do_nothing().execution_options(preserve_rowcount=True)


@lru_cache(maxsize=64)
def _lock_rows(statement: Select[Any], lock: Lock) -> Select[Any]:
    # "change" does not block those who only refer to the row.
    return statement.with_for_update(read=lock == "share", key_share=lock == "change")


def few(condition: ColumnElement[bool], to_sqlite: bool) -> ColumnElement[bool]:
    """Tell SQLite that few rows meet a condition.

    It has no statistics here, and would search all rows of a task for one owner.
    """
    return func.unlikely(condition) if to_sqlite else condition


def storable(name: str, number: float | None) -> float | None:
    """Return a number that every database stores exactly, and refuse others.

    SQLite stores negative zero as zero, and NaN as NULL.
    """
    if number is None:
        return None
    if not math.isfinite(number) or (number == 0 and math.copysign(1.0, number) < 0):
        raise InvalidNumber(
            f"{name} must be a finite number, and zero without a sign; found {number}"
        )
    return float(number)
