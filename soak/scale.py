"""A billion owners stream by, shape after shape, in less than 500 MB: `make soak` keeps the table.

Every shape is read in a process of its own. The certificate, which reads everybody twice more, says
that nobody gains by deviating; the memory is the most that the process ever held, certificate
included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

LIMIT_MB = 500
ONCE = "linear, read once"
"""From an iterator: nobody can look again at a bin that the cutoff cuts through."""
OTHERS = [
    (ONCE, "nearly equal"),
    (ONCE, "70 % take part"),
    ("quadratic", "uniform on [1, 5]"),
    ("exponential", "uniform on [1, 5]"),
]


def job(shape: str, cost: str, n: int) -> None:
    """Solve one game and print what it took."""
    from fedbourse import equilibrium
    from scale import chunks  # type: ignore[attr-defined]

    readings = 0

    def read() -> Iterable[object]:
        nonlocal readings
        readings += 1
        return chunks(shape, n)

    start = time.perf_counter()
    if cost == ONCE:
        found = equilibrium(iter(read()), reward=1.0)
    else:
        found = equilibrium(read, reward=1.0, cost=cost)
    solved, solve_s = readings, time.perf_counter() - start
    # A bisection for each owner would take hours: other costs prove themselves by their last sum.
    # What was read once cannot be read again to prove it.
    regret = found.regret if cost == "linear" else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    result = {"owners": found.owners, "count": found.count, "regret": regret}
    print(json.dumps({**result, "readings": solved, "s": solve_s, "mb": peak}))


def main() -> None:
    """Run every case, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=float, default=1e9)
    parser.add_argument("--job", nargs=2)
    options = parser.parse_args()
    owners = int(options.owners)
    if options.job:
        job(*options.job, owners)  # type: ignore[call-arg]
        return
    from scale import SHAPES  # type: ignore[attr-defined]

    print("# A billion owners\n\nWritten by `make soak` (`soak/scale.py`).\n")
    print(
        f"{owners:.0e} owners, generated chunk by chunk. Memory is the most that the process held,"
    )
    print(
        f"Python and NumPy included; the goal is {LIMIT_MB} MB. Times are for orientation only.\n"
    )
    print("| cost | values | readings | participants | gain x K^2 | seconds | most memory |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    cases = [("linear", shape) for shape in SHAPES]
    cases += OTHERS
    broken = 0
    for cost, shape in cases:
        done = subprocess.run(
            [sys.executable, __file__, "--owners", str(owners), "--job", shape, cost],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        found = json.loads(done.stdout)
        gain = "-" if found["regret"] is None else f"{found['regret'] * found['count'] ** 2:.1e}"
        print(f"| {cost} | {shape} | {found['readings']} | {found['count']:,} | {gain} | "
              f"{found['s']:.0f} | {found['mb']:.0f} MB |", flush=True)  # fmt: skip
        broken += found["mb"] > LIMIT_MB or found["readings"] > 4 or found["owners"] != owners
    print(f"\n{broken} of {len(cases)} broke the limits of memory or of four readings.")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
