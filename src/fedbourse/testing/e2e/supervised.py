"""A market that is started again whenever it was struck, and checked each time."""

from __future__ import annotations

import http.client
import json
import random
import signal
import socket
import time
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from fedbourse.errors import TooManyRequests, Unreachable
from fedbourse.protocol.connection import Connection
from fedbourse.testing.e2e.forks import Forks, read_lines
from fedbourse.testing.e2e.invariants import (
    Acknowledged,
    InvariantBroken,
    Records,
    broken_invariants,
    lost,
    read_records,
)
from fedbourse.testing.e2e.market_process import (
    LOG,
    SHIFT,
    STEPS,
    Life,
    shifted_ms,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fedbourse.testing.databases import PostgresServer

WAIT_S = 60
TRIES = 60
"""A request is hit a few times itself, and the clock a few times while it is sent."""


def free_port() -> int:
    """Return a port that nobody uses, outside those that the system hands out by itself.

    Among those a client that calls a dead server over and over would one day reach itself.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Supervised:
    """A market whose server, or whose database's server, is struck; and what it has promised."""

    def __init__(
        self,
        forks: Forks,
        folder: Path,
        *,
        database: str | None = None,
        server: PostgresServer | None = None,
        **life: Any,
    ) -> None:
        """Start a market; ``server`` is the database's server, if that one is to be struck."""
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.database = database or f"sqlite:///{folder / 'market.db'}"
        self._forks, self._server = forks, server
        self.life = Life(
            str(folder),
            free_port(),
            self.database,
            postmaster=str(server.data / "postmaster.pid") if server else "",
            **life,
        )
        self.acknowledged: list[Acknowledged] = []
        self.starts = self.database_starts = self.checks = 0
        self.market_key = ""
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.life.port}"

    def start(self) -> None:
        """Start the server, again and again where it is struck while it starts."""
        while True:
            self.starts += 1
            reply = self._forks.ask("start", life=asdict(self.life))
            if reply["ready"]:
                assert self.market_key in ("", reply["ready"]["key"])
                self.market_key = reply["ready"]["key"]
                return
            if not self._mend_database():
                self._check_end(reply["code"])

    def mend(self, _: float = 0.0) -> None:
        """Find out why there was no response, and put it right; then all invariants must hold."""
        code = self._forks.ask("poll")["code"]
        if code is not None:
            self._check_end(code)
            self.start()
        elif not self._mend_database(serving=True):
            time.sleep(0.01)
            return
        self.check()

    def _check_end(self, code: int) -> None:
        log = (self.folder / LOG).read_text()[-3000:]
        assert code == -signal.SIGKILL, f"the server ended by itself, with {code}: {log}"
        assert not self._server, f"only the database was to be struck: {log}"

    def _mend_database(self, *, serving: bool = False) -> bool:
        """Start the database again where it was stopped; the market must have said so meanwhile."""
        if self._server is None or _updates(self._server):
            return False
        if serving:
            for asked in (("GET", "/v1/health"), ("GET", "/v1/tasks"), ("POST", "/v1/deposits")):
                assert self.problem(*asked) == (503, "Unreachable")
        for _ in range(TRIES):
            self._server.stop()  # it is gone already: this takes note of it
            self.database_starts += 1
            try:
                self._server.start()
            except RuntimeError:
                continue  # another step struck it while it started
            return True
        raise AssertionError("the database does not start again")

    def problem(self, method: str, path: str) -> tuple[int, str]:
        """Ask for what cannot be had now, and return the status and code of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.life.port, timeout=WAIT_S)
        headers = {"Content-Type": "application/json", "Idempotency-Key": "a-stranger"}
        try:
            body = b'{"reference": "none"}' if method == "POST" else None
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            assert response.getheader("content-type") == "application/problem+json"
            return response.status, json.loads(response.read())["code"]
        finally:
            connection.close()

    def kill(self) -> None:
        """End the server at this moment, from outside."""
        self._forks.ask("kill")

    def check(self) -> Records:
        """Compare the records with the invariants, and with all that was acknowledged before."""
        acknowledged = list(self.acknowledged)
        records = self.records()
        broken = [*broken_invariants(records), *lost(records, acknowledged)]
        if broken:
            raise InvariantBroken("; ".join(broken[:5]))
        self.checks += 1
        return records

    def records(self) -> Records:
        """Read everything, past the market."""
        while True:
            try:
                return read_records(self.database, self.folder / "payments" / "payouts.jsonl")
            except psycopg.OperationalError:
                assert self._mend_database(serving=True)

    def connection(self, **who: Any) -> Connection:
        """Return a way to the market, which mends it wherever a client would only wait."""
        now_ms = partial(shifted_ms, self.folder)
        return Connection(self.url, sleep=self.mend, now_ms=now_ms, timeout_s=WAIT_S, **who)

    def patiently(self, ask: Callable[[], Any]) -> Any:
        """Ask until there is a response."""
        for _ in range(TRIES):
            try:
                return ask()
            except Unreachable:
                self.mend()
            except TooManyRequests:
                time.sleep(1)
        raise AssertionError(f"no response: {(self.folder / LOG).read_text()[-3000:]}")

    @contextmanager
    def sending(self, caller: str, key: str) -> Iterator[None]:
        """Know of a write from before it is sent until its response."""
        yield

    def pass_time(self, seconds: float) -> None:
        """Put the market's clock forward, and that of all its callers."""
        shift = shifted_ms(self.folder) - time.time_ns() // 1_000_000
        draft = self.folder / f".{SHIFT}"
        draft.write_text(str(shift + int(seconds * 1000)))
        draft.replace(self.folder / SHIFT)

    def strikes(self) -> list[dict[str, Any]]:
        """Return every strike, and every step that was carried out."""
        return read_lines(self.folder / STEPS)


def _updates(server: PostgresServer) -> bool:
    try:
        psycopg.connect(server.url()).close()
    except psycopg.OperationalError:
        return False
    return True
