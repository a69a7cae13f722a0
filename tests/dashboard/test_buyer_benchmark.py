"""The what-if's benchmark prints its table; no time is judged."""

from __future__ import annotations

import subprocess
import sys

from dashboard.conftest import ROOT


def test_the_benchmark_of_the_what_if_has_every_row():
    script = str(ROOT / "benchmarks" / "dashboard.py")
    asked = [sys.executable, script, "--owners", "10", "20", "--runs", "2"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    rows = [line.split(" | ") for line in table[2:]]
    assert len(rows) == 5 * 2
    assert all(float(row[3]) > 0 for row in rows)
