"""A database from its URL: SQLite as one private file, or PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError

from fedbourse.errors import CannotWrite, InvalidInput, MissingExtra
from fedbourse.storage.count_cache import CountCache
from fedbourse.storage.failures import explain

_FORM = "a database is sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME"
READS = "fedbourse_reads"
"""The option of an engine whose transactions only read."""


@dataclass(frozen=True)
class Database:
    """Two ways into one database, over the same connections."""

    kind: str
    """sqlite or postgresql."""
    place: str
    """Its name in error sentences, without secrets."""
    writer: Engine
    reader: Engine
    explain: Callable[[BaseException], Exception | None]
    """Turn a driver's error into one of ours."""
    counts: CountCache = field(default_factory=CountCache)


def open_database(url: str, *, wait_s: float, connections: int) -> Database:
    """Return a database; it is not connected yet, but an SQLite file is made."""
    parsed = _parsed(url)
    sqlite = parsed.get_backend_name() == "sqlite"
    place, secrets = _place(parsed)
    explain_error = partial(explain, place=place, secrets=secrets)
    pool: dict[str, Any] = {
        "pool_size": connections,
        "max_overflow": 0,
        "pool_timeout": wait_s,
        "hide_parameters": True,
    }
    if sqlite:
        _make_private(Path(parsed.database or ""))
        engine = create_engine(parsed, connect_args={"timeout": wait_s}, **pool)
        event.listen(engine, "connect", lambda raw, _: _prepare_sqlite(raw, wait_s))
        event.listen(engine, "begin", _begin_sqlite)
        reader = engine.execution_options(**{READS: True})
    else:
        _need_driver()
        engine = create_engine(
            parsed,
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,  # survives a restart of the server
            connect_args={"connect_timeout": max(2, min(30, round(wait_s)))},
            **pool,
        )
        event.listen(engine, "connect", lambda raw, _: _prepare_postgresql(raw, wait_s))
        reader = engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    def raise_explained(context: ExceptionContext) -> None:
        # After a failed ping the pool just connects again.
        error = None if context.is_pre_ping else explain_error(context.original_exception)
        if error is not None:
            raise error

    event.listen(engine, "handle_error", raise_explained)
    return Database("sqlite" if sqlite else "postgresql", place, engine, reader, explain_error)


def _need_driver() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "a market on PostgreSQL needs psycopg: pip install 'fedbourse[postgres]'"
        ) from None


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError, TypeError, AttributeError):
        # The URL may hold a password: only its beginning is shown.
        raise InvalidInput(f"{_FORM}; found {str(url).split(':', 1)[0]!r:.20}...") from None
    driver = parsed.drivername
    if driver in ("sqlite", "sqlite+pysqlite"):
        if not parsed.database or parsed.database == ":memory:" or parsed.query or parsed.host:
            raise InvalidInput(f"{_FORM}; found an SQLite URL without a file")
        return parsed.set(drivername="sqlite+pysqlite")
    if driver in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    raise InvalidInput(f"{_FORM}; found {driver!r:.40}")


def _place(url: URL) -> tuple[str, tuple[str, ...]]:
    """Return the name of a database in error sentences, and the secrets to leave out of them."""
    if url.get_backend_name() == "sqlite":
        return f"the database {url.database}", ()
    query = url.query.get("host", "")
    host = url.host or (query if isinstance(query, str) else ",".join(query)) or "localhost"
    port = f":{url.port}" if url.port else ""
    secret = url.query.get("password", ())
    secrets = (secret,) if isinstance(secret, str) else tuple(secret)
    return f"the database {url.database or ''} at {host}{port}", (url.password or "", *secrets)


def _make_private(file: Path) -> None:
    """Make an SQLite file that only its user may read; SQLite gives its log the same mode.

    A file that exists is not opened: closing it again would drop the locks that other connections
    of this process hold on it.
    """
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise CannotWrite(f"the database {file} cannot be made: {error.strerror}") from error


def _prepare_sqlite(raw: sqlite3.Connection, wait_s: float) -> None:
    raw.isolation_level = None  # transactions begin explicitly, DDL included
    _write_ahead(raw, wait_s)
    for pragma in (
        "synchronous = FULL",  # a committed transaction is on disk
        "foreign_keys = ON",
        "secure_delete = ON",  # what is erased is overwritten
        "journal_size_limit = 67108864",
    ):
        raw.execute(f"PRAGMA {pragma}")


def _write_ahead(raw: sqlite3.Connection, wait_s: float) -> None:
    """Turn write-ahead logging on; SQLite itself does not wait when two do so at once."""
    until = time.monotonic() + wait_s
    while True:
        try:
            (mode,) = raw.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            busy = (error.sqlite_errorname or "").startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            if mode != "wal":
                raise CannotWrite(
                    "a market needs write-ahead logging, which this file system does not allow; "
                    f"found journal mode {mode!r}"
                )
            return


def _begin_sqlite(connection: Connection) -> None:
    reads = connection.get_execution_options().get(READS, False)
    connection.exec_driver_sql(f"PRAGMA query_only = {'ON' if reads else 'OFF'}")
    # A writer takes its lock at once: one that reads first could fail at its first write.
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _prepare_postgresql(raw: Any, wait_s: float) -> None:
    with raw.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, false),"
            " set_config('extra_float_digits', '1', false),"  # floats in full
            " CASE WHEN current_setting('synchronous_commit') = 'off'"
            " THEN set_config('synchronous_commit', 'on', false) END",
            (f"{max(1, round(wait_s * 1000))}ms",),
        )
    raw.commit()
