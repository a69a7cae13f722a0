"""Fetch the dashboard's scripts as package-lock.json pins them, and put them into the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "src/fedbourse/dashboard/static/vendor"
FILES = {
    "htmx.min.js": "htmx.org/dist/htmx.min.js",
    "htmx.LICENSE": "htmx.org/LICENSE",
    "uPlot.iife.min.js": "uplot/dist/uPlot.iife.min.js",
    "uPlot.min.css": "uplot/dist/uPlot.min.css",
    "uPlot.LICENSE": "uplot/LICENSE",
}
PROGRAMS = Path(sys.executable).parent


def npm() -> list[str]:
    """Return the command of this machine's npm, or of one from the package index."""
    if shutil.which("node") and (found := shutil.which("npm")):
        return [found]
    locked = ["--require-hashes", "--no-deps", "--requirement", str(ROOT / "requirements-npm.lock")]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *locked], check=True)
    return [str(PROGRAMS / "npm")]


def main() -> None:
    """Fetch, and copy what pages load; the rest is for tests."""
    quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
    # npm finds node by its name.
    path = os.pathsep.join([str(PROGRAMS), os.environ.get("PATH", "")])
    try:
        subprocess.run(
            [*npm(), "ci", "--ignore-scripts", *quiet],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PATH": path},
        )
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"the dashboard's scripts could not be fetched: {error}")
    VENDOR.mkdir(parents=True, exist_ok=True)
    for name, source in FILES.items():
        shutil.copyfile(ROOT / "node_modules" / source, VENDOR / name)


if __name__ == "__main__":
    main()
