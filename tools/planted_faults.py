"""List the tests that plant a fault, which must be caught, as a page in Markdown.

    python tools/planted_faults.py > docs/planted-faults.md

A fault that is planted in several ways, or on both databases, counts once for each.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
COLLECT = ["-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", "-m", "faults", "tests"]


def main() -> None:
    """Collect the tests, and print the page."""
    collected = subprocess.run(
        [sys.executable, *COLLECT, "-o", "addopts=--import-mode=importlib"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if collected.returncode != 0:
        sys.exit(collected.stdout + collected.stderr)
    sys.stdout.write(page(line for line in collected.stdout.splitlines() if "::" in line))


def page(ids: Iterable[str]) -> str:
    """Return the page for the ids of tests."""
    counts = Counter(id.partition("[")[0] for id in ids)
    lines = [
        "# Planted faults",
        "",
        "Written by `python tools/planted_faults.py`; `pytest -m faults` runs them. Each test",
        "plants a fault in the product, or plays one, and passes only if the fault is caught.",
        "",
        f"**{counts.total()} planted faults in {len(counts)} tests.**",
        "",
        "| file | test | faults |",
        "|---|---|---|",
    ]
    for name, count in sorted(counts.items()):
        file, _, test = name.partition("::")
        lines.append(f"| `{file}` | {test.removeprefix('test_').replace('_', ' ')} | {count} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
