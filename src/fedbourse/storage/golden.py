"""What a database must have besides its tables, read off the schema, and what of it is gone."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import (
    CheckConstraint,
    ForeignKeyConstraint,
    PrimaryKeyConstraint,
    UniqueConstraint,
    inspect,
    text,
)

from fedbourse.storage.schema import metadata
from fedbourse.storage.triggers import Trigger, create_statements, triggers

if TYPE_CHECKING:
    from sqlalchemy import Connection

_KINDS: dict[type, str] = {
    CheckConstraint: "check",
    ForeignKeyConstraint: "foreign key",
    PrimaryKeyConstraint: "primary key",
    UniqueConstraint: "unique",
}

_LOOKED_AT_MAX = 16

# Those that are switched off, or not enforced, count as gone.
_TRIGGERS_POSTGRESQL = text("""
    SELECT tgname, tgrelid::regclass::text, prosrc FROM pg_trigger
    JOIN pg_proc ON pg_proc.oid = tgfoid
    WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')
      AND tgrelid IN (SELECT oid FROM pg_class WHERE pg_table_is_visible(oid))""")
_CONSTRAINTS_POSTGRESQL = text("""
    SELECT conname FROM pg_constraint
    WHERE conrelid IN (SELECT oid FROM pg_class WHERE pg_table_is_visible(oid)) AND convalidated""")
_INDEXES_POSTGRESQL = text("""
    SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indisvalid AND pg_table_is_visible(indexrelid)""")


@cache
def required(dialect: str) -> dict[str, str]:
    """Return every table, index, constraint and trigger, with the text of triggers and checks."""
    found: dict[str, str] = {}
    for table in metadata.sorted_tables:
        found[f"table {table.name}"] = ""
        for index in table.indexes:
            found[f"index {index.name}"] = ""
        for constraint in table.constraints:
            kind = _KINDS[type(constraint)]
            is_text = dialect == "sqlite" and isinstance(constraint, CheckConstraint)
            found[f"{kind} {constraint.name}"] = (
                _plain(str(constraint.sqltext))
                if is_text and isinstance(constraint, CheckConstraint)
                else ""
            )
    for trigger in triggers(dialect):
        found[f"trigger {trigger.name}"] = _trigger_text(trigger, dialect)
    return found


def missing(connection: Connection) -> list[str]:
    """Return what is gone, or does something else than it should, by name."""
    dialect = connection.dialect.name
    there = _there_sqlite(connection) if dialect == "sqlite" else _there_postgresql(connection)
    return sorted(name for name, text in required(dialect).items() if there.get(name) != text)


_LOOKED_AT: OrderedDict[tuple[tuple[str, ...], ...], dict[str, str]] = OrderedDict()
"""What SQLite databases have, by the statements that made them, from which all of it follows."""


def _there_sqlite(connection: Connection) -> dict[str, str]:
    rows = connection.execute(text("SELECT type, name, sql FROM sqlite_master"))
    made = tuple((kind, name, sql or "") for kind, name, sql in rows)
    if made not in _LOOKED_AT:
        _LOOKED_AT[made] = _looked_at(connection, made)
        if len(_LOOKED_AT) > _LOOKED_AT_MAX:
            _LOOKED_AT.popitem(last=False)
    return _LOOKED_AT[made]


def _looked_at(connection: Connection, made: tuple[tuple[str, ...], ...]) -> dict[str, str]:
    found = {f"{kind} {name}": _plain(sql) if kind == "trigger" else "" for kind, name, sql in made}
    inspector = inspect(connection)
    for table in metadata.tables.keys() & set(inspector.get_table_names()):
        for check in inspector.get_check_constraints(table):
            found[f"check {check['name']}"] = _plain(check["sqltext"])
        for key in inspector.get_foreign_keys(table):
            found[f"foreign key {key['name']}"] = ""
        for unique in inspector.get_unique_constraints(table):
            found[f"unique {unique['name']}"] = ""
        found[f"primary key {inspector.get_pk_constraint(table)['name']}"] = ""
    return found


def _there_postgresql(connection: Connection) -> dict[str, str]:
    found = {f"trigger {name}": _plain(body) for name, _, body in _rows(connection)}
    constraints = connection.scalars(_CONSTRAINTS_POSTGRESQL).all()
    for kind in _KINDS.values():
        found |= {f"{kind} {name}": "" for name in constraints}
    found |= {f"index {name}": "" for name in connection.scalars(_INDEXES_POSTGRESQL)}
    found |= {f"table {name}": "" for name in inspect(connection).get_table_names()}
    return found


def _rows(connection: Connection) -> list[tuple[str, str, str]]:
    return [(name, table, body) for name, table, body in connection.execute(_TRIGGERS_POSTGRESQL)]


def _trigger_text(trigger: Trigger, dialect: str) -> str:
    if dialect == "sqlite":
        return _plain(create_statements(trigger, dialect)[0])
    return _plain(trigger.body)


def _plain(sql: str) -> str:
    return " ".join(sql.split())
