"""What all parts of a transaction share."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects import postgresql, sqlite

from fedbourse.errors import InvalidNumber

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, Executable, Select, Table

    from fedbourse.market.ports import Lock
    from fedbourse.storage.engine import Database


class Part:
    """An open transaction."""

    def __init__(self, connection: Connection, database: Database, *, writes: bool) -> None:
        """Work on this connection, whose transaction somebody else begins and ends."""
        self._connection = connection
        self._database = database
        self._writes = writes

    @property
    def _sqlite(self) -> bool:
        return self._database.kind == "sqlite"

    def _run(self, statement: Executable, values: Any = None) -> Any:
        """Run a statement; what rows hold is known to the schema, not to the types."""
        return self._connection.execute(statement, values)

    def _changed(self, statement: Executable, values: Any = None) -> bool:
        """Run a statement and say whether it changed a row."""
        counting = statement.execution_options(preserve_rowcount=True)
        return bool(self._run(counting, values).rowcount > 0)

    def _insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        return sqlite.insert(table) if self._sqlite else postgresql.insert(table)

    def _add(self, table: Table, values: Mapping[str, Any]) -> bool:
        """Store a row, or say that one with its key is there already."""
        return bool(self._run(_adding(table, self._sqlite), dict(values)).rowcount > 0)

    def _put(self, table: Table, values: Mapping[str, Any]) -> None:
        """Store a row in place of one with its key."""
        keys = [column.name for column in table.primary_key]
        others = {name: value for name, value in values.items() if name not in keys}
        self._run(
            self._insert(table)
            .values(**values)
            .on_conflict_do_update(index_elements=keys, set_=others)
        )

    def _locked(self, statement: Select[Any], lock: Lock) -> Select[Any]:
        # On SQLite a transaction that writes is alone, and one that reads sees one moment anyway.
        if lock == "none" or self._sqlite or not self._writes:
            return statement
        return _locking(statement, lock)


# Making a statement costs more than running it, so that those of every request are made once.
@lru_cache(maxsize=64)
def _adding(table: Table, to_sqlite: bool) -> Executable:
    insert = sqlite.insert(table) if to_sqlite else postgresql.insert(table)
    return insert.on_conflict_do_nothing().execution_options(preserve_rowcount=True)


@lru_cache(maxsize=64)
def _locking(statement: Select[Any], lock: Lock) -> Select[Any]:
    # "change" leaves those alone who only refer to the row.
    return statement.with_for_update(read=lock == "share", key_share=lock == "change")


def storable(name: str, number: float | None) -> float | None:
    """Return a number that every database keeps to the bit, and refuse others.

    SQLite stores negative zero as zero, and what is not a number as nothing.
    """
    if number is None:
        return None
    if not math.isfinite(number) or (number == 0 and math.copysign(1.0, number) < 0):
        raise InvalidNumber(
            f"{name} must be a finite number, and zero without a sign; found {number}"
        )
    return float(number)
