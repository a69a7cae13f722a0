"""The durable store of a device's spend: one SQLite file that survives a kill at any moment."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sqlite3
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from threading import RLock
from typing import TYPE_CHECKING
from urllib.parse import quote

from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput, Refused
from fedbourse.privacy.filter import Account, RoundRequest
from fedbourse.privacy.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedbourse.privacy.filter import SpendRecords

_VERSION = 4  # of the tables below, kept in the file's user_version
_APPLICATION = 0x66626D31  # marks the file as ours, kept in its application_id

# The CHECK and the triggers repeat the rules of privacy.filter where nothing can go around them.
_TABLES = """
CREATE TABLE account (
    task TEXT PRIMARY KEY,
    terms TEXT NOT NULL,
    rounds INTEGER NOT NULL CHECK (rounds >= 1),
    charged INTEGER NOT NULL CHECK (charged BETWEEN 0 AND rounds),
    last TEXT,
    closed INTEGER NOT NULL CHECK (closed IN (0, 1))
) STRICT;
CREATE TABLE last_update (
    task TEXT PRIMARY KEY REFERENCES account (task),
    body BLOB NOT NULL
) STRICT;
CREATE TRIGGER account_is_never_forgotten BEFORE DELETE ON account
BEGIN SELECT RAISE(ABORT, 'an account is never deleted'); END;
CREATE TRIGGER spend_never_shrinks BEFORE UPDATE ON account
WHEN NEW.charged < OLD.charged OR NEW.closed < OLD.closed
    OR (NEW.task, NEW.terms, NEW.rounds) <> (OLD.task, OLD.terms, OLD.rounds)
BEGIN SELECT RAISE(ABORT, 'spend never shrinks and terms never change'); END;
CREATE TRIGGER account_is_never_replaced BEFORE INSERT ON account
WHEN EXISTS (
    SELECT 1 FROM account AS old WHERE old.task = NEW.task AND (
        NEW.charged < old.charged OR NEW.closed < old.closed OR NEW.terms <> old.terms
    )
)
BEGIN SELECT RAISE(ABORT, 'spend never shrinks and terms never change'); END;
CREATE TABLE delivered (
    task TEXT NOT NULL REFERENCES account (task),
    round INTEGER NOT NULL,
    hash TEXT NOT NULL,
    request TEXT NOT NULL,
    receipt TEXT,
    PRIMARY KEY (task, round)
) STRICT;
CREATE INDEX unpaid ON delivered (task, round) WHERE receipt IS NULL;
CREATE TRIGGER delivered_is_never_forgotten BEFORE DELETE ON delivered
BEGIN SELECT RAISE(ABORT, 'an update is never forgotten'); END;
CREATE TRIGGER receipt_is_never_lost BEFORE UPDATE ON delivered
WHEN OLD.receipt IS NOT NULL OR
    (NEW.task, NEW.round, NEW.hash, NEW.request) <> (OLD.task, OLD.round, OLD.hash, OLD.request)
