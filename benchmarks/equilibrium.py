"""How fast the linear game is solved, against one look at the same memory and against its peers.

Prints a page in Markdown; `make benchmarks` keeps it as docs/performance.md. Times are the best of
several runs, taken in turns, so that a noisy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from fedbourse import __version__, equilibrium
from fedbourse.testing.oracles import algorithm_2

Shape = Callable[[np.random.Generator, int], np.ndarray]

SHAPES: dict[str, Shape] = {
    "uniform on [1, 5]": lambda rng, n: rng.uniform(1, 5, n),
    "all equal (everybody takes part)": lambda rng, n: np.full(n, 2.0),
    "nearly equal (everybody takes part)": lambda rng, n: rng.uniform(1, 1 + 0.1 / n, n),
    "300 orders of magnitude": lambda rng, n: 10 ** rng.uniform(-150, 150, n),
}
GOALS = {
    "uniform on [1, 5]": 2.0,
    "all equal (everybody takes part)": 6.0,
    "nearly equal (everybody takes part)": 6.0,
}


def certify(values: np.ndarray) -> float:
    return equilibrium(values, reward=1.0).regret


def best_of(runs: int, *works: Callable[[], object]) -> list[float]:
    """Return each work's shortest time over several turns."""
    times = [float("inf")] * len(works)
    for _ in range(runs):
        for i, work in enumerate(works):
            start = time.perf_counter()
            work()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def shape_table(name: str, sizes: list[int]) -> None:
    print(f"\n### {name}\n")
    row("owners", "participants", "equilibrium", "ratio to `np.min`", "ratio to `np.sort`",
        "all arrays and certificate, ratio to `np.min`")  # fmt: skip
    row(*["---:"] * 6)
    times, scans, ratio = [], [], 0.0
    for n in sizes:
        values = SHAPES[name](np.random.default_rng(n), n)
        runs = 5 if n >= 10**7 else 15

        def solve(values: np.ndarray = values) -> None:
            equilibrium(values, reward=1.0)

        # The same array stands for the peers: np.min reads it once, np.sort sorts a copy.
        solved, scanned = best_of(runs, solve, partial(np.min, values))
        (ordered,) = best_of(1 if n >= 10**7 else 3, partial(np.sort, values))
        (certified,) = best_of(1, partial(certify, values))
        found = equilibrium(values, reward=1.0)
        ratio = solved / scanned
        row(f"{n:.0e}", len(found.participants), f"{solved * 1e3:.3f} ms", f"{ratio:.2f}",
            f"{solved / ordered:.2g}", f"{certified / scanned:.1f}")  # fmt: skip
        times.append(solved)
        scans.append(scanned)
        del values, found
    large = sum(n >= 10**6 for n in sizes)
    if large >= 2:
        own, scan = (
            np.polyfit(np.log(sizes[-large:]), np.log(t[-large:]), 1)[0] for t in (times, scans)
        )
        print(f"\nFrom 10^6 owners on time grows as n^{own:.2f}, that of `np.min` as n^{scan:.2f}.")
    if name in GOALS and sizes[-1] == 10**8:
        verdict = "met" if ratio <= GOALS[name] else "NOT met"
        print(f"\nGoal at 10^8: at most {GOALS[name]:g} times `np.min`: {verdict} ({ratio:.2f}).")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=8, help="the power of ten to go up to")
    sizes = [10**k for k in range(3, parser.parse_args().largest + 1)]
    print("# How fast the equilibrium is\n")
    print(
        "Written by `make performance`. Equilibria of the linear cost; `np.min` is one look at the"
    )
    print("same array, what any answer must cost at least; `np.sort` is where Algorithm 2 starts.")
    print("An equilibrium computes its arrays when they are first asked for, and the last column")
    print("asks for all of them and for the certificate.\n")
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    cores = len(os.sched_getaffinity(0))
    print(f"{processor()}, {cores} cores, {versions}, fedbourse {__version__}.")
    for name in SHAPES:
        shape_table(name, sizes)
    n = min(10**6, sizes[-1])
    values = np.random.default_rng(0).uniform(1, 5, n)
    listed = values.tolist()
    (plain,) = best_of(1, lambda: algorithm_2(listed, 1.0))
    (solved,) = best_of(9, lambda: equilibrium(values, reward=1.0).dense())
    print("\n### Algorithm 2 in plain Python\n")
    print(f"At {n:.0e} uniform owners: {plain:.3f} s against {solved * 1e3:.2f} ms for the dense")
    print(f"budgets, a ratio of {plain / solved:.0f}.")


if __name__ == "__main__":
    main()
