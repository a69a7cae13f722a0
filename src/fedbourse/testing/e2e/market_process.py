"""A market's server in a process of its own, struck at its durable steps.

A **durable step** is a transaction that writes. ``Steps`` listens to the database library, outside
the product's code, and strikes each step at the places that it is told to, in this order:

- before: all statements have run, and the COMMIT does not reach the database;
- middle: before the last statement that writes;
- after: the database has committed, and nobody was told yet;
- lost: as after, and the word that it has committed is lost (a stopped database only).

A strike is SIGKILL to the server itself, or the end of the PostgreSQL server in immediate mode.
``steps.jsonl`` in the market's folder remembers every strike and every step that was carried out,
so that the next life goes on where this one ended.

Run as a script this imports all that a market needs, and then forks a server for each life that is
read from the standard input: a start takes a fraction of a second, and SIGKILL leaves as little of
a forked process as of any other.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import re
import signal
import sys
import time
import traceback
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fedbourse.testing.e2e.forks import detach, read_lines

STEPS, SHIFT, LOG = "steps.jsonl", "clock-shift", "log"
DONE = "done"
_WRITES = re.compile(r"\s*(INSERT INTO|UPDATE|DELETE FROM|CREATE \w+|ALTER TABLE)\s+(\w+)")


@dataclass(frozen=True)
class Life:
    """A server from its start to its end."""

    folder: str
    port: int
    database: str | None = None
    places: tuple[str, ...] = ()
    """Where a step that is the first of its kind is struck, in this order."""
    places_again: tuple[str, ...] = ()
    """Where the later ones are."""
    only: tuple[str, ...] = ()
    """The kinds of steps that are struck; all of them if there is none."""
    postmaster: str = ""
    """The file that names the process of the PostgreSQL server, if that is to be struck."""
    fault: str = ""
    """What the server does wrong on purpose (``faults``)."""


@dataclass
class _Step:
    """A transaction so far."""

    name: str = ""
    writes: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The name without what tells steps of one kind apart."""
        return self.name.partition("/")[0]


class Steps:
    """Follows all transactions of this process, and strikes them."""

    def __init__(self, life: Life) -> None:
        from sqlalchemy import Engine, event
        from sqlalchemy.engine.default import DefaultDialect

        self._life = life
        path = Path(life.folder) / STEPS
        self._struck: dict[str, dict[str, int]] = defaultdict(dict)
        self._first: dict[str, str] = {}
        for line in read_lines(path):
            self._first.setdefault(line["step"].partition("/")[0], line["step"])
            self._struck[line["step"]][line["place"]] = len(line["writes"])
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        commit = DefaultDialect.do_commit

        def struck_commit(dialect: DefaultDialect, connection: Any) -> None:
            step = connection.info.pop("step", _Step())
            if not step.writes:
                commit(dialect, connection)
                return
            step.name = step.name or _otherwise(step)
            self._pass(step, "before")
            commit(dialect, connection)
            if not self._pass(step, "after"):
                self._pass(step, "lost")
            self._note(step, DONE)

        DefaultDialect.do_commit = struck_commit  # type: ignore[method-assign]
        event.listen(Engine, "begin", lambda connection: connection.info.pop("step", None))
        event.listen(Engine, "before_cursor_execute", self._statement)

    def _statement(
        self, connection: Any, _: object, text: str, __: object, context: Any, ___: object
    ) -> None:
        write = _WRITES.match(text)
        if not write:
            return
        step = connection.info.setdefault("step", _Step())
        step.writes.append(f"{write[1].split()[0]} {write[2]}")
        given = getattr(context, "compiled_parameters", None) or [{}]
        step.name = step.name or _name(step.writes[-1], given[0])
        if len(step.writes) == self._struck[step.name].get("before"):
            self._pass(step, "middle")

    def _pass(self, step: _Step, place: str) -> bool:
        """Come to a place of a step, and strike if it is this one's turn; say whether it was."""
        first = self._first.setdefault(step.kind, step.name) == step.name
        places = self._life.places if first else self._life.places_again
        if "/" not in step.name:  # known by its end only
            places = tuple(each for each in places if each != "middle")
        left = [each for each in places if each not in self._struck[step.name]]
        if not left or left[0] != place or (self._life.only and step.kind not in self._life.only):
            return False
        self._note(step, place)
        if not self._life.postmaster:
            os.kill(os.getpid(), signal.SIGKILL)
        stop_database(Path(self._life.postmaster))
        if place == "lost":
            import psycopg

            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return True

    def _note(self, step: _Step, place: str) -> None:
        self._struck[step.name][place] = len(step.writes)
        line = {"step": step.name, "place": place, "writes": step.writes}
        os.write(self._file, json.dumps(line).encode() + b"\n")


def _name(write: str, given: dict[str, Any]) -> str:
    """Return the name of a step by what it writes first of what tells it apart; or nothing yet."""
    if write == "INSERT responses":
        return str(given["key"])
    if write == "INSERT events":
        return f"scheduler-{given['kind']}/{given['task']}/{given['sequence']}"
    if write == "UPDATE payouts" and "id_1" in given:
        return f"scheduler-payout/{given['id_1']}/{given['state']}"
    return ""


