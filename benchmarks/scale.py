"""How the equilibrium grows: owners in memory, streamed, and in Parquet files, against plain scans.

Prints sections in Markdown for docs/performance.md (`make performance`). Every row is measured in a
process of its own, which also says how much memory it held at most; each time is the best of
several turns, taken in turn with the plain scan of the same source.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from equilibrium import best_of, row
from fedbourse import Training, best_reward, equilibrium, owners_in, what_if

CHUNK = 1 << 20
TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)

Shape = Callable[[np.random.Generator, int, int, int], np.ndarray]


def spread(low: float, high: float) -> Shape:
    def values(rng: np.random.Generator, start: int, stop: int, n: int) -> np.ndarray:
        found = rng.random(stop - start)
        found *= high - low
        found += low
        return found

    return values


def fraction(start: int, stop: int, n: int) -> np.ndarray:
    return np.arange(start, stop) / n


SHAPES: dict[str, Shape] = {
    "uniform on [1, 5]": spread(1, 5),
    "all equal": lambda rng, start, stop, n: np.full(stop - start, 2.0),
    "nearly equal": lambda rng, start, stop, n: spread(1, 1 + 0.1 / n)(rng, start, stop, n),
    "70 % take part": lambda rng, start, stop, n: spread(1, 1 + 4 / n)(rng, start, stop, n),
    "geometric, 300 orders": lambda rng, a, b, n: 10.0 ** (300 * fraction(a, b, n) - 150),
    "two-point": lambda rng, a, b, n: np.where(np.arange(a, b) < 2, 1.0, 2.0),
    "rising": lambda rng, start, stop, n: 1 + 2 * fraction(start, stop, n),
    "falling": lambda rng, start, stop, n: 3 - 2 * fraction(start, stop, n),
    "one cheap, others equal": lambda rng, a, b, n: np.where(np.arange(a, b) == n // 2, 1e-3, 1.0),
    "one cheap, others uniform": lambda rng, a, b, n: np.where(
        np.arange(a, b) == n // 2, 1e-3, spread(1, 5)(rng, a, b, n)
    ),
}


def chunks(shape: str, n: int) -> Iterator[np.ndarray]:
    """Yield the values of a shape, generated when they are asked for."""
    rng = np.random.default_rng(n)
    for start in range(0, n, CHUNK):
        yield SHAPES[shape](rng, start, min(start + CHUNK, n), n)


def in_memory(shape: str, n: int) -> np.ndarray:
    values = np.empty(n)
    start = 0
    for chunk in chunks(shape, n):
        values[start : start + len(chunk)] = chunk
        start += len(chunk)
    return values


def memory_job(shape: str, n: int, _: str) -> dict[str, float]:
    values = in_memory(shape, n)
    found = equilibrium(values, reward=1.0)
    own, scan = best_of(3 if n >= 10**9 else 7, lambda: equilibrium(values, reward=1.0),
                        lambda: np.min(values))  # fmt: skip
    return {"own": own, "scan": scan, "count": found.count}


def stream_job(shape: str, n: int, _: str) -> dict[str, float]:
    found = equilibrium(lambda: chunks(shape, n), reward=1.0)
    own, scan = best_of(
        1 if n >= 10**9 else 3,
        lambda: equilibrium(lambda: chunks(shape, n), reward=1.0),
        lambda: min(float(np.min(chunk)) for chunk in chunks(shape, n)),
    )
    return {"own": own, "scan": scan, "count": found.count}


def parquet_job(_: str, n: int, folder: str) -> dict[str, float]:
    import pyarrow.dataset as ds

    dataset = ds.dataset(folder, format="parquet")
    found = equilibrium(owners_in(folder), reward=1.0)
    own, scan = best_of(
        2 if n >= 10**9 else 5,
        lambda: equilibrium(owners_in(folder), reward=1.0),
        lambda: sum(batch.num_rows for batch in dataset.to_batches(columns=["value"])),
    )
    return {"own": own, "scan": scan, "count": found.count}


def what_if_job(_: str, n: int, __: str) -> dict[str, float]:
    values = in_memory("uniform on [1, 5]", n)
    rewards = np.linspace(0.1, 10, 100)
    one, hundred, best = best_of(
        3,
        lambda: equilibrium(values, reward=1.0),
        lambda: what_if(values, TRAINING, rewards=rewards, accuracy_value=20.0),
        lambda: best_reward(values, TRAINING, accuracy_value=20.0),
    )
    return {"own": hundred, "scan": one, "count": best}


JOBS = {"memory": memory_job, "stream": stream_job, "parquet": parquet_job, "what-if": what_if_job}


def measured(job: str, shape: str, n: int, folder: str = "") -> dict[str, float]:
    """Run one job in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--job", job, shape, str(n), folder],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def run_job(job: str, shape: str, n: int, folder: str) -> None:
    result = JOBS[job](shape, n, folder)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**result, "mb": peak / 1024}))


