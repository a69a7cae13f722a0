"""Print what it costs to import the agent: seconds, memory, and what is not loaded for it.

Run it with the package's interpreter: python benchmarks/device_import.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

HEAVY = (
    "fastapi",
    "uvicorn",
    "sqlalchemy",
    "psycopg",
    "matplotlib",
    "pyarrow",
    "torch",
    "flwr",
    "ray",
    "pandas",
    "sklearn",
    "scipy",
    "rich",
    "cyclopts",
)
RUNS = 7
_MEASURE = """
import json, sys, time
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
bare, started = resident(), time.perf_counter()
import {module}
print(json.dumps([time.perf_counter() - started, bare, resident(), sorted(sys.modules)]))
"""


def measured(module: str) -> tuple[float, float, float, set[str]]:
    """Return the median seconds, the bytes before and after, and all that was loaded."""
    runs = []
    for _ in range(RUNS):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURE.format(module=module)],
            check=True,
            capture_output=True,
            text=True,
        )
        runs.append(json.loads(done.stdout))
    seconds, bare, after = (statistics.median(run[i] for run in runs) for i in range(3))
    return seconds, bare, after, set(runs[0][3])


def main() -> None:
    """Print the table."""
    print("| import | seconds | MB resident, more than a bare Python | of these not loaded |")
    print("|---|---|---|---|")
    for module in ("numpy", "fedbourse.device"):
        seconds, bare, after, loaded = measured(module)
        absent = ", ".join(name for name in HEAVY if name not in loaded)
        print(f"| `{module}` | {seconds:.2f} | {(after - bare) / 2**20:.0f} | {absent} |")


if __name__ == "__main__":
    main()
