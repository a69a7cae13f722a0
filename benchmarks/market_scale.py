"""A market with a million owners: announcing, a tick, what-if and settling, each by itself.

Prints a section in Markdown. Each step runs in a process of its own over the same database, so that
its largest memory is its own; a step has read nothing before it starts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import insert

from equilibrium import row
from fedbourse.market import log, what_if
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import scheduler
from fedbourse.storage import SqlStore
from fedbourse.storage.schema import interests, replies
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.databases import PostgresServer
from fedbourse.testing.trading import BUYER, Trading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DAY_S = 24 * 3600.0
PATIENT = Deadlines(interest_s=DAY_S, tick_s=DAY_S, plans_s=DAY_S, terms_s=DAY_S)
REWARDS = np.linspace(1, 100, 100).tolist()
INTRODUCTION = """## A million owners

Written by `benchmarks/market_scale.py`. A task of {owners} owners, all of whom told their values,
on {database}; each step in a process of its own that streams what it needs from the database. The
memory is the process's own, before the step and at its largest; PostgreSQL's server has its own.
Announcing finds the best reward for the values that were told; a what-if looks at 100 rewards by
four accuracy models; settling closes a tick and pays {owners} plans, all above 0. With values from
1 to 5 few owners take part; with nearly equal values, all of them.
"""
SPREADS = {"from 1 to 5": (1.0, 5.0), "nearly equal": (1.0, 1.0 + 1e-7)}


def fill(store: SqlStore, owners: int) -> dict[str, str]:
    """Make a task of each kind of values, each with all its owners' interests."""
    trading = Trading(store)
    trading.fund(10**12)
    found = {}
    for kind, ends in SPREADS.items():
        task = trading.opened(reward="best-reported", max_reward=1000.0, deadlines=PATIENT)
        values = np.random.default_rng(owners).uniform(*ends, owners)
        at = {"task": task.id, "at_ms": trading.time_ms, "salt": "0" * 32, "leaf": log.leaf("", "")}
        _add(store, interests, at, {"value": values.tolist()})
        found[kind] = task.id
    return found


def reply(store: SqlStore, id: str, owners: int) -> None:
    """Store a reply of every owner to the open tick: the same budgets at each, half of the first P.

    At that total they qualify, so that the task can be settled.
    """
    with store.read() as tx:
        task = tx.task(id)
    drawn = np.random.default_rng(owners + 1).lognormal(-7, 1, owners)
    budgets = 0.5 * task.totals[0] * drawn / drawn.sum()
    at = {"task": id, "at_ms": 0, "salt": "0" * 32, "leaf": log.leaf("", ""), "tick": task.tick}
    _add(store, replies, at, {"budget": budgets.tolist()})


def _add(store: SqlStore, table: Any, at: dict[str, Any], columns: dict[str, list[float]]) -> None:
    ((name, numbers),) = columns.items()
    for start in range(0, len(numbers), 10_000):
        some = enumerate(numbers[start : start + 10_000], start)
        with store.begin() as tx:
            tx._connection.execute(
                insert(table), [at | {"owner": f"owner:m{i:07d}", name: n} for i, n in some]
            )


def announce(trading: Trading, task: str) -> None:
    """Fix the reward, best for the values told."""
    trading.do(buyer_commands.announce, BUYER, task)


def tick(trading: Trading, task: str) -> None:
    """Move P by what all owners replied."""
    with trading.store.begin() as tx:
        assert scheduler.move_on(trading.market, tx, task)


def look(trading: Trading, task: str) -> None:
    """Ask what a hundred rewards would buy."""
    found = trading.see(what_if.of_task, BUYER, task, rewards=REWARDS)
    assert (found.basis, len(found.models)) == ("reported", 4)


def settle(trading: Trading, task: str) -> None:
    """Close the last tick, and turn the replies that qualify into payments."""
    trading.time_ms = trading.task(task).deadline_ms
    tick(trading, task)


STEPS: dict[str, Callable[[Trading, str], None]] = {
    "announce": announce,
    "tick": tick,
    "what-if": look,
    "settle": settle,
}


def step(name: str, url: str, task: str) -> dict[str, float]:
    """Carry out one step in this process; return its time and memory."""
    with SqlStore(url) as store:
        trading = Trading(store)
        trading.task(task)
        before, start_s, start_cpu_s = peak_mb(), time.perf_counter(), time.process_time()
        STEPS[name](trading, task)
        return {
            "s": time.perf_counter() - start_s,
            "cpu_s": time.process_time() - start_cpu_s,
            "before": before,
            "peak": peak_mb(),
        }


def peak_mb() -> float:
    """Return the largest memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # what the kernel adds up for getrusage may include the parent's
        line = next(each for each in status.read_text().splitlines() if each.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(name: str, url: str, task: str) -> dict[str, float]:
    """Carry out one step in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--step", name, "--url", url, "--task", task],
        check=True,
        stdout=subprocess.PIPE,
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


@contextmanager
def database(postgres: bool) -> Iterator[str]:
    """Make a database for a while, and return its URL."""
    if not postgres:
        Path("build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir="build") as folder:
            yield f"sqlite:///{Path(folder).absolute() / 'market.db'}"
        return
    server = PostgresServer(fsync=True)
    try:
        server.start()
        with server.database() as url:
            yield url
    finally:
        server.remove()


def main() -> None:
    """Measure, and print the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=10**6)
    parser.add_argument("--postgres", action="store_true")
    for hidden in ("--step", "--url", "--task"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(step(options.step, options.url, options.task)))
        return
    name = "PostgreSQL" if options.postgres else "SQLite"
    print(INTRODUCTION.format(owners=options.owners, database=name))
    row(
        "values",
        "step",
        "seconds",
        "CPU seconds",
        "CPU us an owner",
        "MB before",
        "MB at most",
        "MB more",
    )
    row("---", "---", *["---:"] * 6)
    with database(options.postgres) as url:
        with SqlStore(url) as store:
            tasks = fill(store, options.owners)
        for kind, task in tasks.items():
            measure(kind, "announce", url, task, options.owners)
            measure(kind, "what-if", url, task, options.owners)
        kind, task = next(iter(tasks.items()))
        for each in ("tick", "settle"):
            with SqlStore(url) as store:
                reply(store, task, options.owners)
            measure(kind, each, url, task, options.owners)
        with SqlStore(url) as store, store.read() as tx:
            paid = sum(sum(column) for (column,) in tx.columns("allocations", task, "payment"))
            assert paid == tx.task(task).reward


def measure(kind: str, name: str, url: str, task: str, owners: int) -> None:
    """Print a row."""
    found = apart(name, url, task)
    row(
        kind,
        name,
        f"{found['s']:.2f}",
        f"{found['cpu_s']:.2f}",
        f"{found['cpu_s'] / owners * 1e6:.1f}",
        f"{found['before']:.0f}",
        f"{found['peak']:.0f}",
        f"{found['peak'] - found['before']:.0f}",
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