BEGIN SELECT RAISE(ABORT, 'a receipt is never changed'); END;
CREATE TABLE market (
    key TEXT PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;
CREATE TABLE deal (
    name TEXT PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;
CREATE TABLE refusal (
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    deal TEXT NOT NULL,
    round INTEGER,
    reason TEXT NOT NULL,
    sentence TEXT NOT NULL
) STRICT;
"""
_ACCOUNTS = "SELECT terms, charged, last, closed FROM account"


class SpendStore:
    """A device's accounts in one file. One process may write it; others may read it meanwhile."""

    def __init__(self, file: Path, *, read_only: bool = False) -> None:
        """Open the file, and make it, readable by its owner alone, where there is none.

        Opened to be read only, it is neither made nor held: another process may be selling.
        """
        self._file = file.absolute()
        self._lock = RLock()
        self._held: int | None = None
        self.requests: dict[str, str] = {}
        """The hash of each task's current round request, stored with the update for it."""
        self._begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
        uri = f"file:{quote(str(self._file))}" + ("?mode=ro" if read_only else "")
        with self._explained(), ExitStack() as undo:
            undo.callback(self._release)
            if not read_only:
                self._hold()
                _make_private(self._file)
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=5, check_same_thread=False
            )
            undo.callback(self._connection.close)
            self._connection.text_factory = bytes  # SQLite would not say what it cannot decode
            self._prepare(read_only=read_only)
            undo.pop_all()

    def _hold(self) -> None:
        """Keep every other process from selling the same privacy; a kill ends this by itself."""
        lock = self._file.with_name(self._file.name + ".lock")
        self._held = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise self._in_use() from None

    def _in_use(self) -> Refused:
        return Refused("in-use", f"{self._file} is in use by another process of this device")

    def _release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _prepare(self, *, read_only: bool) -> None:
        run = self._connection.execute
        run("PRAGMA synchronous = FULL")
        run("PRAGMA foreign_keys = ON")
        run("BEGIN" if read_only else "BEGIN EXCLUSIVE")
        version = run("PRAGMA user_version").fetchone()[0]
        empty = not run("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if empty and not read_only:
            # One by one: executescript would commit behind our back.
            for statement in re.split(r"(?<=;)\n(?=CREATE )", _TABLES):
                run(statement)
            run(f"PRAGMA application_id = {_APPLICATION}")
            run(f"PRAGMA user_version = {_VERSION}")
        elif run("PRAGMA application_id").fetchone()[0] != _APPLICATION or version != _VERSION:
            raise InvalidFile(f"{self._file} is not a spend store of version {_VERSION}")
        if (fault := run("PRAGMA quick_check(1)").fetchone()[0]) != b"ok":
            raise InvalidFile(f"{self._file} is damaged: {fault.decode(errors='replace')}")
        run("COMMIT")
        if not read_only:
            run("PRAGMA journal_mode = WAL")  # last: another program's file stays as it was

    @contextmanager
    def transaction(self) -> Iterator[SpendRecords]:
        """Open the books; what is written is on the disk when this ends without an error."""
        with self.statements():
            yield self

    @contextmanager
    def statements(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction for whatever else lies in the file, such as deals."""
        with self._lock, self._explained():
            self._connection.execute(self._begin)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def accounts(self) -> list[Account]:
        """Return every account."""
        # All at once: a statement that is not run to its end would hold the file after close().
        rows = self._connection.execute(_ACCOUNTS).fetchall()
        return [self._account(row) for row in rows]

    def account(self, task: str) -> Account | None:
        """Return one task's account."""
        row = self._connection.execute(f"{_ACCOUNTS} WHERE task = ?", (task,)).fetchone()
        return None if row is None else self._account(row)

    def put(self, account: Account) -> None:
        """Write an account."""
        terms, last = account.terms, account.last
        self._connection.execute(
            "INSERT INTO account VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (task) DO UPDATE SET "
            "terms = excluded.terms, charged = excluded.charged, last = excluded.last, "
            "closed = excluded.closed",
            (
                terms.task,
                json.dumps(asdict(terms)),
                terms.rounds,
                account.charged,
                None if last is None else json.dumps(asdict(last)),
                account.closed,
            ),
        )

    def update(self, task: str) -> bytes | None:
        """Return the update stored for the task's last round request."""
        row = self._connection.execute(
            "SELECT body FROM last_update WHERE task = ?", (task,)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def put_update(self, task: str, update: bytes | None) -> None:
        """Store an update, or delete the one before.

        From here on it may be sent: that is recorded for as long as the file lives.
        """
        if update is None:
            self._connection.execute("DELETE FROM last_update WHERE task = ?", (task,))
            return
        self._connection.execute("REPLACE INTO last_update VALUES (?, ?)", (task, update))
        account = self.account(task)
        if account is not None and account.last is not None:
            hash, request = hashlib.sha256(update).hexdigest(), self.requests.get(task, "")
            self._connection.execute(
                "INSERT INTO delivered VALUES (?, ?, ?, ?, NULL)",
                (task, account.last.round, hash, request),
            )

    def close(self) -> None:
        """Release the file."""
        self._connection.close()
        self._release()

    def _account(self, row: tuple[bytes, int, bytes | None, int]) -> Account:
        terms, charged, last, closed = row
        try:
            return Account(
                terms=Terms(**json.loads(terms)),
                charged=charged,
                last=None if last is None else RoundRequest(**json.loads(last)),
                closed=bool(closed),
            )
        except (InvalidInput, TypeError, ValueError, RecursionError):
            raise InvalidFile(f"{self._file} is damaged: an account cannot be read") from None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite's and the system's errors into a sentence; nothing was written then."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise self._in_use() from None
            raise CannotWrite(f"{self._file}: {error}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise InvalidFile(
                f"{self._file} is not a spend store, or is damaged: {error}"
            ) from None
        except OSError as error:
            raise CannotWrite(f"{self._file}: {error.strerror}") from None
        except UnicodeEncodeError as error:
            raise InvalidInput(f"a task's name must be text; found {error.object!a:.60}") from None


def _make_private(file: Path) -> None:
    """Make an empty file for its owner alone; SQLite would let everybody read it.

    An existing file is not opened: closing it again would end this process's locks on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
