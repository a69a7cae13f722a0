"""One sentence for each error of a database: never a raw error, never a password."""

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
    import psycopg

_Sentence = tuple[type[FedbourseError], str]

# By the beginning of SQLite's name of the error; {message} is its own message.
_SQLITE: dict[str, _Sentence] = {
    "SQLITE_CONSTRAINT_TRIGGER": (Conflict, "{message}"),
    "SQLITE_CONSTRAINT_PRIMARYKEY": (Conflict, "this is stored already ({message})"),
    "SQLITE_CONSTRAINT_UNIQUE": (Conflict, "this is stored already ({message})"),
    "SQLITE_CONSTRAINT_FOREIGNKEY": (NotFound, "what this belongs to does not exist"),
    "SQLITE_CONSTRAINT": (InvalidInput, "the database does not accept this ({message})"),
    "SQLITE_TOOBIG": (InvalidInput, "this is larger than the database accepts ({message})"),
    "SQLITE_BUSY": (Unreachable, "{place} stayed locked by somebody else; try again later"),
    "SQLITE_LOCKED": (Unreachable, "{place} stayed locked by somebody else; try again later"),
    "SQLITE_READONLY": (CannotWrite, "{place} cannot be written ({message})"),
    "SQLITE_FULL": (CannotWrite, "there is no space left for {place} ({message})"),
    "SQLITE_IOERR": (CannotWrite, "{place} cannot be read or written ({message})"),
    "SQLITE_PERM": (CannotWrite, "{place} may not be opened ({message})"),
    "SQLITE_CANTOPEN": (CannotWrite, "{place} cannot be opened ({message})"),
    "SQLITE_NOTADB": (InvalidFile, "{place} is not an SQLite database"),
    "SQLITE_CORRUPT": (Unreachable, "{place} is damaged; restore it from a backup ({message})"),
}

# By the beginning of the SQLSTATE.
_POSTGRESQL: dict[str, _Sentence] = {
    GUARD_STATE: (Conflict, "{message}"),
    "23505": (Conflict, "this is stored already ({message})"),
    "23503": (NotFound, "what this belongs to does not exist"),
    "23": (InvalidInput, "the database does not accept this ({message})"),
    "22": (InvalidInput, "the database does not accept this ({message})"),
    "25006": (CannotWrite, "{place} cannot be written ({message})"),
    "42501": (CannotWrite, "the database user has too few rights on {place} ({message})"),
    "53100": (CannotWrite, "there is no space left for {place} ({message})"),
    "53": (Unreachable, "{place} is overloaded; try again later ({message})"),
    "40": (Unreachable, "somebody else was faster in {place}; try again ({message})"),
    "55P03": (Unreachable, "{place} stayed locked by somebody else; try again later"),
    "57": (Unreachable, "{place} was interrupted; try again later ({message})"),
    "58": (CannotWrite, "{place} cannot be read or written ({message})"),
    "08": (Unreachable, "{place} does not respond ({message})"),
    "28": (InvalidInput, "{place} refuses this user or password ({message})"),
    "3D000": (InvalidInput, "{place} does not exist ({message})"),
    "XX": (Unreachable, "{place} is damaged; restore it from a backup ({message})"),
}

# What the server reports before there is a connection, without a SQLSTATE.
_LOGIN: tuple[tuple[str, str], ...] = (
    (r"authentication failed|no password supplied", "28"),
    (r'role ".*" does not exist', "28"),
    (r'database ".*" does not exist', "3D000"),
    (r"invalid .*connection option|missing .*=|invalid connection", "22"),
)


def explain(error: BaseException, *, place: str, secrets: tuple[str, ...] = ()) -> Exception | None:
    """Return what to raise in place of a database's error; None for any other error."""
    if isinstance(error, FedbourseError):
        return None
    if isinstance(error, (OverflowError, UnicodeError)):
        return InvalidInput(f"the database does not accept this ({error})")
    if isinstance(error, sqlite3.Error):
        kind, sentence = _longest(_SQLITE, getattr(error, "sqlite_errorname", ""))
    elif (driver := sys.modules.get("psycopg")) and isinstance(error, driver.Error):
        # Without PostgreSQL its driver need not be installed, and raises no error.
        kind, sentence = _of_postgresql(error)
    else:
        return None
    message = next(iter(str(error).strip().splitlines()), type(error).__name__)
    for secret in filter(None, secrets):
        message = message.replace(secret, "***")
    if re.search(r"\bck_(accounts|transfers)_", message):
        kind = InvalidTransfer
    return kind(sentence.format(place=place, message=message))


def _of_postgresql(error: psycopg.Error) -> _Sentence:
    import psycopg

    state = error.sqlstate or ""
    if not state:
        states = (state for pattern, state in _LOGIN if re.search(pattern, str(error)))
        if isinstance(error, psycopg.DataError):
            state = "22"
        elif isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            state = "08"
        state = next(states, state)
    return _longest(_POSTGRESQL, state)


def _longest(sentences: dict[str, _Sentence], name: str) -> _Sentence:
    """Return the sentence of the longest beginning of a name."""
    matches = [start for start in sentences if name.startswith(start)]
    if not matches:
        return FedbourseError, "{place} could not do this ({message})"
    return sentences[max(matches, key=len)]
