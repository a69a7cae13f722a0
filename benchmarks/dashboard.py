"""How long the market takes to answer a buyer's what-if: the goal is 100 ms for 10^5 owners.

Prints a table in Markdown: the median and the worst of several runs on this machine, as it is.
"""

from __future__ import annotations

import argparse
import statistics
import time

from fedbourse.dashboard.what_if import predict, supposed_in

GOAL_MS = 100.0
FIELDS = {
    "reward": "10",
    "features": "9",
    "classes": "2",
    "step_size": "1",
    "rounds": "50",
    "samples": "1000",
    "clip": "1",
    "accuracy_value": "20",
    "values_low": "1",
    "values_high": "5",
}
SHAPES = {
    "evenly spread over 1 to 5": {},
    "all equal (everybody takes part)": {"sample": "2 2"},
    "nearly equal (everybody takes part)": {"values_high": "1.000001"},
    "six orders of magnitude": {"values_high": "1000000"},
    "the best reward is asked for": {"reward_kind": "best"},
}


def times_ms(fields: dict[str, str], runs: int) -> tuple[int, list[float]]:
    """Return how many take part, and how long each of some answers took, the form's check too."""
    posted = {name: [text] for name, text in fields.items()}
    predict(supposed_in(posted))  # what is imported when first needed
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        found = predict(supposed_in(posted))
        times.append(1000 * (time.perf_counter() - start))
    return found.participants, times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owners", type=int, nargs="+", default=[10**3, 10**4, 10**5])
    parser.add_argument("--runs", type=int, default=30)
    asked = parser.parse_args()
    print("\n## How long a what-if takes\n")
    print(f"By the server, without the network (`benchmarks/dashboard.py`), {asked.runs} runs.\n")
    print("| values | owners | participants | median, ms | worst, ms | median / goal of 100 ms |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, change in SHAPES.items():
        for owners in asked.owners:
            fields = FIELDS | change | {"owners": str(owners)}
            if change.get("reward_kind"):
                fields.pop("reward")
            count, times = times_ms(fields, asked.runs)
            middle = statistics.median(times)
            print(
                f"| {name} | {owners:,} | {count:,} | {middle:.1f} | {max(times):.1f} "
                f"| {middle / GOAL_MS:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
