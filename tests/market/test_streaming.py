"""Announcing, ticks, what-if and settlements hold a part of their owners in memory, never all."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from sqlalchemy import text

from fedbourse.market import log
from fedbourse.market.commands import scheduler
from fedbourse.market.records import State
from fedbourse.testing.trading import Trading

OWNERS = 200_000
MB_MAX = 80
"""A process that reads every interest as a record takes more (the last test)."""
SALT, LEAF = "0" * 32, log.leaf("", "")

CHILD = """
import json, sys
from pathlib import Path
from fedbourse.market import what_if
from fedbourse.market.commands import buyer, scheduler
from fedbourse.storage import SqlStore
from fedbourse.testing.trading import BUYER, Trading

def peak_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

def tick(trading, task):
    with trading.store.begin() as tx:
        assert scheduler.move_on(trading.market, tx, task)

def settle(trading, task):
    trading.time_ms = trading.task(task).deadline_ms
    tick(trading, task)

STEPS = {
    "announce": lambda trading, task: trading.do(buyer.announce, BUYER, task),
    "what-if": lambda trading, task: trading.see(what_if.of_task, BUYER, task, rewards=[1.0, 2.0]),
    "tick": tick,
    "settle": settle,
    "everything": lambda trading, task: trading.see(lambda tx: tx.interests(task)),
}
url, task, *steps = sys.argv[1:]
with SqlStore(url) as store:
    trading = Trading(store)
    trading.task(task)
    before = peak_mb()
    for step in steps:
        kept = STEPS[step](trading, task)
    print(json.dumps(peak_mb() - before))
"""
NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS"
    " (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count})"
    " INSERT INTO {table} {select} FROM n",
    "postgresql": "INSERT INTO {table} {select} FROM generate_series(0, {count} - 1) AS n(i)",
}
NAME = {
    "sqlite": "'owner:' || printf('%07d', i)",
    "postgresql": "'owner:' || lpad(i::text, 7, '0')",
}


def filled(store, kind, table, select):
    """Store one record for each of many owners."""
    with store.begin() as tx:
        tx._connection.execute(text(NUMBERS[kind].format(table=table, select=select, count=OWNERS)))


def interested(store, kind, task):
    columns = f"'{task}', {NAME[kind]}, 1.0 + 4.0 * i / {OWNERS}, '{SALT}', '{LEAF}', 7, NULL"
    filled(store, kind, "interests", f"SELECT {columns}")


def replied(store, kind, task):
    """Let everybody reply to the open tick, with the same budgets each time: about 1/4 of P."""
    budget = f"{task.totals[0]!r} / {2000 * OWNERS} * (1 + i % 977)"
    columns = f"'{task.id}', {task.tick}, {NAME[kind]}, {budget}, '{SALT}', '{LEAF}', 7"
    filled(store, kind, "replies", f"SELECT {columns}")


def grown_mb(url, task, *steps):
    """Return by how much the memory of a process grew that took these steps."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, url, task, *steps],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_memory_does_not_grow_with_the_owners(store, kind, database_url) -> None:
    trading = Trading(store)
    trading.fund(10**12)
    task = trading.opened(reward="best-reported", max_reward=100.0).id
    interested(store, kind, task)
    assert grown_mb(database_url, task, "announce", "what-if") < MB_MAX
    replied(store, kind, trading.task(task))
    assert grown_mb(database_url, task, "tick") < MB_MAX
    replied(store, kind, trading.task(task))
    assert grown_mb(database_url, task, "settle") < MB_MAX
    assert grown_mb(database_url, task, "everything") > MB_MAX

    settled = trading.task(task)
    assert settled.state is State.SETTLED
    with store.read() as tx:
        columns = list(tx.columns("allocations", task, "position", "payment"))
        assert sum(sum(payments) for _, payments in columns) == settled.reward
        places = [place for positions, _ in columns for place in positions]
        assert places == list(range(len(places)))
    body = trading.events(task)[-1].body
    assert (body["plans"], body["allocations"]) == (OWNERS, len(places))
    assert scheduler.advance_one(trading.market, store, task) is False