def _otherwise(step: _Step) -> str:
    verb, table = step.writes[0].split()
    return {"INSERT tokens": "start-operator"}.get(
        step.writes[0], "scheduler-purge" if verb == "DELETE" else f"start-{verb}-{table}".lower()
    )


def stop_database(postmaster: Path) -> None:
    """End a PostgreSQL server in immediate mode, and wait until all of it is gone."""
    try:
        process = int(postmaster.read_text().split()[0])
        os.kill(process, signal.SIGQUIT)
    except (FileNotFoundError, ProcessLookupError):
        return  # another step was struck at the same moment
    while _lives(process):
        time.sleep(0.002)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def shifted_ms(folder: Path) -> int:
    """Return the time of a market whose clock a test has put forward."""
    try:
        shift = int((folder / SHIFT).read_text() or 0)
    except FileNotFoundError:
        shift = 0
    return time.time_ns() // 1_000_000 + shift


def start(life: Life, routes: Any) -> tuple[int, int]:
    """Fork a server; return its process, and a pipe that says when it is ready."""
    told, tell = os.pipe()
    process = os.fork()
    if process:
        os.close(tell)
        return process, told
    try:
        os.close(told)
        _live(life, tell, routes)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _live(life: Life, tell: int, routes: Any) -> None:
    folder = Path(life.folder)
    detach(folder / LOG)

    from fedbourse.app import configuration
    from fedbourse.app import server as bootstrap_market
    from fedbourse.app.server import MarketSettings, Ready, serve_market
    from fedbourse.market.service import Market
    from fedbourse.testing.e2e.faults import EVIDENCE_FAULTS, FAULTS

    Steps(life)
    if life.fault:
        (FAULTS | EVIDENCE_FAULTS)[life.fault]()
    configuration.Market = partial(Market, now_ms=partial(shifted_ms, folder))  # type: ignore
    create_app = bootstrap_market.create_app  # type: ignore[attr-defined]

    def create_app_fast(*parts: Any) -> Any:
        app = create_app(*parts)
        app.router.routes = routes  # what they are made of was worked out before the fork
        return app

    bootstrap_market.create_app = create_app_fast  # type: ignore

    def ready(market: Ready) -> None:
        os.write(tell, json.dumps({"url": market.url, "key": market.public_key}).encode() + b"\n")
        os.close(tell)

    settings = MarketSettings(
        folder=folder,
        database=life.database,
        port=life.port,
        min_withdrawal_micro=1,
        payouts_per_day=10**6,
    )
    serve_market(settings, on_ready=ready)


def _warm_up() -> Any:
    """Import all that a server needs, and return its routes, which it would build when asked."""
    from tempfile import TemporaryDirectory

    for lazily in (
        "cryptography.hazmat.primitives.serialization",
        "encodings.idna",
        "http_message_signatures",
        "psycopg",
        "uvicorn.lifespan.off",
        "uvicorn.loops.asyncio",
        "uvicorn.protocols.http.h11_impl",
        "uvicorn.server",
    ):
        importlib.import_module(lazily)

    from fedbourse.learning.update_check import square_sum_bounds
    from fedbourse.market.service import Market
    from fedbourse.payments.manual import ManualPayments
    from fedbourse.protocol.keys import SigningKey
    from fedbourse.storage import SqlStore
    from fedbourse.testing.e2e import faults  # noqa: F401
    from fedbourse.web.app import create_app

    square_sum_bounds(2, false_alarm=1e-9)
    with TemporaryDirectory() as folder, SqlStore(f"sqlite:///{folder}/market.db") as store:
        app = create_app(Market(SigningKey.generate()), store, ManualPayments(folder))
        asyncio.run(_ask(app))
    return app.router.routes


async def _ask(app: Any) -> None:
    """Ask for what is not there, so that every route is looked at."""
    place = {"path": "/v1/nothing", "raw_path": b"/v1/nothing", "query_string": b""}
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "headers": [(b"host", b"x")],
        "client": ("127.0.0.1", 1),
        **place,
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(_: object) -> None:
        pass

    await app(scope, receive, send)


def _ended(process: int, *, wait: bool) -> int | None:
    """Return how a process ended; None while it lives."""
    found, status = os.waitpid(process, 0 if wait else os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def main() -> None:
    """Start, look after and kill one server at a time, as the lines of standard input say."""
    routes = _warm_up()
    gc.freeze()  # a child that looks through all this would copy it
    process = 0
    for line in sys.stdin:
        command = json.loads(line)
        reply: dict[str, Any] = {}
        if command["do"] == "start":
            process, ready_pipe = start(Life(**command["life"]), routes)
            with os.fdopen(ready_pipe) as pipe:
                line_read = pipe.readline()
            reply = {"pid": process, "ready": json.loads(line_read) if line_read else None}
            if not line_read:
                reply["code"], process = _ended(process, wait=True), 0
        elif command["do"] == "kill":
            if process:
                os.kill(process, signal.SIGKILL)
            reply["code"] = _ended(process, wait=True) if process else None
            process = 0
        else:
            reply["code"] = _ended(process, wait=False) if process else -signal.SIGKILL
            process = 0 if reply["code"] is not None else process
        print(json.dumps(reply), flush=True)
    if process:
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
