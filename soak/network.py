"""Kill devices and their market at random moments of live trainings, and compare both sides.

Prints a page in Markdown; `make soak` keeps it as docs/soak-network.md. Progress is on standard
error.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sqlite3
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
from spend import processor, row

from fedbourse import __version__
from fedbourse.testing.databases import PostgresServer
from fedbourse.testing.e2e import device_process, market_process
from fedbourse.testing.e2e.device_process import WIRE
from fedbourse.testing.e2e.forks import Forks, read_lines, start_forks
from fedbourse.testing.e2e.invariants import InvariantBroken
from fedbourse.testing.e2e.network import Network, device_accounts
from fedbourse.testing.e2e.supervised import Supervised

if TYPE_CHECKING:
    from fedbourse.testing.e2e.network import Supervisee

OWNERS, DECLINERS, TASKS, ROUNDS = 5, 1, 2, 12
LIFE_S = (0.02, 0.7)
"""Somebody is killed at a moment between these after the last kill."""
FAULT = "draws_again_for_a_repeated_request"


@dataclass
class Tally:
    """What happened to one market and its devices."""

    device_kills: int = 0
    server_kills: int = 0
    tasks: int = 0
    sent: int = 0
    """Updates that left, each time counted."""
    updates: int = 0
    """Different ones among them."""
    receipts: int = 0
    charged: int = 0
    most_spent: Fraction = field(default_factory=Fraction)
    transfers: int = 0
    checks: int = 0
    verified: int = 0
    broken: str = ""
    seconds: float = 0.0

    def add(self, device: Supervisee) -> None:
        """Count a device that is done."""
        wire = read_lines(device.path / WIRE)
        sent = [line for line in wire if "receipt" not in line]
        self.sent += len(sent)
        self.updates += len({(line["task"], line["round"], line["hash"]) for line in sent})
        for sold in (each for accounts in device_accounts(device).values() for each in accounts):
            self.charged += sold.charged
            spent = sold.charged * Fraction(sold.terms.round_rho) / Fraction(sold.terms.rho)
            self.most_spent = max(self.most_spent, spent)


class Struck(Network):
    """A network in which somebody is killed every now and then."""

    def __init__(self, *parts: Any, tally: Tally, rng: random.Random, share: float, **more: Any):
        """Kill the server in this share of all kills."""
        super().__init__(*parts, **more)
        self._tally, self._rng, self._share = tally, rng, share
        self._next = time.monotonic()

    def tend(self) -> None:
        """Kill somebody if it is time; then tend all."""
        super().tend()
        if time.monotonic() < self._next:
            time.sleep(0.002)
            return
        if self._rng.random() < self._share:
            self.market.kill()
            self._tally.server_kills += 1
            self.market.start()
        else:
            living = [device for device in self.devices if device.pid is not None]
            if living:
                self._tally.device_kills += self.kill(self._rng.choice(living))
        self.check()
        self._next = time.monotonic() + self._rng.uniform(*LIFE_S)


def soak(
    forks: tuple[Forks, Forks],
    folder: Path,
    *,
    device_kills: int,
    server_kills: int,
    seconds: float,
    seed: int,
    database: str | None = None,
    fault: str = "",
) -> Tally:
    """Carry tasks out, a few at a time, until there were enough kills."""
    tally, began = Tally(), time.monotonic()
    folder.mkdir()
    market = Supervised(forks[0], folder / "market", database=database)
    share = server_kills / max(1, device_kills + server_kills)
    rng = random.Random(seed)
    options: dict[str, Any] = {"tally": tally, "rng": rng, "share": share, "fault": fault}
    network = Struck(market, forks[1], owners=OWNERS, decliners=DECLINERS, **options)
    try:
        while tally.device_kills < device_kills or tally.server_kills < server_kills:
            if time.monotonic() - began > seconds:
                break
            network.run(*[network.publish(rounds=ROUNDS) for _ in range(TASKS)])
            tally.tasks += TASKS
            said = f"{tally.device_kills} devices and {tally.server_kills} servers killed"
            print(f"{tally.tasks} tasks completed, {said}", file=sys.stderr)
        records = network.check()
        wrong = network.verified()
        if wrong:
            raise InvariantBroken(str(wrong[:3]))
        tally.verified = len(network.tasks) * (1 + OWNERS + DECLINERS)
        tally.receipts = len(records.tables["updates"])
        tally.transfers = len(records.tables["transfers"])
        for device in network.devices:
            tally.add(device)
    except InvariantBroken as broken:
        tally.broken = str(broken)
    finally:
        network.close()
        market.kill()
    tally.checks, tally.seconds = network.checks, time.monotonic() - began
    return tally


def page(tallies: dict[str, Tally], wrong: Tally, options: argparse.Namespace) -> bool:
    """Print the page; say whether all that it claims is so."""
    right = tallies.values()
    device_kills, server_kills = (
        sum(getattr(t, name) for t in right) for name in ("device_kills", "server_kills")
    )
    broken = [t.broken for t in right if t.broken]
    print("# Killed at any moment, neither side of a training loses or gains\n")
    print(f"{device_kills} kills of devices and {server_kills} of the server (`kill -9`) at random "
          f"moments of live trainings:\n{len(broken)} invariants broken. A device made wrong on "
          f"purpose is {'caught' if wrong.broken else '**not caught**'}.\n")  # fmt: skip
    print(f"Written by `make soak`. {OWNERS} devices, each a process of its own with exact noise, "
          f"sell to {TASKS} tasks of {ROUNDS} rounds at a time over HTTP.\nOne more device "
          "declines whatever is offered, so that each price is discovered again and all others\n"
          "sign twice. At a random moment a device, or the server, is killed and started again; "
          "nobody else is told. After each kill\nboth sides' records are read past them and "
          "compared: no device spent more than its budget, terms that were given up cost\nnothing, "
          "every update that left was charged and stored before, a repeated round left with the "
          "same bytes, every receipt\nthat ever came is at the market, signed terms are reserved, "
          "owners were paid floor(p k/T) for their k updates and never\ntwice, and the books sum "
          "to zero. At the end every task is verified from its records by the auditor and by each "
          "device.\n")  # fmt: skip
    row("database", "device kills", "server kills", "tasks completed", "updates sent", "different",
        "receipts", "rounds charged", "most spent / budget", "transfers", "times compared",
        "verified", "invariants broken", "minutes")  # fmt: skip
    row("---", *["---:"] * 13)
    for name, t in (*tallies.items(), ("*SQLite, drawing again for a repeated round*", wrong)):
        row(name, t.device_kills, t.server_kills, t.tasks, t.sent or "", t.updates or "",
            t.receipts or "", t.charged or "", f"{float(t.most_spent):.3f}" if t.charged else "",
            t.transfers or "", t.checks, t.verified or "",
            "caught" if t is wrong and t.broken else int(bool(t.broken)),
            f"{t.seconds / 60:.1f}")  # fmt: skip
    print(
        "\nRounds charged and never sent are privacy that a kill wasted; they are not sold twice."
    )
    if wrong.broken:
        print(f"\nOf the device made wrong on purpose the invariants said: *{wrong.broken[:120]}*.")
    cores = len(os.sched_getaffinity(0))
    print(f"\n{processor()}, {cores} cores, Python {platform.python_version()}, SQLite "
          f"{sqlite3.sqlite_version}, PostgreSQL 18 (fsync off: processes end here, not machines), "
          f"fedbourse {__version__}.")  # fmt: skip
    enough = device_kills >= options.device_kills and server_kills >= options.server_kills
    if broken:
        print(f"\n**Broken: {broken[0]}**")
    elif not enough:
        print("\n**Time was up before all kills.**")
    return not broken and bool(wrong.broken) and enough


def main() -> int:
    """Soak on both databases, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--device-kills", type=int, default=100, help="on SQLite; a third elsewhere"
    )
    parser.add_argument("--server-kills", type=int, default=50, help="on SQLite; a third elsewhere")
    parser.add_argument("--wrong-kills", type=int, default=30, help="of devices made wrong")
    parser.add_argument("--seconds", type=float, default=360, help="at most, for new tasks")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    kills = {"device_kills": options.device_kills, "server_kills": options.server_kills}
    each: dict[str, Any] = {"seconds": options.seconds, "seed": options.seed}
    tallies: dict[str, Tally] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=memory)))
        markets = stack.enter_context(start_forks(market_process))
        forks = markets, stack.enter_context(start_forks(device_process))
        tallies["SQLite"] = soak(forks, folder / "sqlite", **kills, **each)
        server = PostgresServer()
        stack.callback(server.remove)
        server.start()
        server.execute("CREATE DATABASE market")
        less = {name: -(-count // 3) for name, count in kills.items()}
        tallies["PostgreSQL"] = soak(
            forks, folder / "postgresql", database=server.url("market"), **less, **each
        )
        wrong_kills = {"device_kills": options.wrong_kills, "server_kills": 0}
        wrong = soak(forks, folder / "wrong", fault=FAULT, **wrong_kills, **each)
    return 0 if page(tallies, wrong, options) else 1


if __name__ == "__main__":
    sys.exit(main())
