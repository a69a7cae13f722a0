"""The measuring of pages runs at a tiny size, and has its rows; no time is judged."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_each_page_has_its_requests_bytes_and_time() -> None:
    script = str(ROOT / "benchmarks" / "page_weight.py")
    done = subprocess.run(
        [sys.executable, script, "--turns", "1", "--pages", "2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (.+ \(`/.*`\)) \| (.+) \|$", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["All tasks (`/`)", "Sign in (`/sign-in`)"]
    for _, cells in rows:
        numbers = [float(cell) for cell in cells.split(" | ")]
        assert len(numbers) == 6
        assert all(number > 0 for number in numbers)
        assert numbers[4] < numbers[1] < 200  # kB; scripts and styles are kept by the browser
