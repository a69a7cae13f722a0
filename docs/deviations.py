"""Write the tables and the figure of docs/theory/deviations.md. `make docs` runs this (minutes)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "theory" / "deviations.md"
BEGINS, ENDS = "<!-- begins: docs/deviations.py -->\n", "<!-- ends -->\n"


def main() -> None:
    """Run the study with its defaults, and put its tables and figure into the page."""
    out = DOCS.parent / "build" / "docs-deviations"
    subprocess.run(
        [sys.executable, "-m", "fedbourse", "study", "deviations", "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGINS)
    _, _, tail = rest.partition(ENDS)
    tables = (out / "deviations.md").read_text(encoding="utf-8")
    PAGE.write_text(f"{head}{BEGINS}\n{tables}\n{ENDS}{tail}", encoding="utf-8")
    image = DOCS / "images" / "deviations.png"
    image.write_bytes((out / "deviations.png").read_bytes())


if __name__ == "__main__":
    main()
