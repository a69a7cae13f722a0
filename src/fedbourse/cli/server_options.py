"""What the commands that talk to a market share: its address, the caller's token, and names."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from fedbourse.cli.files import read_token
from fedbourse.errors import InvalidInput, Unauthenticated
from fedbourse.units import micro_credits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fedbourse.protocol.connection import Connection

DEFAULT_SERVER = "http://127.0.0.1:8417"
SERVER = Group.create_ordered("Server")
TaskId = Annotated[str, Parameter(help="The task's id, or latest.")]
_CA_HELP = "A file with the certificates to trust, where the market has one of its own making."
CaFile = Annotated[Path | None, Parameter(env_var="FEDBOURSE_CA", help=_CA_HELP)]
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
    """

    server: Annotated[str, Parameter(env_var="FEDBOURSE_SERVER")] = DEFAULT_SERVER
    token_file: Path | None = None
    ca: CaFile = None

    def connect(self, *, patience: float = 0.3) -> Connection:
        """Return a connection; ``patience`` stretches the pauses before asking again."""
        from fedbourse.protocol.connection import Connection

        return Connection(
            self.server,
            token=self._token(),
            ca_file=None if self.ca is None else str(self.ca),
            sleep=lambda seconds: time.sleep(seconds * patience),
        )

    def post(self, path: str, document: object) -> Any:
        """Send one document, and return the response."""
        with self.connect() as connection:
            return connection.post(path, document)

    def listed(self, path: str, items: str) -> list[dict[str, Any]]:
        """Return all items of a list."""
        with self.connect() as connection:
            return list(pages(connection, path, items))

    def _token(self) -> str | None:
        # Never an argument: everybody on a machine can read those.
        named = os.environ.get("FEDBOURSE_TOKEN_FILE")
        if self.token_file is None and os.environ.get("FEDBOURSE_TOKEN"):
            return os.environ["FEDBOURSE_TOKEN"].strip()
        path = self.token_file or (Path(named) if named else None)
        return None if path is None else read_token(path)


NO_OPTIONS = ServerOptions()


def task_id(connection: Connection, task: str) -> str:
    """Return a task's id; ``latest`` is a buyer's own newest one, or else the newest of all."""
    if task == "latest":
        me = _party_or_nobody(connection)
        for each in pages(connection, "/v1/tasks", "tasks", cursor="before"):
            if not me.startswith("buyer:") or each["buyer"] == me:
                return str(each["task"])
        raise InvalidInput("there is no task yet that could be the latest")
    return checked_task(task)


def checked_task(task: str) -> str:
    """Return a task's id, or say what one looks like."""
    if not _TASK.fullmatch(task):
        raise InvalidInput(
            f"TASK must be the 24 digits of a task's id, or latest; found {task!r:.60}"
        )
    return task


def own_party(connection: Connection) -> str:
    """Return who the caller is to the market."""
    return str(connection.get("/v1/me")["party"])


def _party_or_nobody(connection: Connection) -> str:
    try:
        return own_party(connection)
    except Unauthenticated:
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
    from fedbourse.protocol.bounds import auditor_records

    return connection.pages(path, items, params, cursor=cursor, allowance=auditor_records())
