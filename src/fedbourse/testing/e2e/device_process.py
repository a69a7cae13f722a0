"""Devices in processes of their own, struck at their durable steps.

A **durable step** is a transaction that writes to the device's file. ``Steps`` follows all SQL of
the process, outside the product's code, and kills it (SIGKILL) once before and once after the
COMMIT of each step, over all lives of the device: ``steps.jsonl`` in its folder remembers what was
struck. The **wire**, another file there, remembers every update that ever left and every receipt
that ever came; the device never reads it.

Run as a script this imports all that a device needs, and then forks one for each life that is read
from the standard input.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import re
import signal
import sqlite3
import sys
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.testing.e2e.forks import detach, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, WIRE, LOG = "steps.jsonl", "protocol.jsonl", "log"
_WRITES = re.compile(r"\s*(INSERT INTO|REPLACE INTO|UPDATE|DELETE FROM|CREATE \w+)\s+(\w+)")
COLUMNS, RECORDS = 1, 60


@dataclass(frozen=True)
class Life:
    """A device's process from start to end."""

    folder: str
    """Where its own folder lies, and its wire."""
    seat: int
    url: str
    token: str
    tasks: tuple[str, ...]
    places: tuple[str, ...] = ()
    """Where each step is struck: before its COMMIT, after it."""
    only: tuple[str, ...] = ()
    """The kinds of steps that are struck; all of them if there is none."""
    named: bool = False
    """Whether writes carry keys that say what they are; else they are random, as always."""
    fault: str = ""
    """What the device does wrong on purpose (``device_faults``)."""
    deviation: str = ""
    """What it sends instead of its records' gradient (``deviations``)."""
    lifetime_cap: float = 100.0
    declines: bool = False
    """Whether its owner declines all terms, so that the price is discovered again."""


class Steps:
    """Follows all transactions of this process, and strikes them."""

    def __init__(self, life: Life) -> None:
        self._places, self._only = life.places, life.only
        path = Path(life.folder) / STEPS
        self._struck = {(line["step"], line["place"]) for line in read_lines(path)}
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        steps = self

        class Followed(sqlite3.Connection):
            step = ""

            def execute(self, text: str, given: Any = (), /) -> sqlite3.Cursor:
                if text.startswith("BEGIN"):
                    self.step = ""
                elif text == "COMMIT" and self.step:
                    steps.come_to(self.step, "before")
                    done = super().execute(text, given)
                    steps.come_to(self.step, "after")
                    return done
                elif (found := _WRITES.match(text)) and not self.step:
                    self.step = _name(found[1].split()[0], found[2], given)
                return super().execute(text, given)

        connect = sqlite3.connect

        def followed(*args: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, factory=Followed, **options)
            return connection

        sqlite3.connect = followed  # type: ignore[assignment]

    def come_to(self, step: str, place: str) -> None:
        """Come to a place of a step, and die there where that has not happened yet."""
        if self._only and step.partition("/")[0] not in self._only:
            return
        if place in self._places and (step, place) not in self._struck:
            os.write(self._file, json.dumps({"step": step, "place": place}).encode() + b"\n")
            os.kill(os.getpid(), signal.SIGKILL)


def _name(verb: str, table: str, given: Any) -> str:
    """Return the name of a step by what it writes first; or nothing yet."""
    if verb == "CREATE":
        return "create"
    if table == "account":
        task, _, _, charged, last, closed = given
        if closed:
            return f"close/{task}"
        return f"agree/{task}" if last is None else f"charge/{task}/{charged}"
    if table == "delivered":
        return (
            f"store/{given[0]}/{given[1]}" if verb == "INSERT" else f"receipt/{given[1]}/{given[2]}"
        )
    if table == "deal":
        name, document = given[0], json.loads(given[1])
        terms = document["terms"]["terms"]["previous"][:8] if document["terms"] else ""
        return f"{document['state']}/{name}/{len(document['replies'])}/{terms}"
    if table == "refusal":
        return f"refusal/{given[1]}/{given[2]}"
    return "enrol" if table == "market" else ""


def records(seat: int) -> tuple[Any, Any]:
    """Return an owner's records, the same ones always."""
    features = np.random.default_rng(seat).normal(size=(RECORDS, COLUMNS))
    return features, (features[:, 0] > 0).astype(float)


