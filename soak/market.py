"""Kill the market's server at random moments under load, and compare its records with its word.

Prints a page in Markdown; `make soak` keeps it as docs/soak-market.md. Progress is on standard
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
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
from spend import processor, row

from fedbourse import __version__
from fedbourse.cli.verify import task_records
from fedbourse.errors import FedbourseError
from fedbourse.market.audit import verify_task
from fedbourse.testing.databases import PostgresServer
from fedbourse.testing.e2e import market_process
from fedbourse.testing.e2e.forks import Forks, start_forks
from fedbourse.testing.e2e.invariants import InvariantBroken, Records
from fedbourse.testing.e2e.load import BUYERS, ENDED, OWNERS, Load, Soaked

LIFE_S = (0.1, 1.4)
"""The server is struck at a moment between these after all clients could go on."""


@dataclass
class Tally:
    """What happened to one market."""

    kills: int = 0
    stops: int = 0
    """Ends of the database's server, in immediate mode."""
    in_flight: int = 0
    """Writes that were under way when the market was struck."""
    committed: int = 0
    """Of these, how many the database had committed."""
    idle: int = 0
    """Strikes that met no write under way."""
    compared: int = 0
    """Acknowledged writes looked up after all starts together."""
    acknowledged: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    tasks: Counter[str] = field(default_factory=Counter)
    transfers: int = 0
    verified: int = 0
    broken: str = ""
    seconds: float = 0.0

    @property
    def strikes(self) -> int:
        """All strikes."""
        return self.kills + self.stops


def soak(
    forks: Forks,
    folder: Path,
    *,
    kills: int,
    stops: int = 0,
    server: PostgresServer | None = None,
    seconds: float,
    seed: int,
    fault: str = "",
) -> Tally:
    """Strike a market over and over while it is used, and check it after each start."""
    tally = Tally()
    began = time.monotonic()
    rng = random.Random(seed)
    database = server.url("market") if server else None
    market = Soaked(forks, folder, database=database, fault=fault)
    load = Load(market, seed)
    plan = ["kill"] * kills + ["stop"] * stops
    rng.shuffle(plan)
    try:
        for n, strike in enumerate(plan, start=1):
            if time.monotonic() - began > seconds:
                break
            time.sleep(rng.uniform(*LIFE_S))
            struck(market, server if strike == "stop" else None, tally)
            if n % 10 == 0:
                told = len(market.acknowledged)
                print(f"{n} of {len(plan)} strikes, {told} acknowledged", file=sys.stderr)
            if load.failures:
                break
        load.end()
        if load.failures:
            raise InvariantBroken(f"a client could not go on: {load.failures[0]!r}")
        finish(market, load, tally)
    except InvariantBroken as broken:
        tally.broken = str(broken)
    finally:
        market.gate.set()
        if tally.broken:
            market.kill()
            with suppress(FedbourseError, AssertionError):
                market.start()
        load.end()
        market.kill()
    tally.acknowledged.update(each.kind for each in market.acknowledged)
    tally.refused = load.refused
    tally.seconds = time.monotonic() - began
    return tally


def struck(market: Soaked, server: PostgresServer | None, tally: Tally) -> None:
    """End the server, or its database's, at this moment; start it again, and check it."""
    market.gate.clear()
    under_way = set(market.under_way)
    if server is None:
        market.kill()
        tally.kills += 1
        market.start()
    else:
        server.stop(immediate=True)
        tally.stops += 1
        if market.problem("GET", "/v1/health") != (503, "Unreachable"):
            raise InvariantBroken("the market does not say that its database is gone")
        server.start()
    told = len(market.acknowledged)
    records: Records = market.check()
    kept = {(each["caller"], each["key"]) for each in records.tables["responses"]}
    # What was acknowledged between the look and the strike was not under way any more.
    under_way -= {(each.caller, each.key) for each in market.acknowledged[:told]}
    tally.in_flight += len(under_way)
    tally.committed += len(under_way & kept)
    tally.idle += not under_way
    tally.compared += told
    market.gate.set()


def finish(market: Soaked, load: Load, tally: Tally) -> None:
    """Let every task come to its end, and verify them all."""
    records = market.check()
    tally.compared += len(market.acknowledged)
    tally.tasks.update(task["state"] for task in records.tables["tasks"])
    tally.transfers = len(records.tables["transfers"])
    if set(tally.tasks) - set(ENDED) - {"draft"}:
        raise InvariantBroken(f"tasks did not end: {dict(tally.tasks)}")
    with market.connection(token=token_of(load, market)) as auditor:
        for task in records.tables["tasks"]:
            if task["state"] == "draft":
                continue
            checks = verify_task(**market.patiently(partial(task_records, auditor, task["id"])))
            wrong = [check for check in checks if check.passed is False]
            if wrong:
                raise InvariantBroken(f"task {task['id']}: {wrong[0]}")
            tally.verified += 1
    if "Traceback" in (market.folder / "log").read_text():
        raise InvariantBroken("the server met something unexpected; see its log")


