"""Announcing, ticks, what-if and settlements hold a part of their owners in memory, never all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import text

from fedbourse.market import clock, log
from fedbourse.market.task import State
from market.trading import Trading

TESTS = Path(__file__).parents[1]
OWNERS = 200_000
MB_MAX = 80
"""A process that reads every plan as a record takes more (the last test)."""

CHILD = """
import json, sys
from pathlib import Path
from fedbourse.market import buying, clock, what_if
from fedbourse.storage import SqlStore
from market.trading import BUYER, Trading

def peak_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

def tick(trading, task):
    with trading.store.begin() as unit:
        assert clock.move_on(trading.market, unit, task)

STEPS = {
    "announce": lambda trading, task: trading.do(buying.announce, BUYER, task),
    "what-if": lambda trading, task: trading.see(what_if.of_task, BUYER, task, rewards=[1.0, 2.0]),
    "tick": tick,
    "settle": lambda trading, task: trading.do(buying.settle, BUYER, task),
    "everything": lambda trading, task: trading.see(lambda unit: unit.plans(task)),
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


def filled(store, kind, task, table, columns):
    """Store one record for each of many owners."""
    leaf, salt = log.leaf("", ""), "0" * 32
    select = f"SELECT '{task}', {NAME[kind]}, {columns}, '{salt}', '{leaf}', 7"
    with store.begin() as unit:
        unit._connection.execute(
            text(NUMBERS[kind].format(table=table, select=select, count=OWNERS))
        )


def grown_mb(url, task, *steps):
    """Return by how much the memory of a process grew that took these steps."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, url, task, *steps],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_memory_does_not_grow_with_the_owners(store, kind, database_url) -> None:
    trading = Trading(store)
    trading.fund(10**12)
    task = trading.opened(reward="best-reported", max_reward=100.0).id
    filled(store, kind, task, "interests", f"1.0 + 4.0 * i / {OWNERS}")
    assert grown_mb(database_url, task, "announce", "what-if") < MB_MAX
    filled(store, kind, task, "plans", "0, 0.001 + 0.0001 * (i % 977)")
    assert grown_mb(database_url, task, "tick", "settle") < MB_MAX
    assert grown_mb(database_url, task, "everything") > MB_MAX

    settled = trading.task(task)
    assert settled.state is State.SETTLED
    with store.read() as unit:
        columns = list(unit.columns("lines", task, "position", "payment"))
        assert sum(sum(payments) for _, payments in columns) == settled.reward
        places = [place for positions, _ in columns for place in positions]
        assert places == list(range(len(places)))
    body = trading.events(task)[-1].body
    assert (body["plans"], body["lines"]) == (OWNERS, len(places))
    assert clock.advance_one(trading.market, store, task) is False
