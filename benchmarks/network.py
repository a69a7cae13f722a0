"""What a round of training costs over the network, against an echo of the same bytes.

Prints a page in Markdown; `make benchmarks` keeps it as docs/performance-network.md. Each line
starts a market, an echo and its devices anew and measures them one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import httpx2
import numpy as np

from equilibrium import processor, row
from fedbourse import ExactNoise, Terms, __version__
from fedbourse.learning.engines import LocalEngine
from fedbourse.learning.models import model_named
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.learning.rounds import train
from fedbourse.protocol.connection import Connection
from market import cpu_s
from network_devices import records

if TYPE_CHECKING:
    from collections.abc import Iterator


HERE = Path(__file__).parent
SAMPLES = 20
BUDGET = 1.0
GOAL = 3.0
BEYOND = """What a round takes beyond its bytes
and its noise: two signatures made and checked for each device, one durable transaction an answer,
with its receipt and its pay, three durable writes on each device, and the closing of the round. All
of the market runs in one Python process here, and all devices in another."""
INTRODUCTION = """# What training over the network costs

Written by `make benchmarks` (`benchmarks/network.py`). One market (`fedbourse serve`, SQLite, every
answer durable before it is confirmed), one process that holds all devices, a thread and a folder
each, on the same machine, over the loopback without TLS.

fedbourse {version}, Python {python}, {processor}, {cores} cores.

## The market's own devices

A round is one signed request that carries the model, one signed update, its receipt and its pay,
for every device; its seconds are the time between two closings in the market's log. The **echo**
moves the same bytes, one GET and one PUT a device and round from as many threads, through the same
uvicorn and HTTP client, and does nothing else. The **noise** is what all devices take to draw
theirs at once. The **embedded** loop trains in one process, with the same noise and filter, without
a network or disk. The goal is a round, less its noise, within 3 echoes.
"""
FLOWER = """
## Flower beside it

`fedbourse train` in one process, in Flower's simulation on Ray, and on a federation of stock Flower
nodes that it starts itself: 3 owners, {rounds} rounds, d = 116 (flights), exact noise, spend on
disk. Stock Flower starts a process for every message. Memory is the most that all processes of the
command hold at once, looked at twice a second; what they share counts once.
"""


@dataclass(frozen=True)
class Case:
    """How many devices, and how large a model."""

    devices: int
    dimension: int
    rounds: int


@dataclass(frozen=True)
class Seen:
    """What was measured of one case."""

    round_s: float
    noise_s: float
    echo_s: float
    embedded_s: float
    cpu_ms: float
    memory_mb: float


@contextmanager
def served(kind: str, what: str) -> Iterator[tuple[str, int]]:
    """Serve in a process of its own; give its address and process id."""
    script = str(HERE / "network_server.py")
    process = subprocess.Popen(
        [sys.executable, script, kind, what], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def card_of(case: Case) -> dict[str, object]:
    """Return the card of a task of this size."""
    day_s = 24 * 3600.0
    return {
        "goal": "tell two kinds of made-up things apart",
        "data": "made-up things",
        "loss": "logistic",
        "query": "gradient",
        "compensation": "proportional",
        "reward": 100.0,
        "scaling": "none",
        "model": "logistic",
        "features": case.dimension,
        "classes": 2,
        "dimension": case.dimension,
        "step_size": 0.1,
        "rounds": case.rounds,
        "samples": SAMPLES,
        "clip": 1.0,
        "aggregation": "precision",
        "vesting": "by-round",
        "deadlines": {
            "interest_s": day_s,
            "tick_s": day_s,
            "plans_s": day_s,
            "terms_s": day_s,
            "review_s": 0.0,
            "round_s": day_s,
        },
    }


def peak_mb(pid: int) -> float:
    """Return the most memory that a process ever had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000


