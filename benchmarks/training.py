"""What privacy costs in training: a round against the same round without it, and against peers.

Prints a page in Markdown; `make benchmarks` keeps it as docs/performance-training.md. Rounds are
taken in turns, so that a noisy machine disturbs all contestants alike. Each peer gets an
environment of its own under build/peers, made when it is first needed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from equilibrium import processor, row
from fedbourse import __version__
from fedbourse.learning.aggregation import aggregate
from fedbourse.learning.engines.local import LocalEngine
from fedbourse.learning.models import Logistic
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.privacy.noise import ExactNoise, SimulatedNoise
from fedbourse.privacy.terms import Terms
from peers.environment import Peer, PeerMissing
from peers.protocol import BUDGET, CLIP, ROUNDS, STEP_SIZE, peak_bytes, records

COST_GOAL = 1.3
OPACUS_GOAL = 10.0
PAUSE_S = 0.03  # so that no contestant's idle threads still spin when the next one starts
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

ONE_PASS = "without privacy, one pass over one matrix"
BY_OWNER = "without privacy, owner by owner"
BY_BLOCK = "without privacy, by blocks of 1 MB"
WITHOUT = (ONE_PASS, BY_OWNER, BY_BLOCK)
LOOK = "one look at the records' memory"
PRIVATE = "private, simulated noise"
EXACT = "private, exact noise of a device"

PEERS = {
    "Opacus, each record's gradient, doubles": ("opacus", "double"),
    "Opacus, each record's gradient, singles": ("opacus", "single"),
    "Opacus, ghost clipping, doubles": ("opacus", "ghost"),
    "pfl, each owner's update clipped, singles": ("pfl", "single"),
}
GOAL_PEER = next(iter(PEERS))

INTRODUCTION = """# What privacy costs in training

Written by `make benchmarks`. A round of logistic regression: every owner answers with the mean of
its records' gradients, and the model takes one step. Shortest and median of {turns} rounds ({few}
with exact noise and against peers), taken in turns. Ratios are of the shortest, which other work
on the machine disturbs least, and of the medians.
"""
COST = """
## Against no privacy

Both sides compute in doubles, and both leave out the look at the buyer's own records after a round,
which is the same with and without privacy. Without privacy there is no clipping, no noise and no
filter; the fastest of three ways to write it counts. One look is `np.dot` of all features with
themselves: what any round must cost at least."""
EXACTLY = """
## With exact noise

{size}, threads: 1.
Devices draw side by side; here one core draws for all of them in a row.
"""
AGAINST = """
## Against peers

Each peer is a process of its own, on the same records, rounds in turns.
Opacus clips every record and adds noise for every owner, as we do, and keeps no filter; its mean
without noise was checked to be ours. pfl does less: it clips an owner's whole update and no record,
and adds noise once, to the sum.
"""
GROWTH = """
## More owners

Threads: 1. Without privacy is the fastest of the three ways.
"""
MEMORY = """
## Memory

{size}: the records are {megabytes:.0f} MB of doubles.
The most that a process of its own had resident, libraries and the making of the records included:
"""

Train = Callable[[], float]
"""Trains for one round and says how many seconds it took."""
Times = dict[str, list[float]]


@dataclass(frozen=True)
class Size:
    """How many owners, records of each, and features of a record."""

    owners: int
    samples: int
    features: int

    def __str__(self) -> str:
        return f"{self.owners} owners, m = {self.samples}, d = {self.features}"

    def federation(self) -> Federation:
        data = Records(*records(**asdict(self)), classes=2)
        return Federation(data, np.arange(self.owners + 1) * self.samples)

    def terms(self) -> list[Terms]:
        one = Terms("benchmark", BUDGET, ROUNDS, self.features, self.samples, CLIP)
        return [one] * self.owners


GOAL_SIZE = Size(owners=24, samples=1000, features=1000)


def timed(work: Callable[[], object]) -> Train:
    def train() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return train


def private(size: Size, federation: Federation, *, exact: bool = False) -> Train:
    """Return a round as learning.rounds trains it, but for the look at the buyer's records."""
    model, terms = Logistic(size.features), size.terms()
    noise = ExactNoise(terms) if exact else SimulatedNoise(terms, seed=0)
    # The same records cut anew: how they are cut depends on the cores that the rounds may use.
    fresh = Federation(federation.records, federation.offsets)
    engine = LocalEngine(model, fresh, terms, noise)
    parameters, number = model.start(seed=0), 0

    def train() -> None:
        nonlocal parameters, number
        updates = engine.ask(number, parameters)
        scales = engine.scales[updates.owners]
        step = aggregate([updates.vectors], scales, "equal", dimension=size.features).mean
        parameters = parameters - STEP_SIZE * step
        number += 1

    return timed(train)


