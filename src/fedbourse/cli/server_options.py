"""What the commands that talk to a market share: its address, the caller's token, and output."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedbourse.errors import CannotWrite, InvalidFile, InvalidInput, NotSignedIn
from fedbourse.units import credits_text, micro_credits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fedbourse.wire.connection import Connection

DEFAULT_SERVER = "http://127.0.0.1:8417"
SERVER, OUTPUT = (Group.create_ordered(name) for name in ("Server", "Output"))
Json = Annotated[bool, Parameter(name="--json", negative=(), group=OUTPUT)]
_TOKEN_BYTES_MAX = 4096
_FILE_WIDTH = 160
_TASK = re.compile(r"[0-9a-f]{24}")
_CREDITS = re.compile(r"[0-9]{1,10}(\.[0-9]{1,6})?")


@Parameter(name="*", group=SERVER)
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Which market, and who is asking.

    Parameters
    ----------
    server
        The market's address.
    token_file
        A file that holds the caller's token. Without it, the token is that of FEDBOURSE_TOKEN, or
        that in the file that FEDBOURSE_TOKEN_FILE names.
    ca
        A file with the certificates to trust, where the market has one of its own making.
    """

    server: Annotated[str, Parameter(env_var="FEDBOURSE_SERVER")] = DEFAULT_SERVER
    token_file: Path | None = None
    ca: Annotated[Path | None, Parameter(env_var="FEDBOURSE_CA")] = None

    def connect(self, *, patience: float = 0.3) -> Connection:
        """Return a connection; ``patience`` stretches the pauses before asking again."""
        from fedbourse.wire.connection import Connection

        return Connection(
            self.server,
            token=self._token(),
            ca_file=None if self.ca is None else str(self.ca),
            sleep=lambda seconds: time.sleep(seconds * patience),
        )

    def _token(self) -> str | None:
        # Never an argument: everybody on a machine can read those.
        named = os.environ.get("FEDBOURSE_TOKEN_FILE")
        if self.token_file is None and os.environ.get("FEDBOURSE_TOKEN"):
            return os.environ["FEDBOURSE_TOKEN"].strip()
        path = self.token_file or (Path(named) if named else None)
        return None if path is None else _read_token(path)


NO_OPTIONS = ServerOptions()


def _read_token(path: Path) -> str:
    content = read_bytes(path, at_most=_TOKEN_BYTES_MAX)
    try:
        text = content.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or len(text.split()) != 1:
        raise InvalidFile(f"{path} must hold one token and nothing else; it does not")
    return text