def over_the_market(case: Case, folder: Path) -> tuple[float, float, float, float]:
    """Train; return the seconds of a round and of noise, CPU an answer (ms), and memory (MB)."""
    with served("market", str(folder / "market")) as (url, pid):
        token = (folder / "market" / "operator.token").read_text().strip()
        with Connection(url, token=token) as operator:
            body = {"party": "buyer:acme", "scopes": ["buyer"]}
            buyer_token = operator.post("/v1/tokens", body)["token"]
            with (folder / "market" / "payments" / "received.jsonl").open("a") as file:
                money = {"reference": "benchmark", "party": "buyer:acme", "credits": "1000"}
                file.write(json.dumps(money) + "\n")
            operator.post("/v1/deposits", {"reference": "benchmark"})
            tokens = [
                operator.post("/v1/enrolment-tokens", {"owner": f"owner:o{i:03d}"})["token"]
                for i in range(case.devices)
            ]
        with Connection(url, token=buyer_token) as buyer:
            task = buyer.post("/v1/tasks", card_of(case))["task"]
            buyer.post(f"/v1/tasks/{task}/open", {})
            job = {
                "server": url,
                "task": task,
                "tokens": tokens,
                "budget": BUDGET,
                "folder": str(folder),
            }
            return _followed(case, buyer, task, job, pid)


