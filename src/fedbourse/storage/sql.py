"""The market's store over SQLite or PostgreSQL: ``market.ports.Store``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import TimeoutError as NoConnection

from fedbourse.errors import Unreachable
from fedbourse.storage.engine import open_database
from fedbourse.storage.sql_books import SqlBooks
from fedbourse.storage.sql_identities import SqlIdentities
from fedbourse.storage.sql_participation import SqlParticipation
from fedbourse.storage.sql_payouts import SqlPayouts
from fedbourse.storage.sql_rounds import SqlRounds
from fedbourse.storage.sql_tasks import SqlTasks
from fedbourse.storage.sql_trees import SqlTrees
from fedbourse.storage.upgrade import upgrade


class SqlTransaction(
    SqlTasks, SqlParticipation, SqlTrees, SqlRounds, SqlBooks, SqlPayouts, SqlIdentities
):
    """One transaction: ``market.ports.Transaction``."""

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        with self._connection.begin_nested():
            yield


class SqlStore:
    """Durable records, usable from many threads."""

    def __init__(self, url: str, *, wait_s: float = 60.0, connections: int = 20) -> None:
        """Open a database; create or upgrade it where needed.

        ``wait_s`` is how long a transaction waits for others, or for a connection.
        """
        self._database = open_database(url, wait_s=wait_s, connections=connections)
        self._wait_s = wait_s
        # Writers of SQLite wait by polling; those of one process queue here instead.
        self._turn = threading.Lock() if self._database.kind == "sqlite" else None
        try:
            upgrade(self._database.writer, place=self._database.place)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def begin(self) -> Iterator[SqlTransaction]:
        with (
            self._my_turn(),
            self._connected(self._database.writer) as connection,
            connection.begin(),
        ):
            tx = SqlTransaction(connection, self._database, writes=True)
            yield tx
        for work in tx.on_commit:
            work()

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        with self._connected(self._database.reader) as connection, connection.begin():
            yield SqlTransaction(connection, self._database, writes=False)

    def close(self) -> None:
        self._database.writer.dispose()

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=self._wait_s):
            raise Unreachable(f"{self._database.place} was busy for {self._wait_s:g} seconds")
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        try:
            connection = engine.connect()
        except NoConnection:
            raise Unreachable(
                f"every connection to {self._database.place} was in use for "
                f"{self._wait_s:g} seconds; try again later"
            ) from None
        with connection:
            yield connection
