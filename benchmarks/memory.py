"""What decisions 0002 and 0003 rest on: fresh memory, block sizes and threads, at 10^8 owners."""

from __future__ import annotations

import importlib

import numpy as np

from equilibrium import best_of
from fedbourse import equilibrium
from fedbourse.game import array_spans

MODULES = [
    importlib.import_module(f"fedbourse.game.{name}")
    for name in ("array_spans", "array_scan", "outofcore.chunk_scan", "cutoff")
]


def main() -> None:
    values = np.random.default_rng(0).uniform(1, 5, 10**8)
    scan, write = best_of(5, lambda: np.min(values), lambda: np.multiply(values, 2.0))
    print(f"np.min of 10^8 values: {scan * 1e3:.0f} ms; reading and writing to fresh memory: "
          f"{write / scan:.1f} times that")  # fmt: skip
    print("block size: equilibrium / np.min on all cores, on one")
    plenty = array_spans.WORTH_A_THREAD
    for power in range(15, 20):
        for module in MODULES:
            module.BLOCK = 1 << power  # type: ignore[attr-defined]
        ratios = []
        for worth in (plenty, 10**12):
            array_spans.WORTH_A_THREAD = worth
            solve, scan = best_of(
                5, lambda: equilibrium(values, reward=1.0), lambda: np.min(values)
            )
            ratios.append(f"{solve / scan:.1f}")
        print(f"{8 * 2**power / 2**20:.2f} MB: {', '.join(ratios)}")


if __name__ == "__main__":
    main()
