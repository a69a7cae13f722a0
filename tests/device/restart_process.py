"""A device in a process of its own that follows a deal, to be killed where it writes or sends.

Run as a script this forks a device for each life that is read from the standard input, as
``spend_process`` does, and answers with a line on how the life ended.
"""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbourse.testing.device.spend_process import Points, ended


@dataclass(frozen=True)
class Followed:
    """The life of a device that has joined a task."""

    folder: str
    killed_at: int | None = None
    """The point of its life at which the process kills itself."""


def live(life: Followed) -> int:
    """Follow the deal to its end; return the number of points passed."""
    from fedbourse.device import Agent
    from fedbourse.protocol.connection import Connection
    from fedbourse.testing.device.owners import Data

    point = Points(life.killed_at)
    connect, write = sqlite3.connect, Connection._write

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, factory=_stopping(point), **options)
        return connection

    def sent(connection: Connection, *args: Any) -> bytes:
        point()
        try:
            return write(connection, *args)
        finally:
            point()

    sqlite3.connect = traced  # type: ignore[assignment]
    Connection._write = sent  # type: ignore[method-assign]
    with Agent(life.folder, data=Data()) as agent:
        agent.run()
    return point.passed


def _stopping(point: Points) -> type[sqlite3.Connection]:
    """Return a connection that passes a point before and after each COMMIT that wrote."""

    class Stopping(sqlite3.Connection):
        wrote = 0

        def execute(self, text: str, given: Any = (), /) -> sqlite3.Cursor:
            if text.startswith("BEGIN"):
                self.wrote = self.total_changes
            elif text == "COMMIT" and self.total_changes > self.wrote:
                point()
                cursor = super().execute(text, given)
                point()
                return cursor
            return super().execute(text, given)

    return Stopping


def start(life: Followed) -> int:
    """Fork a device that lives this life; return its process id."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        passed = live(life)
        (Path(life.folder) / "points").write_text(str(passed))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    for name in (
        "fedbourse.testing.device.owners",
        "cryptography.hazmat.primitives.serialization",
        "encodings.idna",
        "fedbourse.device",
        "http_message_signatures",
        "httpx2",
        "scipy.special",
    ):
        importlib.import_module(name)
    for line in sys.stdin:
        life = Followed(**json.loads(line))
        code = ended(start(life))
        points = Path(life.folder) / "points"
        print(json.dumps([code, int(points.read_text()) if code == 0 else None]), flush=True)


if __name__ == "__main__":
    main()
