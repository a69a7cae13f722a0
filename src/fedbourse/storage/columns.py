"""Column types, naming conventions and constraints, alike on SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import SchemaItem

# Every constraint has a name, so that the check at start can look for it.
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# Names are compared by code point: SQLite always does so, PostgreSQL with this collation.
Name = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
Number = BigInteger()
# SQLite numbers rows by itself only where the type is exactly INTEGER.
RowNumber = BigInteger().with_variant(Integer(), "sqlite")


def table(name: str, *parts: SchemaItem, rowid: bool = False) -> Table:
    """Return a table; on SQLite its rows lie in the order of the primary key, unless by rowid."""
    return Table(name, metadata, *parts, sqlite_with_rowid=rowid)


def names(*columns: str) -> list[Column[str]]:
    """Return columns of names."""
    return [Column(column, Name, nullable=False) for column in columns]


def texts(*columns: str) -> list[Column[str]]:
    """Return columns of texts."""
    return [Column(column, Text, nullable=False) for column in columns]


def numbers(*columns: str) -> list[Column[int]]:
    """Return columns of whole numbers."""
    return [Column(column, Number, nullable=False) for column in columns]


def optional_numbers(*columns: str) -> list[Column[int]]:
    """Return columns of whole numbers that may be missing."""
    return [Column(column, Number) for column in columns]


def task_column() -> Column[str]:
    """Return a column that refers to a task."""
    return Column("task", Name, ForeignKey("tasks.id"), nullable=False)


def not_negative(column: str) -> CheckConstraint:
    """Return the constraint that a column is never below 0."""
    return CheckConstraint(f"{column} >= 0", name=column)
