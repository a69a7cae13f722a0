"""What a signed, durable plan costs, and how long a settlement takes, on both databases.

Prints a page in Markdown; `make benchmarks` keeps it as docs/performance-market.md. Plans and bare
inserts are sent in turns, by the same threads, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from sqlalchemy import insert

from equilibrium import processor, row
from fedbourse import __version__
from fedbourse.market import log
from fedbourse.market.commands import scheduler
from fedbourse.market.views import View
from fedbourse.protocol.signatures import Request, sign_request
from fedbourse.storage import SqlStore
from fedbourse.storage.schema import interests, replies
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.databases import PostgresServer
from fedbourse.testing.trading import Owner, Trading, caller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.market.records import Task

DAY_S = 24 * 3600.0
PATIENT = Deadlines(interest_s=DAY_S, tick_s=DAY_S, plans_s=DAY_S, terms_s=DAY_S)
INTRODUCTION = """# What the market costs

Written by `make benchmarks` (`benchmarks/market.py`). One web process, one client process with
{threads} threads on the same machine, over the loopback without TLS.

fedbourse {version}, Python {python}, {processor}, {cores} cores.

## Signed, durable plans

Each plan is a signed request (RFC 9421, Ed25519): the signature is checked, the nonce, the
idempotency key, the plan and the answer are written in one transaction, and the answer leaves when
that is on disk. A bare insert is one row written durably through the same FastAPI, SQLAlchemy and
uvicorn, without a signature, nonce, key or rules. Medians over {turns} turns of {count} requests
each; the CPU is that of the web process alone.
"""
SETTLEMENT = """
## Settlement

From the replies in the database to payments that sum to R exactly: the last tick is closed, all
replies are summed and hashed, and salted hashes, the Merkle root and all allocations are stored, in
one transaction, its commit included. A bare insert is the one above. A proof is the path from one
leaf to the root, as its owner may ask for it: the median of many.
"""


@dataclass(frozen=True)
class Load:
    """How one turn went."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """Give the URL of a fresh database of each kind, with real durability."""
    with tempfile.TemporaryDirectory(dir="build") as folder:
        server = PostgresServer(fsync=True)
        try:
            server.start()
            server.execute("CREATE DATABASE market")
            yield {
                "SQLite": f"sqlite:///{Path(folder) / 'market.db'}",
                "PostgreSQL": server.url("market"),
            }
        finally:
            server.remove()


@contextmanager
def served(kind: str, url: str) -> Iterator[tuple[int, int]]:
    """Serve in a process of its own; give its port and process id."""
    script = str(Path(__file__).with_name("market_server.py"))
    process = subprocess.Popen(
        [sys.executable, script, kind, url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bare_requests(count: int) -> list[Request]:
    """Requests that write one row each."""
    headers = (("content-type", "application/json"),)
    body = b'{"budget":0.5}'
    return [Request("PUT", "http", "", "/bare", headers=headers, body=body)] * count


def plan_requests(port: int, count: int, owners: list[Owner], task: Task) -> list[Request]:
    """Signed plans of many owners, as a device sends them."""
    authority = f"127.0.0.1:{port}"
    made = []
    for i in range(count):
        body = {"tick": task.tick, "budget": 0.1 + i / count, "previous": task.offer}
        request = Request(
            "PUT",
            "http",
            authority,
            f"/v1/tasks/{task.id}/plan",
            headers=(
                ("content-type", "application/json"),
                ("idempotency-key", secrets.token_hex(12)),
            ),
            body=json.dumps(body).encode(),
        )
        now_ms = time.time_ns() // 1_000_000
        key, nonce = owners[i % len(owners)].key, secrets.token_hex(12)
        signed = sign_request(request, key, now_ms=now_ms, nonce=nonce)
        made.append(replace(request, headers=(*request.headers, *signed.items())))
    return made


def send(port: int, pid: int, requests: list[Request], threads: int) -> Load:
    """Send requests as fast as the answers come, each thread over its own connection."""
    waiting = iter(requests)
    lock, spans = threading.Lock(), []

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        mine = []
        while True:
            with lock:
                request = next(waiting, None)
            if request is None:
                break
            start = time.perf_counter()
            connection.request(request.method, request.path, request.body, dict(request.headers))
            response = connection.getresponse()
            text = response.read()
            mine.append(time.perf_counter() - start)
            if response.status != 200:
                raise RuntimeError(f"{response.status} {text[:300]!r}")
        connection.close()
        with lock:
            spans.extend(mine)

    before, start = cpu_s(pid), time.perf_counter()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - start
    assert len(spans) == len(requests), "a request failed"
    p50, p99 = np.quantile(spans, [0.5, 0.99]) * 1000
    return Load(len(requests) / took, p50, p99, (cpu_s(pid) - before) / len(requests) * 1000)


def middle(loads: list[Load]) -> Load:
    """Return the medians."""
    names = ("per_s", "p50_ms", "p99_ms", "cpu_ms")
    return Load(*(median(getattr(load, name) for load in loads) for name in names))


def measure_plans(url: str, *, count: int, turns: int, threads: int) -> tuple[Load, Load]:
    """Return how plans and bare inserts went."""
    with SqlStore(url) as store:
        trading = Trading(store)
        trading.time_ms = time.time_ns() // 1_000_000
        owners = trading.owners(*np.linspace(1, 2, 200).tolist())
        trading.fund(10**9)
        task = trading.announced(owners, deadlines=PATIENT)
    plan_loads, bare_loads = [], []
    with ExitStack() as stack:
        bare_port, bare_pid = stack.enter_context(served("bare", url))
        port, pid = stack.enter_context(served("market", url))
        for _ in range(turns + 1):  # the first warms up
            bare_loads.append(send(bare_port, bare_pid, bare_requests(count), threads))
            signed = plan_requests(port, count, owners, task)
            plan_loads.append(send(port, pid, signed, threads))
    return middle(plan_loads[1:]), middle(bare_loads[1:])


def measure_settlement(url: str, owners: int) -> tuple[float, float]:
    """Return how long it takes to settle the plans of many owners, and then a proof, in seconds."""
    with SqlStore(url) as store:
        trading = Trading(store)
        trading.fund(10**9, reference=secrets.token_hex(4))
        first = trading.owners(1.0, 1.1)
        task = trading.announced(first, deadlines=PATIENT)
        drawn = np.random.default_rng(owners).lognormal(-7, 1, owners)
        budgets = (0.9 * task.total_budget * drawn / drawn.sum()).tolist()
        for owner in first:
            trading.plan(owner, task, 1e-3 * task.total_budget)
        at = {"task": task.id, "at_ms": trading.time_ms, "salt": "0" * 32, "leaf": log.leaf("", "")}
        names = [f"owner:m{i:07d}" for i in range(owners)]
        for start in range(0, owners, 10_000):
            span = range(start, min(start + 10_000, owners))
            with store.begin() as tx:
                tx._connection.execute(
                    insert(interests), [at | {"owner": names[i], "value": None} for i in span]
                )
                tx._connection.execute(
                    insert(replies),
                    [at | {"owner": names[i], "tick": 0, "budget": budgets[i]} for i in span],
                )
        trading.time_ms = task.deadline_ms
        start_s = time.perf_counter()
        with store.begin() as tx:
            assert scheduler.move_on(trading.market, tx, task.id)
        took = time.perf_counter() - start_s
        payments = sum(allocation.payment for allocation in trading.allocations(task.id))
        assert payments == trading.task(task.id).reward
        proofs = [measure_proof(trading, task.id, name) for name in names[:: owners // 50]]
    return took, median(proofs)


def measure_proof(trading: Trading, task: str, owner: str) -> float:
    """Return how long one owner's proof takes, in seconds."""
    start_s = time.perf_counter()
    trading.see(View.proof, caller(owner), task)
    return time.perf_counter() - start_s