def _listen(life: Life) -> None:
    """Let the wire see what leaves, and what comes back for it."""
    from fedbourse.protocol.connection import Connection

    wire = os.open(Path(life.folder) / WIRE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(**line: Any) -> None:
        os.write(wire, json.dumps(line).encode() + b"\n")

    put_bytes, write = Connection.put_bytes, Connection._write

    def heard(connection: Any, path: str, content: bytes, *, idempotency_key: str = "") -> Any:
        _, _, _, task, _, number, _ = path.split("/")
        hash = hashlib.sha256(content).hexdigest()
        note(task=task, round=int(number), hash=hash)
        key = f"update/{life.seat}/{task}/{number}" if life.named else ""
        receipt = put_bytes(connection, path, content, idempotency_key=key)
        note(task=task, round=int(number), hash=hash, receipt=receipt)
        return receipt

    def named(connection: Any, method: str, path: str, document: Any, key: str) -> bytes:
        *_, task, last = path.split("/")
        kind = {"terms": "sign", "enrolments": "enrol"}.get(last, last)
        items = document if isinstance(document, dict) else {}
        which = items.get("tick", items.get("digest", "")[:8])
        key = f"{kind}/{life.seat}/{task}/{which}"
        return write(connection, method, path, document, key)

    Connection.put_bytes = heard  # type: ignore[assignment]
    if life.named:
        Connection._write = named  # type: ignore[assignment]


def live(life: Life) -> None:
    """Enrol, join, and answer until all tasks have ended."""
    from fedbourse.device import Agent, DeviceSettings, Limits
    from fedbourse.errors import Refused
    from fedbourse.testing.e2e.deviations import DEVIATIONS
    from fedbourse.testing.e2e.device_faults import FAULTS

    class Declines(Limits):
        def check_terms(self, *_: object, **__: object) -> None:
            raise Refused("price", "this owner declines whatever is offered")

    Steps(life)
    _listen(life)
    if life.fault:
        FAULTS[life.fault]()
    if life.deviation:
        DEVIATIONS[life.deviation]()
    folder = Path(life.folder) / "device"
    limits = Declines() if life.declines else Limits(accept_evidence="any")
    options: dict[str, Any] = {
        "data": lambda card: records(life.seat),
        "policy": limits,
        "on_event": lambda event: print(json.dumps(event), file=sys.stderr, flush=True),
    }
    if (folder / "device.json").exists():
        agent = Agent(folder, **options)
    else:
        settings = DeviceSettings(value=1.0 + 0.05 * life.seat, lifetime_cap=life.lifetime_cap)
        agent = Agent.create(folder, settings, **options)
    with agent:
        if not agent.deals.markets():
            _patiently(lambda: agent.enrol(life.url, life.token))
        joined = {deal.task for deal in agent.deals.deals()}
        for task in life.tasks:
            if task not in joined:
                _patiently(partial(_join, agent, task))
        agent.run()


def _join(agent: Any, task: str) -> None:
    """Join a task, unless that was heard the first time and the market has gone on since."""
    from fedbourse.errors import Conflict

    try:
        agent.join(task)
    except Conflict:
        if agent.deal_of(task).state != "joined":
            raise


def _patiently(ask: Callable[[], object]) -> None:
    """Do what an owner does whose market is away: say it again."""
    from fedbourse.errors import Unreachable

    while True:
        try:
            ask()
        except Unreachable:
            time.sleep(0.05)
        else:
            return


def start(life: Life) -> int:
    """Fork a device; return its process."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        detach(Path(life.folder) / LOG)
        live(life)
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def main() -> None:
    """Start devices and say how they ended, as the lines of standard input say."""
    for lazily in (
        "cryptography.hazmat.primitives.serialization",
        "fedbourse.testing.e2e.deviations",
        "fedbourse.testing.e2e.device_faults",
        "encodings.idna",
        "fedbourse.device",
        "http_message_signatures",
        "httpx2",
    ):
        importlib.import_module(lazily)
    gc.freeze()  # a child that looks through all this would copy it
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "start":
            reply: int | None = start(Life(**command["life"]))
        else:
            if command["do"] == "kill":
                os.kill(command["pid"], signal.SIGKILL)
            pid, status = os.waitpid(command["pid"], 0 if command["do"] == "kill" else os.WNOHANG)
            reply = os.waitstatus_to_exitcode(status) if pid else None
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
