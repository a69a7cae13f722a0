"""Attack a market for a bounded time; measure what gets through and how long honest plans take.

One attacker at a time does its worst against ``fedbourse serve`` on each database: a stranger, a
buyer, an owner, a bad network; and a bad market does against a device. Prints a page in Markdown;
`make soak` keeps it as docs/soak-attack.md. Progress is on standard error. With ``--undo`` each
defence of ``undone.py`` is undone in turn, and its attack must get through.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import secrets
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
from attackers import ATTACKS, Score, Target, bad_market
from spend import processor, row
from sqlalchemy import func, select
from undone import UNDOINGS

from fedbourse import __version__
from fedbourse.market.commands import access
from fedbourse.protocol.connection import Connection
from fedbourse.storage import SqlStore
from fedbourse.storage.identity_tables import nonces, responses
from fedbourse.storage.schema import payouts, transfers
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.databases import PostgresServer
from fedbourse.testing.trading import BUYER, KEY, Trading, best_budget

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedbourse.protocol.keys import SigningKey

CONNECTIONS, FEW = 20, 2
OWNERS = 8
SLOW = Deadlines(tick_s=7200, plans_s=72_000, review_s=0, round_s=7200)
P99_MS = 250
PLAN_EVERY_S = 0.05


def filled(
    url: str, folder: Path
) -> tuple[dict[str, str], dict[str, str], str, SigningKey, str, float]:
    """Put a market into a database: tasks in three states, owners, tokens; return what is known."""
    KEY.save(folder / "market.key")
    with SqlStore(url) as store:
        trading = Trading(store)
        trading.time_ms = time.time_ns() // 1_000_000
        trading.fund(10**9)
        owners = trading.owners(*(1.0 + 0.01 * number for number in range(OWNERS)))
        done = trading.completed(owners, rounds=20)
        training = trading.in_training(owners, deadlines=SLOW)
        announced = trading.announced(owners, deadlines=SLOW)
        tokens = {}
        with store.begin() as tx:
            for name, party, scope in (
                ("buyer", BUYER.party, "buyer"),
                ("owner", owners[1].name, "owner"),
            ):
                _, tokens[name] = access.issue_token(
                    trading.market, tx, None, holder=party, scopes=[scope]
                )
        tasks = {"completed": done.id, "training": training.id, "announced": announced.id}
        honest = owners[0]
        return (
            tasks,
            tokens,
            honest.name,
            honest.key,
            announced.offer,
            best_budget(honest, announced),
        )


@contextmanager
def market(kind: str, *, undone: str = "") -> Iterator[tuple[Target, SqlStore]]:
    """Serve a filled market on the first core; also return a store over its database.

    ``undone`` names a defence that it does without.
    """
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="fb-attack-")))
        url = f"sqlite:///{folder / 'market.db'}"
        if kind == "postgresql":
            server = PostgresServer()
            opened.callback(server.remove)
            server.start()
            url = opened.enter_context(server.database())
        known = filled(url, folder)
        program = [str(Path(__file__).with_name("undone.py")), undone] if undone else []
        command = [
            sys.executable,
            *(program or ["-m", "fedbourse"]),
            "serve",
            "--folder",
            str(folder),
            "--port",
            "0",
            "--json",
        ]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"FEDBOURSE_DATABASE": url},
        )
        os.sched_setaffinity(process.pid, {0})
        opened.callback(process.wait)
        opened.callback(process.terminate)
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["url"]
        store = opened.enter_context(SqlStore(url))
        yield Target(address, *known), store


def run_attack(
    name: str,
    target: Target,
    seconds: float,
    connections: int,
    results: multiprocessing.Queue,  # type: ignore[type-arg]
) -> None:
    """Attack from the second core with several connections; tell the score."""
    from concurrent.futures import ThreadPoolExecutor

    with suppress(OSError, ValueError):
        os.sched_setaffinity(0, {1})
    until = time.monotonic() + seconds
    workers = 1 if name == "network" else connections
    with ThreadPoolExecutor(workers) as pool:
        scores = [
            each.result()
            for each in [pool.submit(ATTACKS[name], target, until) for _ in range(workers)]
        ]
    total = Score()
    for score in scores:
        total.tried += score.tried
        total.through += score.through
    results.put(total)


def plan_times(target: Target, seconds: float) -> list[float]:
    """Reply to the open tick as an honest device does, for so long; return milliseconds."""
    took, until = [], time.monotonic() + seconds
    path = f"/v1/tasks/{target.tasks['announced']}/plan"
    with Connection(target.url, key=target.key) as line:
        while time.monotonic() < until:
            body = {"tick": 0, "budget": target.budget, "previous": target.offer}
            began = time.perf_counter()
            line.put(path, body, idempotency_key=secrets.token_hex(12))
            took.append(1000 * (time.perf_counter() - began))
            time.sleep(PLAN_EVERY_S)
    return took


def counted(store: SqlStore) -> dict[str, int]:
    """Return how many rows there are of what attackers might make."""
    with store._database.reader.connect() as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar() or 0
            for table in (transfers, payouts, nonces, responses)
        }


def attacked(
    name: str, target: Target, store: SqlStore, seconds: float, connections: int = CONNECTIONS
) -> tuple[Score, list[float]]:
    """Let one attacker do its worst while an honest device plans."""
    results: multiprocessing.Queue = multiprocessing.Queue()  # type: ignore[type-arg]
    before = counted(store)
    order = name, target, seconds, connections, results
    process = multiprocessing.Process(target=run_attack, args=order)
    process.start()
    took = plan_times(target, seconds)
    score: Score = results.get(timeout=120)
    process.join()
    after = counted(store)
    for table in ("transfers", "payouts"):
        score.through[f"new {table}"] += after[table] - before[table]
    # An honest plan leaves a nonce and a response each; what is beyond that an attacker made.
    for table in ("nonces", "responses"):
        beyond = after[table] - before[table] - len(took)
        score.through[f"{table} beyond the plans"] += max(0, beyond)
    return score, took


def attacked_without(name: str, seconds: float) -> tuple[Score, list[float]]:
    """Attack a market, or a device, that does without one defence."""
    undoing = UNDOINGS[name]
    if undoing.attacker == "bad market":
        with TemporaryDirectory(prefix="fb-attack-") as folder, undoing.undone():
            return bad_market(Path(folder)), []
    with market("sqlite", undone=name) as (target, store):
        connections = FEW if undoing.through else CONNECTIONS
        return attacked(undoing.attacker, target, store, seconds, connections)


def show_undone(names: Sequence[str], seconds: float) -> int:
    """Print what gets through where each defence is undone; all must let something through."""
    print("\n## With one defence undone\n")
    print(
        "Something must get through. Where a defence is about time, honest plans must take longer "
        f"than with it, and more than {P99_MS} ms at p99.\n"
    )
    row("defence undone", "attacker", "got through", "p50 and p99 ms with it", "and without")
    row(*["---"] * 5)
    blind = []
    for name in names:
        undoing, usual = UNDOINGS[name], Waits()
        print(f"undone: {name}", file=sys.stderr, flush=True)
        if not undoing.through:
            with market("sqlite") as (target, store):
                usual = Waits.of(attacked(undoing.attacker, target, store, seconds)[1])
        score, took = attacked_without(name, seconds)
        waits = Waits.of(took) if not undoing.through else Waits()
        through = {what: count for what, count in sorted(score.through.items()) if count}
        longer = waits.p50_ms > usual.p50_ms and waits.p99_ms > P99_MS
        blind += [] if undoing.through in through or longer else [name]
        row(
            undoing.defence,
            undoing.attacker,
            ", ".join(f"{count:,} {what}" for what, count in through.items()) or "0",
            str(usual),
            str(waits),
        )
    if blind:
        print(f"\nUndoing this was not noticed: {', '.join(blind)}.")
    return 1 if blind else 0


@dataclass(frozen=True)
class Waits:
    """How long honest plans took."""

    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @classmethod
    def of(cls, took: Sequence[float]) -> Waits:
        """Sum up milliseconds; there is one plan at least."""
        return cls(*np.percentile(took, [50, 99]).tolist())

    def __str__(self) -> str:
        """Return both for a table; a dash where nothing was measured."""
        return f"{self.p50_ms:.0f}, {self.p99_ms:.0f}" if self.p99_ms else "–"


def shown(kind: str, name: str, score: Score, took: list[float]) -> bool:
    """Print a row; say whether all is as it should be."""
    through = {what: count for what, count in score.through.items() if count}
    p50, p99 = np.percentile(took, [50, 99]) if took else (float("nan"), float("nan"))
    row(
        kind,
        name,
        ", ".join(f"{count:,} {what}" for what, count in sorted(score.tried.items())) or "nothing",
        ", ".join(f"**{count:,} {what}**" for what, count in sorted(through.items())) or "0",
        f"{len(took)}",
        f"{p50:.0f}" if took else "–",
        "–" if not took else f"{p99:.0f}" if p99 < P99_MS else f"**{p99:.0f}**",
    )
    return not through and (not took or bool(p99 < P99_MS))


def main() -> int:
    """Attack both databases, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each attack")
    parser.add_argument("--databases", nargs="+", default=["sqlite", "postgresql"])
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS))
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="of an attacker")
    parser.add_argument("--no-device", action="store_true", help="leave the bad market out")
    parser.add_argument(
        "--undo", nargs="*", choices=list(UNDOINGS), help="undo these defences, or each in turn"
    )
    options = parser.parse_args()
    os.environ.setdefault("FEDBOURSE_STATE", str(Path.cwd() / "build" / "attack-state"))
    if options.undo is not None:
        return show_undone(options.undo or list(UNDOINGS), options.seconds)
    print("# The market under attack\n")
    print(
        f"`python soak/attack.py`, fedbourse {__version__}, Python {platform.python_version()}, "
        f"{processor()}, {os.cpu_count()} cores: {options.seconds:g} s for each attack, from "
        f"{options.connections} connections; server and attacker have a core each, attacker "
        f"and device an address each. What got through should be 0, and an honest device's plan "
        f"take less than {P99_MS} ms at p99.\n"
    )
    row("database", "attacker", "tried", "got through", "plans", "p50 ms", "p99 ms")
    row(*["---"] * 7)
    fine = True
    for kind in options.databases:
        with market(kind) as (target, store):
            calm = plan_times(target, options.seconds / 2)
            fine &= shown(kind, "nobody", Score(), calm)
            for name in options.attacks:
                print(f"{kind}: {name}", file=sys.stderr, flush=True)
                outcome = attacked(name, target, store, options.seconds, options.connections)
                fine &= shown(kind, name, *outcome)
    if not options.no_device:
        print("a device: bad market", file=sys.stderr, flush=True)
        with TemporaryDirectory(prefix="fb-attack-") as folder:
            fine &= shown("–", "bad market", bad_market(Path(folder)), [])
    if not fine:
        print("\nWhat is bold misses its goal.")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
