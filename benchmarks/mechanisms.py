"""Equal lots and the optimal purchase over many owners in chunks: time against `np.min`, memory.

    python benchmarks/mechanisms.py > docs/performance-mechanisms.md

Owners come in chunks of a million values, eight of them over and over, so that nothing but the
mechanism is measured. Every row is measured in a process of its own, which says how much memory it
held at most.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from fedbourse import Purchase, Stream, Uniform, buy_optimally, sell_lots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHUNK, POOL = 1 << 20, 8
CASES = {
    "lots, a thousand sell": ("lots", 1000),
    "lots, a tenth sells": ("lots", 0.1),
    "lots, everybody sells": ("lots", 1.0),
    "optimal, few sell": ("optimal", 1.0),
    "optimal, everybody sells": ("optimal", 1e10),
}


def chunks(owners: int) -> Callable[[], Iterator[np.ndarray]]:
    rng = np.random.default_rng(0)
    pool = [rng.uniform(1, 5, CHUNK) for _ in range(POOL)]

    def read() -> Iterator[np.ndarray]:
        for i, start in enumerate(range(0, owners, CHUNK)):
            yield pool[i % POOL][: min(CHUNK, owners - start)]

    return read


def job(case: str, owners: int) -> dict[str, float]:
    """Measure one row: the best of three turns, each beside a scan for the smallest value."""
    kind, size = CASES[case]
    read, readings = chunks(owners), 0

    def counted() -> Iterator[np.ndarray]:
        nonlocal readings
        readings += 1
        return read()

    times, scans = [], []
    for _ in range(3):
        start = time.perf_counter()
        min(float(chunk.min()) for chunk in read())
        scans.append(time.perf_counter() - start)
        readings, start = 0, time.perf_counter()
        if kind == "lots":
            k = int(size) if size > 1 else int(size * owners)
            reward = (1 + 4 * k / owners) * k * (1 + (k == owners) * 1e-6)
            sellers = sell_lots(Stream(counted), reward=reward, lot=1.0).sellers
        else:
            buyer = Purchase(gain=10.0, noise_factor=0.01, sampling=size, prior=Uniform(1, 5))
            sellers = buy_optimally(Stream(counted), buyer).sellers
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "sellers": sellers,
        "readings": readings,
        "s": min(times),
        "ratio": min(times) / min(scans),
        "mb": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=float, default=1e8)
    parser.add_argument("--job")
    options = parser.parse_args()
    owners = int(options.owners)
    if options.job:
        print(json.dumps(job(options.job, owners)))
        return
    print("# How fast mechanisms are\n")
    print("Written by `python benchmarks/mechanisms.py` (`docs/how-to/many-owners.md` has the rest")
    print(f"of what streams). {owners:.0e} owners, uniform on [1, 5], come in chunks of a million")
    print("values. Times are in scans for the smallest value of the same chunks (`np.min`, one")
    print("core); memory is the most that the process held, Python, NumPy and 64 MB of values")
    print("included.\n")
    print("| what is sold | sellers | readings | seconds | in scans | most memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for case in CASES:
        done = subprocess.run(
            [sys.executable, __file__, "--owners", str(owners), "--job", case],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        row = json.loads(done.stdout)
        print(
            f"| {case} | {row['sellers']:,} | {row['readings']} | {row['s']:.1f} | "
            f"{row['ratio']:.1f} | {row['mb']:.0f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