def read_bytes(path: Path, *, at_most: int) -> bytes:
    """Return what is in a file; - is standard input."""
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(at_most + 1)
        else:
            with path.open("rb") as file:
                content = file.read(at_most + 1)
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > at_most:
        raise InvalidFile(f"{path} is longer than the {at_most} bytes that are read")
    return content


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file, whole or not at all; a private one only where there is none yet.

    Links are followed, and what is no plain file, such as a pipe, is written into.
    """
    path = path if private else path.resolve()
    if not private and path.exists() and not path.is_file():
        _write_into(path, content)
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if private:
                os.link(draft, path)
            else:
                draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None


def _write_into(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None


def check_writable(path: Path, *, new: bool = False) -> None:
    """Refuse a file that cannot be written before anything is done that cannot be undone."""
    if new and path.exists():
        raise CannotWrite(f"{path} exists already; name another file")
    if path.is_file() and not os.access(path, os.W_OK):
        raise CannotWrite(f"{path} cannot be written: it is read-only")
    if path.is_dir() or not (path.exists() or os.access(path.parent, os.W_OK)):
        raise CannotWrite(f"{path} cannot be written; its folder must exist and be yours")


def task_id(connection: Connection, task: str) -> str:
    """Return a task's id; ``latest`` is a buyer's own newest one, or else the newest of all."""
    if task == "latest":
        me = _me(connection)
        wanted = [me] if me.startswith("buyer:") else []
        for found in pages(connection, "/v1/tasks", "tasks", cursor="before"):
            if not wanted or found["buyer"] in wanted:
                return str(found["task"])
        raise InvalidInput("there is no task yet that could be the latest")
    if not _TASK.fullmatch(task):
        raise InvalidInput(
            f"TASK must be the 24 digits of a task's id, or latest; found {task!r:.60}"
        )
    return task


def _me(connection: Connection) -> str:
    try:
        return str(connection.get("/v1/me")["party"])
    except NotSignedIn:
        return ""


def account_path(account: str) -> str:
    """Return the path of an account: a party's, a task's escrow, the fund, or that of pay-outs."""
    if account in ("fund", "payouts"):
        return f"/v1/accounts/{account}"
    if account.startswith("escrow:") and _TASK.fullmatch(account.removeprefix("escrow:")):
        return f"/v1/accounts/{account}"
    return f"/v1/accounts/{party_named(account)}"


def payout_path(payout: str) -> str:
    """Return the path of a pay-out."""
    if not _TASK.fullmatch(payout):
        raise InvalidInput(f"PAYOUT must be the 24 digits of a pay-out's id; found {payout!r:.60}")
    return f"/v1/payouts/{payout}"


def party_named(name: str, *, kind: str = "") -> str:
    """Return the name of a party, of one kind if that is said."""
    from fedbourse.market.parties import party

    if kind and not name.startswith(f"{kind}:"):
        raise InvalidInput(f"this is for {kind}:NAME; found {name!r:.80}")
    return party(name)


def amount_micro(text: str) -> int:
    """Read an amount of credits, exactly."""
    if not _CREDITS.fullmatch(text):
        raise InvalidInput(
            "CREDITS must be a decimal number with at most six decimals, such as 12.5; "
            f"found {text!r:.60}"
        )
    return micro_credits(text)


def pages(
    connection: Connection,
    path: str,
    items: str,
    params: Mapping[str, Any] | None = None,
    *,
    cursor: str = "after",
) -> Iterator[dict[str, Any]]:
    """Return the items of a list that comes page by page, for a person."""
    from fedbourse.wire.bounds import auditor_records

    return connection.pages(path, items, params, cursor=cursor, allowance=auditor_records())


def print_json(document: object) -> None:
    """Print one document, at once."""
    print(json.dumps(document, allow_nan=False), flush=True)


def plain(value: object) -> str:
    """Return a text that a terminal shows as it is, whoever wrote it.

    >>> plain("a\\x1b[2Jb")
    'a [2Jb'
    """
    return "".join(c if c.isprintable() else " " for c in str(value))


def moment(at_ms: int | None, *, seconds: bool = True) -> str:
    """Return a moment as people write it, in UTC.

    >>> moment(0)
    '1970-01-01 00:00:00'
    """
    if at_ms is None:
        return "-"
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).strftime(form)


def credits_or_dash(micro: int | None) -> str:
    """Return an amount in credits."""
    return "-" if micro is None else credits_text(micro)


def print_table(heads: Iterable[str], rows: Iterable[Iterable[object]], *, left: str = "") -> None:
    """Print a table; columns are aligned to the right but those named in ``left``."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = tuple(heads)
    cells = [
        [cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row] for row in rows
    ]
    for head, column in zip(heads, zip(*cells, strict=True) if cells else heads, strict=True):
        if head in left.split(","):
            table.add_column(head, overflow="fold")
        else:
            # Ids and amounts stay in one piece, to be read and copied; words make room for them.
            widest = max(len(cell) for cell in (*head.split("\n"), *column))
            table.add_column(head, justify="right", min_width=widest)
    for row in cells:
        table.add_row(*row)
    console().print(table, crop=False)


def console() -> Console:
    """Return where people read; a file or a pipe has room for whole lines."""
    if sys.stdout is None:
        raise BrokenPipeError  # nobody reads
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return _Console(
        width=None if narrow else _FILE_WIDTH, markup=False, highlight=False, emoji=False
    )


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, which knows that a reader may have seen enough."""
        raise BrokenPipeError


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and what they stand for, a line each."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print_line(f"{name:>{width}}  {plain(value)}")


def print_line(sentence: str) -> None:
    """Print one line for people."""
    console().print(plain(sentence), soft_wrap=True)
