"""Attack a market for a bounded time; measure what gets through and how long honest plans take.

One attacker at a time does its worst against ``fedbourse serve`` on each database: a stranger, a
buyer, an owner, a bad network; and a bad market does against a device. Prints a page in Markdown;
`make soak` keeps it as docs/soak-attack.md. Progress is on standard error.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import secrets
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/market"))  # soak/market.py hides it
import httpx2
import numpy as np
from spend import processor, row
from sqlalchemy import func, select
from trading import BUYER, KEY, Trading, best_budget

from agent.cheats import FORGED_OFFERS, OFFERS, QUERIES, TERMS
from agent.malicious_market import malicious_market
from agent.owners import Data, answered, followed, joined
from databases import PostgresServer
from fedbourse import __version__
from fedbourse.errors import TooManyRequests
from fedbourse.market import access
from fedbourse.storage import SqlStore
from fedbourse.storage.schema import nonces, payouts, responses, transfers
from fedbourse.wire.card import Deadlines
from fedbourse.wire.connection import Connection
from fedbourse.wire.keys import SigningKey

CONNECTIONS = 20
OWNERS = 8
SLOW = Deadlines(tick_s=7200, plans_s=72_000, review_s=0, round_s=7200)
P99_MS = 250
PLAN_EVERY_S = 0.05


@dataclass(frozen=True)
class Target:
    """A market that is served, and what attackers know of it."""

    url: str
    tasks: dict[str, str]
    tokens: dict[str, str]
    owner: str
    key: SigningKey
    offer: str
    budget: float


@dataclass
class Score:
    """What one attacker tried, and what came of it."""

    tried: Counter[str] = field(default_factory=Counter)
    through: Counter[str] = field(default_factory=Counter)


Attack = Callable[[Target, float], Score]


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
        with store.begin() as unit:
            for name, party, scope in (
                ("buyer", BUYER.party, "buyer"),
                ("owner", owners[1].name, "owner"),
            ):
                _, tokens[name] = access.issue_token(
                    trading.market, unit, None, holder=party, scopes=[scope]
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
def market(kind: str) -> Iterator[tuple[Target, SqlStore]]:
    """Serve a filled market on the first core; also return a store over its database."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="fb-attack-")))
        url = f"sqlite:///{folder / 'market.db'}"
        if kind == "postgresql":
            server = PostgresServer()
            opened.callback(server.remove)
            server.start()
            url = opened.enter_context(server.database())
        known = filled(url, folder)
        command = [
            sys.executable,
            "-m",
            "fedbourse",
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


def ask(
    client: httpx2.Client, score: Score, what: str, method: str, path: str, **options: object
) -> httpx2.Response | None:
    """Send one request; a fault of the server's own counts as got through."""
    score.tried[what] += 1
    try:
        answer = client.request(method, path, **options)
    except httpx2.HTTPError:
        return None
    if answer.status_code == 500:
        score.through["answers 500"] += 1
    return answer


def stranger(target: Target, until: float) -> Score:
    """Ask for everything that is dear and open to all; make up tokens and devices."""
    score, task = Score(), target.tasks
    dear = [
        f"/tasks/{task['completed']}/report", f"/tasks/{task['completed']}", "/?text=late", "/",
        f"/v1/tasks/{task['completed']}/events?limit=1000", "/v1/tasks?limit=1000",
        f"/tasks/{task['announced']}/earn", "/v1/log", f"/v1/tasks/{task['training']}/head",
    ]  # fmt: skip
    with httpx2.Client(base_url=target.url, trust_env=False, timeout=30) as client:
        while time.monotonic() < until:
            for path in dear:
                ask(client, score, "dear pages", "GET", path)
            body = {
                "token": "fbe_" + secrets.token_urlsafe(32),
                "public_key": SigningKey.generate().public,
            }
            done = ask(client, score, "made-up enrolments", "POST", "/v1/enrolments", json=body,
                       headers={"Idempotency-Key": secrets.token_hex(12)})  # fmt: skip
            score.through["enrolments"] += done is not None and done.status_code < 300
            headers = {"HX-Request": "true", "HX-Current-URL": "http://["}
            ask(client, score, "nonsense in headers", "GET", "/", headers=headers)
    return score


def buyer(target: Target, until: float) -> Score:
    """Look at what steps would do and cards would buy, and look for what single owners said."""
    score, task = Score(), target.tasks
    headers = {"Authorization": f"Bearer {target.tokens['buyer']}"}
    pages = [f"/tasks/{task['announced']}/steps/{step}" for step in ("announce", "cancel")]
    pages += [f"/tasks/{task['announced']}", f"/tasks/{task['training']}", "/buy", "/buy/new"]
    routes = [
        f"/v1/tasks/{task['announced']}/what-if?rewards=1,2,3",
        f"/v1/tasks/{task['completed']}/report",
    ]
    secret = f"{target.budget:.6g}"
    with httpx2.Client(base_url=target.url, trust_env=False, timeout=30) as client:
        form = {"token": target.tokens["buyer"], "next": "/"}
        client.post("/sign-in", data=form, headers={"Origin": target.url})
        while time.monotonic() < until:
            for path in pages:
                found = ask(client, score, "heavy pages", "GET", path)
                score.through["budgets shown"] += found is not None and secret in found.text
            for path in routes:
                found = ask(client, score, "what-ifs and reports", "GET", path, headers=headers)
                score.through["budgets shown"] += found is not None and secret in found.text
    return score


def owner(target: Target, until: float) -> Score:
    """Claim money that never came, take out too little, and act for others."""
    score, task = Score(), target.tasks
    headers = {"Authorization": f"Bearer {target.tokens['owner']}"}

    def key() -> dict[str, str]:
        return headers | {"Idempotency-Key": secrets.token_hex(12)}

    with httpx2.Client(base_url=target.url, trust_env=False, timeout=30) as client:
        while time.monotonic() < until:
            tiny = {"amount_micro": 1, "destination": "x"}
            wrong = [
                ("made-up deposits", "POST", "/v1/deposits", {"reference": secrets.token_hex(8)}),
                ("tiny withdrawals", "POST", "/v1/withdrawals", tiny),
                ("others' tasks", "POST", f"/v1/tasks/{task['announced']}/cancel", {}),
                ("plans without the device", "PUT", f"/v1/tasks/{task['announced']}/plan",
                 {"tick": 0, "budget": 1.0, "previous": target.offer}),
            ]  # fmt: skip
            for what, method, path, body in wrong:
                done = ask(client, score, what, method, path, json=body, headers=key())
                score.through[what] += done is not None and done.status_code < 300
            for path in (
                f"/v1/tasks/{task['training']}/lines",
                f"/v1/accounts/{target.owner}",
                "/v1/tokens",
            ):
                done = ask(client, score, "others' records", "GET", path, headers=headers)
                score.through["others' records"] += done is not None and done.status_code < 300
            ask(
                client,
                score,
                "own pages",
                "GET",
                f"/v1/tasks/{task['training']}/proof",
                headers=headers,
            )
    return score


def network(target: Target, until: float) -> Score:
    """Hold connections: silent ones, half of a first request, and half of a second one."""
    score, address = Score(), (urlsplit(target.url).hostname, urlsplit(target.url).port)
    whole = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n"
    starts = {
        "silent connections": b"",
        "half a request": whole[:20],
        "half a second request": whole + whole[:20],
    }
    held: list[tuple[float, str, socket.socket]] = []
    while time.monotonic() < until:
        for what, start in starts.items():
            with suppress(OSError):
                line = socket.create_connection(address, timeout=5)
                line.sendall(start)
                line.settimeout(0.0)
                held.append((time.monotonic(), what, line))
                score.tried[what] += 1
        time.sleep(0.02)
    deadline = time.monotonic() + 15  # ten seconds for a head, and some patience
    while time.monotonic() < deadline:
        time.sleep(0.5)
    for _, what, line in held:
        score.through[f"{what}: alive after 15 s"] += _alive(line)
        line.close()
    return score


def _alive(line: socket.socket) -> bool:
    with suppress(OSError):
        while line.recv(65536):
            pass
        return False
    with suppress(OSError):
        line.settimeout(0.0)
        return line.recv(1) != b""
    try:
        line.send(b"x")
        line.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


ATTACKS: dict[str, Attack] = {
    "stranger": stranger,
    "buyer": buyer,
    "owner": owner,
    "network": network,
}


def run_attack(name: str, target: Target, seconds: float, results: multiprocessing.Queue) -> None:  # type: ignore[type-arg]
    """Attack from the second core with several connections; tell the score."""
    from concurrent.futures import ThreadPoolExecutor

    with suppress(OSError, ValueError):
        os.sched_setaffinity(0, {1})
    until = time.monotonic() + seconds
    workers = 1 if name == "network" else CONNECTIONS
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
            _put_patiently(line, path, body)
            took.append(1000 * (time.perf_counter() - began))
            time.sleep(PLAN_EVERY_S)
    return took


def _put_patiently(line: Connection, path: str, body: object) -> None:
    """Repeat a plan that is refused because others ask too much from this very address."""
    while True:
        with suppress(TooManyRequests):
            line.put(path, body, idempotency_key=secrets.token_hex(12))
            return
        time.sleep(0.05)


def counted(store: SqlStore) -> dict[str, int]:
    """Return how many rows there are of what attackers might make."""
    with store._database.reader.connect() as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar() or 0
            for table in (transfers, payouts, nonces, responses)
        }