def main() -> None:
    """Measure, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--owners", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    options = parser.parse_args()
    Path("build").mkdir(exist_ok=True)
    print(
        INTRODUCTION.format(
            threads=options.threads,
            version=__version__,
            python=platform.python_version(),
            processor=processor(),
            cores=os.cpu_count(),
            turns=options.turns,
            count=options.count,
        )
    )
    with databases() as urls:
        bares = plans_table(urls, options)
        print(SETTLEMENT)
        row("database", "plans", "seconds", "us a plan", "in bare inserts, a plan", "a proof, ms")
        row("---", *["---:"] * 5)
        for name, url in urls.items():
            for owners in options.owners:
                took, proof_s = measure_settlement(url, owners)
                each = took / owners
                row(
                    name,
                    owners,
                    f"{took:.2f}",
                    f"{each * 1e6:.0f}",
                    f"{each * bares[name]:.3f}",
                    f"{proof_s * 1e3:.1f}",
                )


def plans_table(urls: dict[str, str], options: argparse.Namespace) -> dict[str, float]:
    """Print how plans went; return the bare inserts a second of each database."""
    row("database", "what", "a second", "median ms", "p99 ms", "CPU ms", "ratio to a bare insert")
    row("---", "---", *["---:"] * 5)
    bares = {}
    for name, url in urls.items():
        plan, bare = measure_plans(
            url, count=options.count, turns=options.turns, threads=options.threads
        )
        bares[name] = bare.per_s
        for what, load in (("bare insert", bare), ("signed plan", plan)):
            row(
                name,
                what,
                f"{load.per_s:.0f}",
                f"{load.p50_ms:.1f}",
                f"{load.p99_ms:.1f}",
                f"{load.cpu_ms:.2f}",
                f"{bare.per_s / load.per_s:.2f}",
            )
    return bares


if __name__ == "__main__":
    main()
