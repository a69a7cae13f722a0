"""Kill devices at random moments, over and over, and compare what left with what was charged.

Prints a page in Markdown; `make soak` keeps it as docs/soak.md. Progress is on standard error.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import signal
import sqlite3
import sys
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads should not fork
from fedbourse import __version__
from fedbourse.testing.device.spend_process import (
    RIGHT,
    WRONG,
    Life,
    asks_about_another_model,
    ended,
    record,
    repeats_and_goes_on,
    start,
)

ROUNDS = 40
LONGEST_LIFE_S = 0.05
"""A life is cut off at a moment between 0 and this; about as long as the 40 rounds take."""


@dataclass
class Tally:
    """What happened to all devices that worked in one order."""

    kills: int = 0
    restarts: int = 0
    devices: int = 0
    sent: int = 0
    charged: int = 0
    most_spent: Fraction = field(default_factory=Fraction)
    overspent: int = 0
    doubled: int = 0
    unlawful: int = 0

    def add(self, folder: Path) -> None:
        """Count a device that is done."""
        terms = Life(str(folder), ROUNDS, []).terms
        seen = record(folder)
        spent = seen.spent(terms) / Fraction(terms.rho)
        self.devices += 1
        self.sent += len(seen.sent)
        self.charged += seen.charged
        self.most_spent = max(self.most_spent, spent)
        self.overspent += spent > 1
        self.doubled += len(seen.doubled)
        self.unlawful += bool(seen.broken_laws(terms))


def soak(order: str, kills: int, rng: random.Random, folder: Path) -> Tally:
    """Let devices live and be killed until there were enough kills."""
    tally = Tally()
    while tally.kills < kills:
        device = folder / f"{order} {tally.devices}"
        device.mkdir()
        while killed(order, device, rng):
            tally.kills += 1
            tally.restarts += 1
        tally.add(device)
        print(f"{order}: {tally.kills} of {kills} kills", file=sys.stderr)
    return tally


def killed(order: str, device: Path, rng: random.Random) -> bool:
    """Start a device, kill it at a random moment; return whether it was still alive then."""
    server = rng.choice([repeats_and_goes_on, asks_about_another_model])
    process = start(Life(str(device), ROUNDS, server(device, ROUNDS), order=order))
    time.sleep(rng.uniform(0, LONGEST_LIFE_S))
    os.kill(process, signal.SIGKILL)  # no error where it has ended: it was not waited for yet
    code = ended(process)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"a device could not go on after {device}: exit code {code}")
    return code != 0


def processor() -> str:
    """Return the name of the machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def row(*cells: object) -> None:
    """Print a row of a table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def main() -> int:
    """Soak devices of every order, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="kills of devices that work right")
    parser.add_argument("--wrong-kills", type=int, default=200, help="kills for each wrong order")
    parser.add_argument("--seed", type=int, default=0, help="of the servers and of the moments")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    tallies = {}
    with TemporaryDirectory() as folder:
        for order in (RIGHT, *WRONG):
            kills = options.kills if order == RIGHT else options.wrong_kills
            tallies[order] = soak(order, kills, rng, Path(folder))
    right, wrong = tallies[RIGHT], [tallies[order] for order in WRONG]
    holds = not right.unlawful
    caught = all(tally.unlawful for tally in wrong)

    print("# Killed at any moment, no device overspends\n")
    print(f"{right.kills} kills (`kill -9`) at random moments, and each time a new start: "
          f"{right.overspent} devices spent more than\ntheir budget, and {right.doubled} rounds "
          "got a second update. Devices made wrong on purpose are caught.\n")  # fmt: skip
    print("Written by `make soak`. A device works in the order of the first column, on a file of"
          f" its own, for {ROUNDS} rounds that use up\nits budget. After each kill a server either"
          " repeats the last round request and goes on, or asks for every round again about"
          "\nanother model. What was sent is read from the wire, which remembers all that ever"
          " left: every different update costs a\nround's privacy. Rounds charged and not sent are"
          " privacy that a kill wasted; they are never sold twice.\n")  # fmt: skip
    row("order", "kills", "restarts", "devices", "rounds sent", "rounds charged",
        "most spent / budget", "overspent devices", "repeated with another update")  # fmt: skip
    row("---", *["---:"] * 8)
    for order, tally in tallies.items():
        name = f"**{order}**" if order == RIGHT else order
        row(name, tally.kills, tally.restarts, tally.devices, tally.sent, tally.charged,
            f"{float(tally.most_spent):.3f}", tally.overspent, tally.doubled)  # fmt: skip
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    cores = len(os.sched_getaffinity(0))
    print(f"\n{processor()}, {cores} cores, {versions}, fedbourse {__version__}.")
    if not holds:
        print("\n**The device broke its promise.**")
    if not caught:
        print("\n**A wrong order was not caught: more kills are needed.**")
    return 0 if holds and caught else 1


if __name__ == "__main__":
    sys.exit(main())
