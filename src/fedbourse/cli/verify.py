"""``fedbourse verify``: a task recomputed on the caller's own machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fedbourse.cli.server_options import (
    NO_OPTIONS,
    Json,
    ServerOptions,
    account_path,
    pages,
    print_json,
    print_line,
    print_table,
    task_id,
)
from fedbourse.errors import BooksDiffer, Conflict, NotAllowed, NotFound, NotSignedIn

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.verify import Check
    from fedbourse.wire.connection import Connection

_TRIES = 5
_WORDS = {True: "right", False: "DIFFERS", None: "not checked"}
_COLOURS = {True: "green", False: "bold red", None: "yellow"}


def verify(task: str, /, *, server: ServerOptions = NO_OPTIONS, as_json: Json = False) -> None:
    """Recompute a task from its records: log, plans, payments, vesting and balances.

    Everything that the caller may see is fetched and recomputed here, so that the market is not
    taken at its word: everything with an auditor's token, the own line and the totals with an
    owner's, the public log without any. Ends with exit code 15 if something differs.

    Examples:

        fedbourse verify latest

        fedbourse verify 018f0c3e9a5b7d2c4e6f8a1b --token-file auditor.token --json

    Parameters
    ----------
    task
        The task's id, or latest.
    as_json
        Print one JSON document.
    """
    from fedbourse.market.verify import verify_task

    with server.connect() as connection:
        name = task_id(connection, task)
        records = _records(connection, name)
    checks = verify_task(**records)
    if as_json:
        print_json({"task": name, "checks": [asdict(check) for check in checks]})
    else:
        _print(name, checks)
    wrong = [check.name for check in checks if check.passed is False]
    if wrong:
        raise BooksDiffer(f"task {name}: {len(wrong)} checks differ: {', '.join(wrong)}")


def _records(connection: Connection, name: str) -> dict[str, Any]:
    """Fetch all that there is for the caller, at one moment of the task."""
    path, escrow = f"/v1/tasks/{name}", account_path(f"escrow:{name}")
    for _ in range(_TRIES):
        task = connection.get(path)
        before = _stamp(connection, task, escrow)
        records = {
            "task": task,
            "card": connection.get(f"{path}/card")["card"],
            "events": list(pages(connection, f"{path}/events", "events")),
            "owners": _allowed(lambda: list(pages(connection, f"{path}/lines", "owners"))),
            "own": _own(connection, path),
            "entries": _allowed(lambda: list(pages(connection, f"{escrow}/statement", "entries"))),
        }
        if _stamp(connection, connection.get(path), escrow) == before:
            return records
    raise Conflict(f"task {name} moves on faster than it can be read; try again when it rests")


def _stamp(connection: Connection, task: dict[str, Any], escrow: str) -> tuple[object, object]:
    return task["last_hash"], _allowed(lambda: connection.get(escrow))


def _own(connection: Connection, path: str) -> dict[str, Any] | None:
    """Return an owner's own line with its proof; None for somebody who is none of its owners."""
    own: dict[str, Any] | None = _allowed(lambda: connection.get(f"{path}/mine"))
    if own is None:
        return None
    return own | {"proof": _allowed(lambda: connection.get(f"{path}/proof"))}


def _allowed(ask: Callable[[], Any]) -> Any:
    """Return what the caller may see, or None."""
    try:
        return ask()
    except (NotAllowed, NotSignedIn, NotFound):
        return None


def _print(name: str, checks: list[Check]) -> None:
    print_table(
        ("check", "result", "detail"),
        (
            (check.name, Text(_WORDS[check.passed], _COLOURS[check.passed]), check.detail)
            for check in checks
        ),
        left="check,result,detail",
    )
    right, wrong, unseen = (sum(c.passed is each for c in checks) for each in (True, False, None))
    print_line("")
    print_line(f"task {name}: {right} checks are right, {wrong} differ, {unseen} were not made")
    if unseen:
        print_line("those need records that this caller cannot see, or that there are none of")