def token_of(load: Load, market: Soaked) -> str:
    """Return the auditor's token, as it was acknowledged."""
    (made,) = [each for each in market.acknowledged if each.key.endswith(load.auditor.party)]
    return str(made.document["token"])


def page(tallies: dict[str, Tally], wrong: Tally, options: argparse.Namespace) -> bool:
    """Print the page, and say whether all is as it should be."""
    right = list(tallies.values())
    kills, stops = sum(t.kills for t in right), sum(t.stops for t in right)
    told = sum(sum(t.acknowledged.values()) for t in right)
    broken = [t.broken for t in right if t.broken]
    print("# Killed at any moment, a market keeps what it has acknowledged\n")
    print(f"{kills} kills of the server (`kill -9`) and {stops} ends of its PostgreSQL server "
          f"(immediate mode) at random moments under load:\n{len(broken)} invariants broken, 0 of "
          f"{told} acknowledged writes lost. A server made wrong on purpose is caught.\n"
          if not broken
          else f"**An invariant was broken: {broken[0]}**\n")  # fmt: skip
    print(f"Written by `make soak`. {len(BUYERS)} buyers and {len(OWNERS)} owners, each in a thread"
          " of its own, deposit, publish tasks, deliver, are paid,\ncancel and withdraw over HTTP,"
          " with deadlines of a few seconds that act meanwhile. At a random moment the server is"
          "\nkilled and started again (or the database is stopped, and the server must say 503 and"
          " go on by itself). Clients repeat\nwhat got no response, with the same idempotency key."
          " After each start all records are read past the market and\ncompared: books sum to zero,"
          " no account is negative, each escrow holds what came in less what went out, each owner"
          " was\npaid floor(p k/T) for its k updates, logs are unbroken, payouts are handed over"
          " once, and every write that was ever\nacknowledged is there with the response that was"
          " given. At the end every task is verified from its records.\n")  # fmt: skip
    row("database", "kills", "database stopped", "writes under way when struck",
        "of them committed", "strikes with none", "acknowledged writes", "looked up again",
        "lost", "invariants broken", "tasks completed", "cancelled", "tasks verified", "transfers",
        "minutes")  # fmt: skip
    row("---", *["---:"] * 14)
    for name, t in (*tallies.items(), ("*SQLite, responding before the commit*", wrong)):
        row(name, t.kills, t.stops, t.in_flight, t.committed, t.idle,
            sum(t.acknowledged.values()), t.compared, 0 if not t.broken else "some",
            "caught" if t is wrong and t.broken else int(bool(t.broken)),
            t.tasks["completed"], t.tasks["cancelled"], t.verified, t.transfers,
            f"{t.seconds / 60:.1f}")  # fmt: skip
    kinds = sum((t.acknowledged for t in right), Counter[str]())
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    print(f"\nAcknowledged: {said}. {sum(t.refused for t in right)} requests came too late, or "
          "asked for more than there was, and were refused.")  # fmt: skip
    if wrong.broken:
        print(f"\nOf the server made wrong on purpose the invariants said: *{wrong.broken[:120]}*.")
    cores = len(os.sched_getaffinity(0))
    print(f"\n{processor()}, {cores} cores, Python {platform.python_version()}, SQLite "
          f"{sqlite3.sqlite_version}, PostgreSQL 18 (fsync off: processes end here, not machines), "
          f"fedbourse {__version__}.")  # fmt: skip
    short = [n for n, t in tallies.items() if t.kills < options.kills]
    if short and not broken:
        print(f"\n**Time was up before all {options.kills} kills: {', '.join(short)}.**")
    if not wrong.broken:
        print("\n**The server made wrong on purpose was not caught: more kills are needed.**")
    return not broken and bool(wrong.broken)


def main() -> int:
    """Soak a market on both databases, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=110, help="of the server, on each database")
    parser.add_argument("--stops", type=int, default=25, help="of PostgreSQL, in immediate mode")
    parser.add_argument("--wrong-kills", type=int, default=20, help="of a server made wrong")
    parser.add_argument("--seconds", type=float, default=900, help="at most, on each database")
    parser.add_argument("--seed", type=int, default=0, help="of the clients and of the moments")
    options = parser.parse_args()
    each = {"seconds": options.seconds, "seed": options.seed}
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    tallies: dict[str, Tally] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=memory)))
        forks = stack.enter_context(start_forks(market_process))
        tallies["SQLite"] = soak(forks, folder / "sqlite", kills=options.kills, **each)
        server = PostgresServer()
        stack.callback(server.remove)
        server.start()
        server.execute("CREATE DATABASE market")
        tallies["PostgreSQL"] = soak(
            forks,
            folder / "postgresql",
            kills=options.kills,
            stops=options.stops,
            server=server,
            **each,
        )
        fault = "responds_before_the_commit"
        wrong = soak(forks, folder / "wrong", kills=options.wrong_kills, fault=fault, **each)
    return 0 if page(tallies, wrong, options) else 1


if __name__ == "__main__":
    sys.exit(main())
