"""``fedbourse verify``: a task recomputed on the caller's own machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path  # noqa: TC003 - cyclopts reads it
from typing import TYPE_CHECKING, Any, Protocol

from rich.text import Text

from fedbourse.cli.output import PEOPLE, Blocks, Output, table
from fedbourse.cli.server_options import NO_OPTIONS, ServerOptions, account_path, pages, task_id
from fedbourse.errors import (
    Conflict,
    InvalidInput,
    LedgerMismatch,
    NotAllowed,
    NotFound,
    Unauthenticated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedbourse.protocol.bounds import Allowance
    from fedbourse.protocol.connection import Connection

_TRIES = 5
_TRAINED = ("training", "completed", "cancelled")
_RESULTS = {
    True: ("right", "green"),
    False: ("DIFFERS", "bold red"),
    None: ("not checked", "yellow"),
}


class Checked(Protocol):
    """One thing that was compared, by the market's rules or by a device's own records."""

    @property
    def name(self) -> str:
        """What."""

    @property
    def passed(self) -> bool | None:
        """Whether it is right; None where it was not checked."""

    @property
    def detail(self) -> str:
        """What was found."""


def verify(
    task: str,
    /,
    *,
    seen: tuple[Path, ...] = (),
    save_seen: Path | None = None,
    server: ServerOptions = NO_OPTIONS,
    output: Output = PEOPLE,
) -> None:
    """Recompute a task from its records: log, plans, payments, evidence, vesting and balances.

    Everything that the caller may see is fetched and recomputed here, so that the market is not
    taken at its word: everything with an auditor's token, the own allocation and the totals with an
    owner's, the public log without any. Ends with exit code 15 if something differs.

    With --seen, logs are compared with heads that the market signed before, and nothing else is
    recomputed: only what came later is read.

    For example:

        fedbourse verify latest

        fedbourse verify 018f0c3e9a5b7d2c4e6f8a1b --token-file auditor.token --json

        fedbourse verify books --token-file auditor.token

        fedbourse verify latest --save-seen heads.json

        fedbourse verify log --seen heads.json --save-seen heads.json

    Parameters
    ----------
    task
        The task's id, or latest; or books, to recompute every balance of the market from all
        transfers (for auditors and the operator); or log, for the list of all tasks that were
        opened, and the log of each task that a file of --seen knows.
    seen
        A file of --save-seen, perhaps somebody else's: the logs must extend the heads in it. Given
        several times, the market must have shown all of them one log.
    save_seen
        A file to store the signed heads of the logs in, once nothing differs. One that is there
        already is compared like those of --seen, and keeps its other heads.
    """
    from fedbourse.cli.seen_heads import SeenHeads
    from fedbourse.cli.verify_evidence import evidence_records
    from fedbourse.market.audit import verify_books, verify_task
    from fedbourse.market.heads import MARKET_LOG, Head

    heads = SeenHeads.read(seen, save_seen)
    with server.connect() as connection:
        if task == "books":
            if seen or save_seen:
                raise InvalidInput("books have no head; --seen and --save-seen are for logs")
            name = task
            entries = list(pages(connection, "/v1/transfers", "entries"))
            last = max((int(entry["sequence"]) for entry in entries), default=0)
            checks = verify_books(
                entries=entries,
                accounts=list(pages(connection, "/v1/accounts", "accounts")),
                meanwhile=list(pages(connection, "/v1/transfers", "entries", {"after": last})),
            )
        elif task == "log":
            name, checks = task, heads.compare(connection, heads.logs)
        else:
            name, checks, read = task_id(connection, task), [], None
            if not seen:
                records = task_records(connection, name)
                with evidence_records(connection, records) as evidence:
                    checks = verify_task(**records, evidence=evidence)
                read = Head(name, records["task"]["events"], records["task"]["last_hash"])
            if seen or save_seen:
                checks += heads.compare(connection, (MARKET_LOG, name), read=read)
    show_checks(name, checks, output)
    if save_seen is not None:
        heads.save(save_seen)


def show_checks(name: str, checks: Sequence[Checked], output: Output) -> None:
    """Print what was compared, and end with the exit code of books that differ if some do."""
    fields = ("name", "passed", "detail")
    listed = [{field: getattr(check, field) for field in fields} for check in checks]
    output.show({"task": name, "checks": listed}, _in_words)
    wrong = [check.name for check in checks if check.passed is False]
    if wrong:
        raise LedgerMismatch(f"{name}: {len(wrong)} checks differ: {', '.join(wrong)}")


def _in_words(document: dict[str, Any]) -> Blocks:
    yield table(
        document["checks"],
        {
            "<check": "{name}",
            "<result": lambda check: Text(*_RESULTS[check["passed"]]),
            "<detail": "{detail}",
        },
    )
    passed = [check["passed"] for check in document["checks"]]
    right, wrong, unseen = (passed.count(each) for each in (True, False, None))
    yield ""
    yield f"{document['task']}: {right} checks are right, {wrong} differ, {unseen} were not made"
    if unseen:
        yield "what was not checked needs another token, or there is nothing of it yet"


def task_records(
    connection: Connection, name: str, allowance: Allowance | None = None
) -> dict[str, Any]:
    """Fetch all that there is for the caller, at one moment of the task, for ``verify_task``.

    ``allowance`` bounds what is read; without it, to what an auditor reads.
    """
    from fedbourse.protocol.bounds import auditor_records

    path, escrow = f"/v1/tasks/{name}", account_path(f"escrow:{name}")
    allowance = allowance or auditor_records()
    listed = partial(_listed, connection, allowance=allowance)
    for _ in range(_TRIES):
        task = connection.get(path)
        before = _stamp(connection, task, escrow)
        left = before[1]
        records = {
            "task": task,
            "card": connection.get(f"{path}/card")["card"],
            "events": listed(f"{path}/events", "events"),
            "owners": _allowed(lambda: listed(f"{path}/allocations", "owners")),
            "own": _own(connection, path),
            "entries": _allowed(lambda: listed(f"{escrow}/statement", "entries")),
            "updates": _updates(connection, path, task, allowance),
            "escrow_micro": left["balance_micro"] if left else None,
        }
        if _stamp(connection, connection.get(path), escrow) == before:
            return records
    raise Conflict(f"task {name} moves on faster than it can be read; try again when it rests")


def _listed(
    connection: Connection, path: str, items: str, allowance: Allowance
) -> list[dict[str, Any]]:
    return list(connection.pages(path, items, allowance=allowance))


def _stamp(connection: Connection, task: dict[str, Any], escrow: str) -> tuple[str, Any]:
    return task["last_hash"], _allowed(lambda: connection.get(escrow))


def _updates(
    connection: Connection, path: str, task: dict[str, Any], allowance: Allowance
) -> dict[int, list[dict[str, Any]]] | None:
    """Return the updates of each round, to somebody who may see them."""
    begun = min(task["round"] + 1, task["rounds"]) if task["state"] in _TRAINED else 0
    updates = {}
    for number in range(begun):
        of_round = f"{path}/rounds/{number}/updates"
        entries = _allowed(partial(_listed, connection, of_round, "updates", allowance))
        if entries is None:
            return None
        updates[number] = entries
    return updates


def _own(connection: Connection, path: str) -> dict[str, Any] | None:
    """Return an owner's participation with its proof; None for anybody else."""
    own: dict[str, Any] | None = _allowed(lambda: connection.get(f"{path}/participation"))
    if own is None:
        return None
    return own | {"proof": _allowed(lambda: connection.get(f"{path}/proof"))}


def _allowed(ask: Callable[[], Any]) -> Any:
    """Return what the caller may see, or None."""
    try:
        return ask()
    except (NotAllowed, Unauthenticated, NotFound):
        return None