def attacked(
    name: str, target: Target, store: SqlStore, seconds: float
) -> tuple[Score, list[float]]:
    """Let one attacker do its worst while an honest device plans."""
    results: multiprocessing.Queue = multiprocessing.Queue()  # type: ignore[type-arg]
    before = counted(store)
    process = multiprocessing.Process(target=run_attack, args=(name, target, seconds, results))
    process.start()
    took = plan_times(target, seconds)
    score: Score = results.get(timeout=120)
    process.join()
    after = counted(store)
    for table in ("transfers", "payouts"):
        score.through[f"new {table}"] += after[table] - before[table]
    # An honest plan leaves a nonce and an answer each; what is beyond that an attacker made.
    for table in ("nonces", "responses"):
        beyond = after[table] - before[table] - len(took)
        score.through[f"{table} beyond the plans"] += max(0, beyond)
    return score, took


def bad_market(folder: Path) -> Score:
    """Bend what a device hears of offers, terms and rounds; count when its data was read."""
    score = Score()
    before = [(case, 0) for case in (*OFFERS, *FORGED_OFFERS, *TERMS)]
    for number, (case, rounds) in enumerate([*before, *((case, 2) for case in QUERIES)]):
        with malicious_market() as bad:
            device = joined(folder / str(number), bad)
            if rounds:
                answered(device, rounds)  # a device that has signed, and works
            bad.cheats[case.place] = case.bend
            score.tried["bent offers, terms and rounds"] += 1
            try:
                followed(device, Data(forbidden=True))
            except AssertionError:
                score.through["reads of the data"] += 1
            score.through["answers"] += len(bad.left) - rounds
    return score


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
    options = parser.parse_args()
    print("# The market under attack\n")
    print(
        f"`python soak/attack.py`, fedbourse {__version__}, Python {platform.python_version()}, "
        f"{processor()}, {os.cpu_count()} cores: {options.seconds:g} s for each attack, from "
        f"{CONNECTIONS} connections; server and attacker have a core each. What got through should "
        f"be 0, and an honest device's plan take less than {P99_MS} ms at p99.\n"
    )
    row("database", "attacker", "tried", "got through", "plans", "p50 ms", "p99 ms")
    row(*["---"] * 7)
    fine = True
    os.environ.setdefault("FEDBOURSE_STATE", str(Path.cwd() / "build" / "attack-state"))
    for kind in options.databases:
        with market(kind) as (target, store):
            calm = plan_times(target, options.seconds / 2)
            fine &= shown(kind, "nobody", Score(), calm)
            for name in options.attacks:
                print(f"{kind}: {name}", file=sys.stderr, flush=True)
                fine &= shown(kind, name, *attacked(name, target, store, options.seconds))
    print("a device: bad market", file=sys.stderr, flush=True)
    with TemporaryDirectory(prefix="fb-attack-") as folder:
        fine &= shown("–", "bad market", bad_market(Path(folder)), [])
    if not fine:
        print("\nWhat is bold misses its goal.")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