def _followed(
    case: Case, buyer: Connection, task: str, job: dict[str, object], pid: int
) -> tuple[float, float, float, float]:
    devices = subprocess.Popen(
        [sys.executable, str(HERE / "network_devices.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert devices.stdin is not None
        assert devices.stdout is not None
        devices.stdin.write(json.dumps(job) + "\n")
        devices.stdin.flush()
        assert devices.stdout.readline() == "ready\n"
        buyer.post(f"/v1/tasks/{task}/announce", {})
        closed = []
        before = 0.0
        for event in buyer.events(f"/v1/tasks/{task}/stream"):
            if event["kind"] == "training":
                before = cpu_s(pid)
            if event["kind"] == "round":
                closed.append(event["at_ms"])
        cpu = cpu_s(pid) - before
        noise_s = json.loads(devices.stdout.readline())["noise_s"]
        assert devices.wait(timeout=120) == 0
    finally:
        if devices.poll() is None:
            devices.kill()
            devices.wait()
        for stream in (devices.stdin, devices.stdout):
            if stream is not None:
                stream.close()
    assert len(closed) == case.rounds
    round_s = median(np.diff(closed)) / 1000
    return round_s, noise_s, 1000 * cpu / (case.rounds * case.devices), peak_mb(pid)


def over_an_echo(case: Case) -> float:
    """Return the seconds that the bytes of a round take with nothing else to do."""
    update = bytes(8 * case.dimension)
    turn = threading.Barrier(case.devices + 1)

    def device(url: str) -> None:
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
            for _ in range(case.rounds + 1):
                turn.wait()
                assert len(client.get("/model").content) == len(update)
                assert client.put("/update", content=update).status_code == 200
                turn.wait()

    with served("echo", str(len(update))) as (url, _):
        threads = [threading.Thread(target=device, args=(url,)) for _ in range(case.devices)]
        for thread in threads:
            thread.start()
        took = []
        for _ in range(case.rounds + 1):
            turn.wait()
            start = time.perf_counter()
            turn.wait()
            took.append(time.perf_counter() - start)
        for thread in threads:
            thread.join()
    return median(took[1:])  # the first opens connections


def embedded(case: Case) -> float:
    """Return the seconds of a round in one process."""
    model = model_named("logistic", features=case.dimension, classes=2)
    card = _Shape(SAMPLES, case.dimension)
    parts = [records(i)(card) for i in range(case.devices)]  # type: ignore[arg-type]
    features = np.concatenate([part for part, _ in parts])
    features = np.column_stack([features, np.ones(len(features))])
    whole = Records(features, np.concatenate([labels for _, labels in parts]), 2)
    federation = Federation(whole, np.arange(case.devices + 1) * SAMPLES)
    terms = [
        Terms(
            task="benchmark",
            rho=BUDGET,
            rounds=case.rounds,
            dimension=case.dimension,
            samples=SAMPLES,
        )
    ] * case.devices
    engine = LocalEngine(model, federation, terms, ExactNoise(terms))
    few = whole.take(np.arange(2))
    moments = [time.perf_counter()]
    train(
        engine,
        model,
        few,
        step_size=0.1,
        rounds=case.rounds,
        aggregation="precision",
        on_round=lambda *_: moments.append(time.perf_counter()),
    )
    return float(median(np.diff(moments)))


@dataclass(frozen=True)
class _Shape:
    """As much of a card as simulated records need."""

    samples: int
    features: int


def measured(case: Case) -> Seen:
    """Measure one case."""
    with tempfile.TemporaryDirectory(dir="build") as folder:
        round_s, noise_s, cpu_ms, memory_mb = over_the_market(case, Path(folder))
    return Seen(round_s, noise_s, over_an_echo(case), embedded(case), cpu_ms, memory_mb)


def tree_mb(pid: int) -> float:
    """Return the memory of a process and all that it started, in MB, what they share once."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    tree, size = {pid}, 0
    while len(tree) > size:
        size = len(tree)
        tree |= {child for child, parent in parents.items() if parent in tree}
    total = 0
    for each in tree:
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1000


def trained(engine: str, rounds: int) -> tuple[float, float, float]:
    """Return the seconds of a round, and those and the most memory of the whole command."""
    with tempfile.TemporaryDirectory(dir="build") as folder:
        command = [sys.executable, "-m", "fedbourse", "train", "--engine", engine, "--json"]
        command += ["--data", "flights", "--budgets", "0.5,0.5,0.5", "--rounds", str(rounds)]
        start, most = time.perf_counter(), 0.0
        with open(f"{folder}/said", "w+") as said, open(f"{folder}/errors", "w+") as errors:
            child = subprocess.Popen(
                [*command, "--folder", f"{folder}/run"], stdout=said, stderr=errors
            )
            while child.poll() is None:
                most = max(most, tree_mb(child.pid))
                time.sleep(0.5)
            took = time.perf_counter() - start
            said.seek(0)
            errors.seek(0)
            if child.returncode:
                raise SystemExit(f"{engine}: {errors.read()[-2000:]}")
            return float(json.load(said)["seconds_per_round"]), took, most


def main() -> None:
    """Measure, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, nargs="+", default=[3, 10, 50])
    parser.add_argument("--dimension", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--large", type=int, default=10**6, help="0 leaves it out")
    parser.add_argument("--flower-rounds", type=int, default=3, help="0 leaves it out")
    options = parser.parse_args()
    Path("build").mkdir(exist_ok=True)
    print(
        INTRODUCTION.format(
            version=__version__,
            python=platform.python_version(),
            processor=processor(),
            cores=os.cpu_count(),
        )
    )
    row(
        "devices",
        "d",
        "round, ms",
        "noise, ms",
        "echo, ms",
        "embedded, ms",
        "(round - noise) / echo",
        "round / embedded",
        "market's CPU an answer, ms",
        "market's memory, MB",
    )
    row(*["---:"] * 10)
    cases = [Case(n, options.dimension, options.rounds) for n in options.devices]
    if options.large:
        cases.append(Case(3, options.large, max(3, options.rounds // 3)))
    ratios = []
    for case in cases:
        seen = measured(case)
        ratios.append((seen.round_s - seen.noise_s) / seen.echo_s)
        row(
            case.devices,
            case.dimension,
            *(
                f"{1000 * seconds:.1f}"
                for seconds in (seen.round_s, seen.noise_s, seen.echo_s, seen.embedded_s)
            ),
            f"{ratios[-1]:.2f}",
            f"{seen.round_s / seen.embedded_s:.2f}",
            f"{seen.cpu_ms:.2f}",
            f"{seen.memory_mb:.0f}",
        )
    verdict = "met" if max(ratios) <= GOAL else "missed"
    print(f"\nThe goal is {verdict}: the largest ratio is {max(ratios):.1f}. {BEYOND}")
    if options.flower_rounds:
        print(FLOWER.format(rounds=options.flower_rounds))
        row("engine", "a round, s", "the whole command, s", "its memory, MB")
        row("---", *["---:"] * 3)
        for engine in ("local", "simulation", "flower"):
            round_s, took, most_mb = trained(engine, options.flower_rounds)
            row(engine, f"{round_s:.2f}", f"{took:.0f}", f"{most_mb:.0f}")


if __name__ == "__main__":
    main()
