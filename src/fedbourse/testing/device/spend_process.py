"""A device in a process of its own, to be killed; and the laws that its wire must obey after.

The **wire** is a file that remembers all that ever left the device: one line for each update, there
before the device goes on. It lies outside the device, which never reads it.

Run as a script this forks a device for each life read from the standard input, and answers with a
line on how the life ended: forking is many times faster than starting an interpreter, and SIGKILL
leaves as little of a forked process as of any other.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from fedbourse.device import SpendStore
from fedbourse.errors import Refused
from fedbourse.privacy.filter import Account, Filter, RoundRequest, charge
from fedbourse.privacy.terms import Terms

Asked = tuple[int, str]
Send = Callable[[bytes], None]
Draw = Callable[[], bytes]


@dataclass(frozen=True)
class Life:
    """A device's process from start to end, and what a server asks of it meanwhile."""

    folder: str
    rounds: int
    asked: list[Asked]
    """Round and model of each request."""
    order: str = "charge, draw, store, send"
    killed_at: int | None = None
    """The point of its life at which the process kills itself."""

    @property
    def terms(self) -> Terms:
        """Return terms whose rounds cost a budget that no double divides evenly."""
        return Terms(task="task", rho=0.1, rounds=self.rounds, dimension=1, samples=1)


class Points:
    """The points of a life at which it can be ended; counting them, and dying at one."""

    def __init__(self, killed_at: int | None) -> None:
        self.passed = 0
        self._killed_at = killed_at

    def __call__(self, *_: object) -> None:
        if self.passed == self._killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.passed += 1


def live(life: Life) -> int:
    """Serve all requests; return the number of points passed."""
    point = Points(life.killed_at)
    folder = Path(life.folder)
    wire = os.open(folder / "wire", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    store = _stopping_at_every_statement(folder / "spend.db", point)
    guard = Filter(store, lifetime_cap=life.terms.rho)
    guard.agree(life.terms)

    def draw() -> bytes:
        point()
        noise = os.urandom(16)
        point()
        return noise

    for number, model in life.asked:

        def send(update: bytes, line: Asked = (number, model)) -> None:
            point()
            digest = hashlib.sha256(update).hexdigest()
            os.write(wire, (json.dumps([*line, digest]) + "\n").encode())
            os.fsync(wire)
            point()

        round_request = RoundRequest("task", life.terms.digest, number, model)
        with suppress(Refused):
            ORDERS[life.order](guard, round_request, draw, send)
    store.close()
    return point.passed


def _stopping_at_every_statement(file: Path, point: Points) -> SpendStore:
    """Open a store that passes a point before each SQL statement, from the first on."""
    connect = sqlite3.connect

    def traced(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        connection.set_trace_callback(point)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    try:
        return SpendStore(file)
    finally:
        sqlite3.connect = connect


def _right(guard: Filter, round_request: RoundRequest, draw: Draw, send: Send) -> None:
    send(guard.update(round_request, draw, cost=0.0))


def _charge_after_send(guard: Filter, round_request: RoundRequest, draw: Draw, send: Send) -> None:
    (account,) = guard.accounts()
    if charge(account, round_request, 0.0, [account], guard.lifetime_cap) is account:
        _right(guard, round_request, draw, send)
    else:
        update = draw()
        send(update)
        guard.charge(round_request, cost=0.0)
        guard.keep(round_request, update)


def _store_after_send(guard: Filter, round_request: RoundRequest, draw: Draw, send: Send) -> None:
    stored = guard.charge(round_request, cost=0.0)
    update = draw() if stored is None else stored
    send(update)
    guard.keep(round_request, update)


def _fresh_noise(guard: Filter, round_request: RoundRequest, draw: Draw, send: Send) -> None:
    guard.charge(round_request, cost=0.0)
    send(draw())


ORDERS = {
    "charge, draw, store, send": _right,
    "charge after sending": _charge_after_send,
    "store after sending": _store_after_send,
    "fresh noise for a repeated request": _fresh_noise,
}
RIGHT, *WRONG = ORDERS


def start(life: Life) -> int:
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


def ended(process: int) -> int:
    """Wait for a device's end; return its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


# What was sent, and whether it may have been.


@dataclass(frozen=True)
class Record:
    """A device's own account beside what its wire has seen."""

    account: Account | None
    sent: dict[int, set[tuple[str, str]]]
    """The different updates that left for each round: the model and the digest of each."""

    @property
    def charged(self) -> int:
        """Return the rounds that the device thinks it has paid for."""
        return 0 if self.account is None else self.account.charged

    @property
    def doubled(self) -> list[int]:
        """Return the rounds about which two different updates left."""
        return [number for number, updates in self.sent.items() if len(updates) > 1]

    def spent(self, terms: Terms) -> Fraction:
        """Return the privacy that is gone by the wire: every different update costs a round."""
        return sum(map(len, self.sent.values())) * Fraction(terms.round_rho)

    def broken_laws(self, terms: Terms) -> list[str]:
        """Return what went wrong, a sentence each."""
        broken = []
        if self.doubled:
            broken.append(f"two different updates left for rounds {self.doubled}")
        digests = [digest for updates in self.sent.values() for _, digest in updates]
        if len(set(digests)) < len(digests):
            broken.append("an update to one request left as that to another")
        if len(self.sent) > self.charged:
            broken.append(f"{len(self.sent)} rounds left, {self.charged} were charged")
        if self.spent(terms) > Fraction(terms.rho):
            broken.append("more was spent than the budget")
        if self.account is not None and self.account.spent > Fraction(terms.rho):
            broken.append("more was charged than the budget")
        return broken


def record(folder: Path) -> Record:
    """Read a device's account and its wire."""
    sent = defaultdict(set)
    for number, model, digest in wire(folder):
        sent[number].add((model, digest))
    store = SpendStore(folder / "spend.db")
    accounts = Filter(store, lifetime_cap=1.0).accounts()
    store.close()
    return Record(account=accounts[0] if accounts else None, sent=dict(sent))


def wire(folder: Path) -> list[tuple[int, str, str]]:
    """Return every line that left: round, model, digest of the update."""
    file = folder / "wire"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(number, model, digest) for number, model, digest in map(json.loads, lines)]


def repeats_and_goes_on(folder: Path, rounds: int) -> list[Asked]:
    """Ask the last request served again, then all others: what an honest server does."""
    last = max((number for number, _, _ in wire(folder)), default=0)
    return [(number, "model") for number in range(last, rounds)]


def asks_about_another_model(_: Path, rounds: int) -> list[Asked]:
    """Ask for every round again, about a model never seen: what a greedy server does."""
    model = f"other {os.urandom(4).hex()}"
    return [(number, model) for number in range(rounds + 1)]


def main() -> None:
    for line in sys.stdin:
        life = Life(**json.loads(line))
        code = ended(start(life))
        points = Path(life.folder) / "points"
        print(json.dumps([code, int(points.read_text()) if code == 0 else None]), flush=True)


if __name__ == "__main__":
    main()