def plain(parts: tuple[Records, ...]) -> Train:
    """Return the same round without clipping, noise and filter: a gradient and a step."""
    parameters, total = np.zeros(parts[0].features.shape[1]), sum(map(len, parts))

    def train() -> None:
        nonlocal parameters
        gradient = np.zeros_like(parameters)
        for part in parts:
            gradient += part.features.T @ (expit(part.features @ parameters) - part.labels)
        parameters = parameters - STEP_SIZE / total * gradient

    return timed(train)


def plain_rounds(federation: Federation) -> dict[str, Train]:
    data = federation.records
    rows = max(1, 2**17 // data.features.shape[1])
    blocks = Federation(data, np.append(np.arange(0, len(data), rows), len(data)))
    return {
        ONE_PASS: plain((data,)),
        BY_OWNER: plain(federation.parts),
        BY_BLOCK: plain(blocks.parts),
    }


def look(federation: Federation) -> Train:
    numbers = federation.records.features.ravel()
    return timed(lambda: np.dot(numbers, numbers))


def in_turns(turns: int, contestants: dict[str, Train]) -> Times:
    """Return the seconds of every round, after one round each that does not count."""
    times: Times = {name: [] for name in contestants}
    for turn in range(turns + 1):
        say(f"turn {turn} of {turns}", end="\r")
        for name, train in contestants.items():
            time.sleep(PAUSE_S)
            seconds = train()
            if turn:
                times[name].append(seconds)
    return times


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def table(times: Times, base: tuple[str, ...], *, of: str) -> dict[str, float]:
    """Print shortest and median times; return the ratios of the shortest to the fastest base."""
    row("a round", "shortest", "median", f"ratio to {of}", "ratio of the medians")
    row("---", *["---:"] * 4)
    shortest = {name: min(taken) for name, taken in times.items()}
    middle = {name: median(taken) for name, taken in times.items()}
    ratios = {name: shortest[name] / min(shortest[b] for b in base) for name in times}
    for name in times:
        medians = middle[name] / min(middle[b] for b in base)
        row(name, milliseconds(shortest[name]), milliseconds(middle[name]),
            f"{ratios[name]:.2f}", f"{medians:.2f}")  # fmt: skip
    print()
    return ratios


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def verdict(met: bool) -> str:
    return "met" if met else "NOT met"


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Let this process use so many cores, with as many threads of BLAS."""
    if not hasattr(os, "sched_setaffinity"):
        with threadpool_limits(count):
            yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        with threadpool_limits(count):
            yield
    finally:
        os.sched_setaffinity(0, before)


def cost_of_privacy(size: Size, federation: Federation, turns: int) -> None:
    print(COST)
    for threads in sorted({1, CORES}):
        say(f"cost of privacy, threads: {threads}")
        contestants = {LOOK: look(federation)} | plain_rounds(federation)
        contestants[PRIVATE] = private(size, federation)
        print(f"\n### {size}, threads: {threads}\n")
        with on_cores(threads):
            times = in_turns(turns, contestants)
        ratio = table(times, WITHOUT, of="without")[PRIVATE]
        if size == GOAL_SIZE:
            met = verdict(ratio <= COST_GOAL)
            print(f"Goal: at most {COST_GOAL:g} times the time without: {met} ({ratio:.2f}).")


def cost_of_exact_noise(size: Size, federation: Federation, turns: int) -> None:
    say("exact noise")
    contestants = plain_rounds(federation) | {
        PRIVATE: private(size, federation),
        EXACT: private(size, federation, exact=True),
    }
    print(EXACTLY.format(size=size))
    with on_cores(1):
        times = in_turns(turns, contestants)
    table(times, WITHOUT, of="without")
    extra = (min(times[EXACT]) - min(times[PRIVATE])) / (size.owners * size.features)
    print(f"Exact noise costs {extra * 1e6:.3g} us a coordinate more than simulated noise.")


def against_peers(size: Size, federation: Federation, turns: int) -> dict[str, Peer]:
    """Print a table for one core and one for all; return the peers that ran on all, ended."""
    print(AGAINST)
    peers: dict[str, Peer] = {}
    for threads in sorted({1, CORES}):
        print(f"\n### {size}, threads: {threads}\n")
        peers = peers_on(threads, size, federation, turns)
        if not peers:
            break
    return peers


def peers_on(threads: int, size: Size, federation: Federation, turns: int) -> dict[str, Peer]:
    with ExitStack() as stack:
        peers = started(size, federation, threads, stack)
        if not peers:
            return {}
        contestants = {PRIVATE: private(size, federation)}
        with on_cores(threads):
            times = in_turns(turns, contestants | {n: p.train for n, p in peers.items()})
    ratios = table(times, (PRIVATE,), of="ours")
    print(f"{'; '.join(sorted({peer.version for peer in peers.values()}))}.")
    if GOAL_PEER in ratios and size == GOAL_SIZE:
        ratio = ratios[GOAL_PEER]
        met = verdict(ratio >= OPACUS_GOAL)
        print(f"\nGoal: at most 1/{OPACUS_GOAL:g} of the loop with Opacus, each record's gradient,")
        print(f"in doubles as ours: {met} (1/{ratio:.1f}).")
    return peers


def started(size: Size, federation: Federation, threads: int, stack: ExitStack) -> dict[str, Peer]:
    """Return the peers that run here, and say on the page which do not."""
    peers: dict[str, Peer] = {}
    skipped: set[str] = set()
    for name, (package, mode) in PEERS.items():
        if package in skipped:
            continue
        say(f"peer: {name}")
        try:
            options = asdict(size) | {"threads": threads}
            peer = stack.enter_context(Peer(package, mode, **options, say=say))
        except PeerMissing as missing:
            print(f"{package} was skipped: {missing}.\n")
            skipped.add(package)
            continue
        check_same_mean(peer, federation)
        peers[name] = peer
    return peers


def check_same_mean(peer: Peer, federation: Federation) -> None:
    """Stop where a peer that clips records does not compute what we do."""
    if peer.norm is None:
        return
    model = Logistic(federation.records.features.shape[1])
    means = model.clipped_means(model.start(seed=0), federation, clip=CLIP)
    ours = float(np.linalg.norm(means.mean(axis=0)))
    if not np.isclose(peer.norm, ours, rtol=1e-4):
        sys.exit(f"the mean of {peer} has the norm {peer.norm:g}; ours has {ours:g}")


def growth(sizes: list[Size], turns: int) -> None:
    print(GROWTH)
    row("", "private", "an owner", "without privacy", "ratio")
    row("---", *["---:"] * 4)
    shortest = []
    for size in sizes:
        say(f"growth: {size}")
        federation = size.federation()
        contestants = plain_rounds(federation) | {PRIVATE: private(size, federation)}
        with on_cores(1):
            times = in_turns(turns, contestants)
        ours, without = min(times[PRIVATE]), min(min(times[name]) for name in WITHOUT)
        row(size, milliseconds(ours), f"{ours / size.owners * 1e6:.3g} us",
            milliseconds(without), f"{ours / without:.2f}")  # fmt: skip
        shortest.append(ours)
    if len(sizes) > 1:
        owners = [size.owners for size in sizes]
        power = np.polyfit(np.log(owners), np.log(shortest), 1)[0]
        print(f"\nThe time of a private round grows as owners^{power:.2f}.")


def memory(size: Size, peers: dict[str, Peer]) -> None:
    say("memory")
    held = 8 * size.owners * size.samples * (size.features + 1)
    print(MEMORY.format(size=size, megabytes=held / 1e6))
    row("", "peak", "ratio to the records", "ratio to without privacy")
    row("---", *["---:"] * 3)
    peaks = {name: resident(name, size) for name in (ONE_PASS, PRIVATE)}
    peaks |= {name: peer.peak_bytes for name, peer in peers.items()}
    for name, peak in peaks.items():
        row(name, f"{peak / 1e6:.0f} MB", f"{peak / held:.2f}", f"{peak / peaks[ONE_PASS]:.2f}")


def resident(name: str, size: Size) -> int:
    """Return the peak of a fresh process that trains for three rounds."""
    numbers = [f"--{field}={value}" for field, value in asdict(size).items()]
    command = [sys.executable, __file__, "--resident", name, *numbers]
    return int(json.loads(subprocess.check_output(command)))


def print_resident(name: str, size: Size) -> None:
    federation = size.federation()
    train = private(size, federation) if name == PRIVATE else plain((federation.records,))
    for _ in range(3):
        train()
    print(peak_bytes())


def page(options: argparse.Namespace, size: Size) -> None:
    print(INTRODUCTION.format(turns=options.turns, few=few(options.turns)))
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{processor()}, {CORES} cores, {versions}, fedbourse {__version__}.")
    federation, peers = size.federation(), {}
    cost_of_privacy(size, federation, options.turns)
    cost_of_exact_noise(size, federation, few(options.turns))
    if not options.without_peers:
        peers = against_peers(size, federation, few(options.turns))
    del federation
    growth([Size(n, *options.growth_shape) for n in options.growth_owners], options.turns)
    memory(size, peers)


def few(turns: int) -> int:
    return max(1, turns // 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, default=GOAL_SIZE.owners)
    parser.add_argument(
        "--samples", type=int, default=GOAL_SIZE.samples, help="m, the records of an owner"
    )
    parser.add_argument(
        "--features", type=int, default=GOAL_SIZE.features, help="d, the constant one included"
    )
    parser.add_argument("--turns", type=int, default=60, help="rounds of each contestant")
    parser.add_argument("--growth-owners", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--growth-shape", type=int, nargs=2, default=[100, 100], help="m and d")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--resident", choices=(ONE_PASS, PRIVATE), help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = Size(options.owners, options.samples, options.features)
    if options.resident:
        print_resident(options.resident, size)
    else:
        page(options, size)


if __name__ == "__main__":
    main()
