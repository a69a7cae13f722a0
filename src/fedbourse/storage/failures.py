"""One sentence for whatever a database says: never a raw error, never a password."""

from __future__ import annotations

import re
import sqlite3
import sys
from typing import TYPE_CHECKING

from fedbourse.errors import (
    CannotWrite,
    Conflict,
    FedbourseError,
    InvalidFile,
    InvalidInput,
    InvalidTransfer,
    NotFound,
    Unreachable,
)
from fedbourse.storage.triggers import GUARD_STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

_Sentence = tuple[type[FedbourseError], str]

# By the beginning of SQLite's own name for what went wrong; {said} is its message.
_SQLITE: dict[str, _Sentence] = {
    "SQLITE_CONSTRAINT_TRIGGER": (Conflict, "{said}"),
    "SQLITE_CONSTRAINT_PRIMARYKEY": (Conflict, "this is stored already ({said})"),
    "SQLITE_CONSTRAINT_UNIQUE": (Conflict, "this is stored already ({said})"),
    "SQLITE_CONSTRAINT_FOREIGNKEY": (NotFound, "what this belongs to is not there"),
    "SQLITE_CONSTRAINT": (InvalidInput, "the database does not take this ({said})"),
    "SQLITE_TOOBIG": (InvalidInput, "this is larger than the database takes ({said})"),
    "SQLITE_BUSY": (Unreachable, "{place} stayed locked by somebody else; try again later"),
    "SQLITE_LOCKED": (Unreachable, "{place} stayed locked by somebody else; try again later"),
    "SQLITE_READONLY": (CannotWrite, "{place} cannot be written ({said})"),
    "SQLITE_FULL": (CannotWrite, "there is no space left for {place} ({said})"),
    "SQLITE_IOERR": (CannotWrite, "{place} cannot be read or written ({said})"),
    "SQLITE_PERM": (CannotWrite, "{place} may not be opened ({said})"),
    "SQLITE_CANTOPEN": (CannotWrite, "{place} cannot be opened ({said})"),
    "SQLITE_NOTADB": (InvalidFile, "{place} is not an SQLite database"),
    "SQLITE_CORRUPT": (Unreachable, "{place} is damaged; restore it from a backup ({said})"),
}

# By the beginning of the SQLSTATE.
_POSTGRESQL: dict[str, _Sentence] = {
    GUARD_STATE: (Conflict, "{said}"),
    "23505": (Conflict, "this is stored already ({said})"),
    "23503": (NotFound, "what this belongs to is not there"),
    "23": (InvalidInput, "the database does not take this ({said})"),
    "22": (InvalidInput, "the database does not take this ({said})"),
    "25006": (CannotWrite, "{place} cannot be written ({said})"),
    "42501": (CannotWrite, "the database user has too few rights on {place} ({said})"),
    "53100": (CannotWrite, "there is no space left for {place} ({said})"),
    "53": (Unreachable, "{place} is overloaded; try again later ({said})"),
    "40": (Unreachable, "somebody else was faster in {place}; try again ({said})"),
    "55P03": (Unreachable, "{place} stayed locked by somebody else; try again later"),
    "57": (Unreachable, "{place} was interrupted; try again later ({said})"),
    "58": (CannotWrite, "{place} cannot be read or written ({said})"),
    "08": (Unreachable, "{place} does not answer ({said})"),
    "28": (InvalidInput, "{place} refuses this user or password ({said})"),
    "3D000": (InvalidInput, "{place} is not there ({said})"),
    "XX": (Unreachable, "{place} is damaged; restore it from a backup ({said})"),
}

# The server says these before there is a connection, in its own language and without a SQLSTATE.
_LOGIN: tuple[tuple[str, str], ...] = (
    (r"authentication failed|no password supplied", "28"),
    (r'role ".*" does not exist', "28"),
    (r'database ".*" does not exist', "3D000"),
    (r"invalid .*connection option|missing .*=|invalid connection", "22"),
)


def explain(error: BaseException, *, place: str, secrets: tuple[str, ...] = ()) -> Exception | None:
    """Return what to raise in place of a database's error; None for what is no such error."""
    if isinstance(error, FedbourseError):
        return None
    if isinstance(error, (OverflowError, UnicodeError)):
        return InvalidInput(f"the database does not take this ({error})")
    if isinstance(error, sqlite3.Error):
        kind, sentence = _longest(_SQLITE, getattr(error, "sqlite_errorname", ""))
    elif (driver := sys.modules.get("psycopg")) and isinstance(error, driver.Error):
        # Who has no PostgreSQL need not have its driver, and then gets no error of it.
        kind, sentence = _of_postgresql(error)
    else:
        return None
    said = _said(error, secrets)
    if re.search(r"\bck_(accounts|transfers)_", said):
        kind = InvalidTransfer
    return kind(sentence.format(place=place, said=said))


def _of_postgresql(error: psycopg.Error) -> _Sentence:
    import psycopg

    if error.sqlstate:
        return _longest(_POSTGRESQL, error.sqlstate)
    for pattern, state in _LOGIN:
        if re.search(pattern, str(error)):
            return _longest(_POSTGRESQL, state)
    if isinstance(error, psycopg.DataError):
        return _longest(_POSTGRESQL, "22")
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return _longest(_POSTGRESQL, "08")
    return _longest(_POSTGRESQL, "")


def _longest(known: dict[str, _Sentence], name: str) -> _Sentence:
    matches = [start for start in known if name.startswith(start)]
    if not matches:
        return FedbourseError, "{place} could not do this ({said})"
    return known[max(matches, key=len)]


def _said(error: BaseException, secrets: tuple[str, ...]) -> str:
    """Return the first line of a message, without what must not be seen."""
    said = next(iter(str(error).strip().splitlines()), type(error).__name__)
    for secret in filter(None, secrets):
        said = said.replace(secret, "***")
    return said


def explainer(place: str, secrets: tuple[str, ...]) -> Callable[[BaseException], Exception | None]:
    """Return ``explain`` for one database."""
    return lambda error: explain(error, place=place, secrets=secrets)
