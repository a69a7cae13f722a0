"""Guards: the constraints, indexes and triggers that a database must have, and which are gone."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache

from sqlalchemy import (
    CheckConstraint,
    Connection,
    ForeignKeyConstraint,
    PrimaryKeyConstraint,
    UniqueConstraint,
    inspect,
    text,
)

from fedbourse.storage.schema import metadata
from fedbourse.storage.triggers import create_statements, triggers

_KINDS: dict[type, str] = {
    CheckConstraint: "check",
    ForeignKeyConstraint: "foreign key",
    PrimaryKeyConstraint: "primary key",
    UniqueConstraint: "unique",
}

_SQLITE_MAX = 16

# Guards that are disabled, or not enforced, count as gone.
_TRIGGERS_POSTGRESQL = text("""
    SELECT tgname, prosrc FROM pg_trigger
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
    guards: dict[str, str] = {}
    for table in metadata.sorted_tables:
        guards[f"table {table.name}"] = ""
        for index in table.indexes:
            guards[f"index {index.name}"] = ""
        for constraint in table.constraints:
            shows_text = dialect == "sqlite" and isinstance(constraint, CheckConstraint)
            sql = str(constraint.sqltext) if shows_text else ""  # type: ignore[attr-defined]
            guards[f"{_KINDS[type(constraint)]} {constraint.name}"] = _plain(sql)
    for trigger in triggers(dialect):
        sqlite = dialect == "sqlite"
        sql = create_statements(trigger, dialect)[0] if sqlite else trigger.body
        guards[f"trigger {trigger.name}"] = _plain(sql)
    return guards


def missing(connection: Connection) -> list[str]:
    """Return the guards that are gone, or do something else than they should, by name."""
    dialect = connection.dialect.name
    guards = _guards_sqlite(connection) if dialect == "sqlite" else _guards_postgresql(connection)
    return sorted(name for name, text in required(dialect).items() if guards.get(name) != text)


_SQLITE: OrderedDict[tuple[tuple[str, ...], ...], dict[str, str]] = OrderedDict()
"""The guards of SQLite databases, by the statements that made them, from which they follow."""


def _guards_sqlite(connection: Connection) -> dict[str, str]:
    rows = connection.execute(text("SELECT type, name, sql FROM sqlite_master"))
    statements = tuple((kind, name, sql or "") for kind, name, sql in rows)
    if statements not in _SQLITE:
        _SQLITE[statements] = _inspected(connection, statements)
        if len(_SQLITE) > _SQLITE_MAX:
            _SQLITE.popitem(last=False)
    return _SQLITE[statements]


def _inspected(connection: Connection, statements: tuple[tuple[str, ...], ...]) -> dict[str, str]:
    guards = {
        f"{kind} {name}": _plain(sql) if kind == "trigger" else "" for kind, name, sql in statements
    }
    inspector = inspect(connection)
    for table in metadata.tables.keys() & set(inspector.get_table_names()):
        for check in inspector.get_check_constraints(table):
            guards[f"check {check['name']}"] = _plain(check["sqltext"])
        for key in inspector.get_foreign_keys(table):
            guards[f"foreign key {key['name']}"] = ""
        for unique in inspector.get_unique_constraints(table):
            guards[f"unique {unique['name']}"] = ""
        guards[f"primary key {inspector.get_pk_constraint(table)['name']}"] = ""
    return guards


def _guards_postgresql(connection: Connection) -> dict[str, str]:
    triggers = connection.execute(_TRIGGERS_POSTGRESQL)
    guards = {f"trigger {name}": _plain(body) for name, body in triggers}
    constraints = connection.scalars(_CONSTRAINTS_POSTGRESQL).all()
    for kind in _KINDS.values():
        guards |= {f"{kind} {name}": "" for name in constraints}
    guards |= {f"index {name}": "" for name in connection.scalars(_INDEXES_POSTGRESQL)}
    guards |= {f"table {name}": "" for name in inspect(connection).get_table_names()}
    return guards


def _plain(sql: str) -> str:
    return " ".join(sql.split())