def line(label: str, n: int, found: dict[str, float]) -> float:
    ratio = found["own"] / found["scan"]
    row(label, f"{found['count']:,.0f}", f"{found['own']:.3g} s", f"{n / found['own'] / 1e6:,.0f}",
        f"{ratio:.2f}", f"{found['mb']:,.0f} MB")  # fmt: skip
    return ratio


def heading(title: str, peer: str) -> None:
    print(f"\n## {title}\n")
    row("owners", "participants", "time", "million owners a second", f"ratio to {peer}",
        "most memory")  # fmt: skip
    row("---", *["---:"] * 5)


def growth(sizes: list[int], found: list[dict[str, float]], peer: str) -> None:
    if len(sizes) < 2:
        return
    own, scan = (
        np.polyfit(np.log(sizes), np.log([each[key] for each in found]), 1)[0]
        for key in ("own", "scan")
    )
    met = "met" if abs(own - 1) <= 0.05 else "NOT met"
    print(f"\nTime grows as n^{own:.2f} (goal 1.00 +- 0.05: {met}), {peer} as n^{scan:.2f}.")


def goal(limit: float, ratio: float) -> None:
    print(f"\nGoal at the largest: at most {limit:g}: {'met' if ratio <= limit else 'NOT met'} "
          f"({ratio:.2f}).")  # fmt: skip


def write_parquet(folder: Path, n: int) -> None:
    """Write files of up to ten million rows; beyond a hundred million, files are linked again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    per_file, real = 10**7, min(n, 10**8)
    values = chunks("uniform on [1, 5]", real)
    folder.mkdir()
    for number in range(max(1, real // per_file)):
        rows, path = min(per_file, real), folder / f"part-{number:03d}.parquet"
        with pq.ParquetWriter(path, pa.schema([("value", pa.float64())])) as writer:
            while rows > 0 and (chunk := next(values, None)) is not None:
                writer.write_table(pa.table({"value": chunk}))
                rows -= len(chunk)
    for copy in range(1, n // real):
        for path in sorted(folder.glob("part-???.parquet")):
            os.link(path, folder / f"{path.stem}-{copy}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=9, help="the power of ten to go up to")
    parser.add_argument("--job", nargs=4, help="run one job and print its figures as JSON")
    options = parser.parse_args()
    if options.job:
        job, shape, n, folder = options.job
        run_job(job, shape, int(n), folder)
        return
    sizes = [10**k for k in range(min(6, options.largest), options.largest + 1)]
    shaped = min(10**8, sizes[-1])

    heading("Owners in memory, uniform on [1, 5]", "`np.min`")
    found = [measured("memory", "uniform on [1, 5]", n) for n in sizes]
    ratios = [line(f"{n:.0e}", n, each) for n, each in zip(sizes, found, strict=True)]
    growth(sizes, found, "`np.min`")
    goal(1.5, ratios[-1])

    heading(f"Other shapes in memory, {shaped:.0e} owners", "`np.min`")
    for shape in SHAPES:
        line(shape, shaped, measured("memory", shape, shaped))

    heading("Owners that stream by, generated chunk by chunk", "`np.min` of every chunk")
    found = [measured("stream", "uniform on [1, 5]", n) for n in sizes]
    for n, each in zip(sizes, found, strict=True):
        line(f"{n:.0e}", n, each)
    for shape in list(SHAPES)[1:]:
        line(f"{shape}, {shaped:.0e}", shaped, measured("stream", shape, shaped))
    growth(sizes, found, "the plain scan")

    heading("Owners in Parquet files", "pyarrow's own scan")
    found = []
    for n in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_parquet(Path(folder, "owners"), n)
            found.append(measured("parquet", "", n, str(Path(folder, "owners"))))
    ratios = [line(f"{n:.0e}", n, each) for n, each in zip(sizes, found, strict=True)]
    growth(sizes, found, "pyarrow's scan")
    goal(1.3, ratios[-1])
    print(
        "\nFiles lie in the page cache; beyond 1e+08 rows each of them is read several times. The"
    )
    print("memory is that of the process that also scans with pyarrow alone.")

    asked = measured("what-if", "", shaped)
    many, best = asked["own"] / asked["scan"], asked["count"] / asked["scan"]
    print(f"\n## A hundred rewards\n\nAt {shaped:.0e} uniform owners in memory a what-if over 100")
    print(f"rewards and four accuracy models takes {many:.2f} times as long as one equilibrium,")
    print(f"`best_reward` {best:.2f} times.")


if __name__ == "__main__":
    main()
