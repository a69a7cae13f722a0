"""Calibrate accuracy on a pilot, and compare its predictions with trainings that it has not seen.

Prints a page in Markdown; `make soak` keeps it as docs/soak-pilot.md. The goal is two points of
accuracy; `make test` shows it on synthetic data.
"""

from __future__ import annotations

import sys

from spend import processor, row

from fedbourse import __version__
from fedbourse.study.pilot import pilot_study
from fedbourse.testing.study_tasks import DIGITS, SYNTHETIC

GOAL = 0.02


def main() -> int:
    """Run the pilots, and print the page."""
    print("# What a pilot predicts\n")
    print(f"`python soak/pilot.py`, fedbourse {__version__}, {processor()}.\n")
    row("data", "seeds", "rewards it has not seen", "largest error", "goal")
    row(*["---"] * 5)
    errors = []
    for task, seeds in ((DIGITS, 12), (SYNTHETIC, 24)):
        study = pilot_study(task, aggregation="precision", seeds=seeds)
        errors.append(study.largest_error)
        row(task.data, seeds, len(study.checks), f"{study.largest_error:.4f}", GOAL)
    return 0 if max(errors) <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
