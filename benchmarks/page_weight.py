"""What each page of the dashboard weighs, and how soon it can be used, in Chromium.

Prints a page in Markdown; `make benchmarks` keeps it as docs/performance-dashboard.md. A market
that fills itself (`serve --demo`) is served on the same machine; it trains meanwhile.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from equilibrium import processor, row
from fedbourse import __version__

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from demo_browser import chromium, demo_market, visitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from demo_browser import Demo

PAGES = (
    ("All tasks", "/", None),
    ("Sign in", "/sign-in", None),
    ("A finished task", "/tasks/{finished}", None),
    ("A task in training, live", "/tasks/{training}", "buyer"),
    ("Buy", "/buy", "buyer"),
    ("Write a card, with what-if", "/buy/new", "buyer"),
    ("The report of a trade", "/tasks/{finished}/report", "buyer"),
    ("Own", "/own", "owner"),
    ("What a budget earns", "/tasks/{waiting}/earn", "owner"),
    ("Ledger", "/ledger", "buyer"),
    ("Verify the books", "/ledger/verify", "auditor"),
)
MARK = """window.usable = new Promise((tell) => addEventListener("load", () =>
  requestIdleCallback(() => tell(performance.now()), {timeout: 5000})));"""
INTRODUCTION = """# What a page of the dashboard costs

Written by `make benchmarks` (`benchmarks/page_weight.py`). Chromium and a market that fills itself
(`fedbourse serve --demo`, one process, SQLite) on the same machine, over the loopback; devices
train meanwhile. Each row is the median of {turns} visits.

fedbourse {version}, Python {python}, {processor}, {cores} cores.

*First visit*: nothing is cached. *Again*: the same browser loads the page once more; scripts and
styles have a hash in their address and are not asked for again. kB are what went over the wire,
compressed, headers included; streams of events are not counted. *Usable*: from the start of the
navigation until the page is loaded, our scripts have run (charts are drawn), and the browser is
idle.
"""


@dataclass(frozen=True)
class Visit:
    """One visit to one page."""

    requests: int
    bytes: int
    usable_ms: float


def visited(context: BrowserContext, path: str) -> Visit:
    page = context.new_page()
    page.add_init_script(MARK)
    line = context.new_cdp_session(page)
    line.send("Network.enable")
    sizes: list[int] = []
    line.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    answer = page.goto(path)
    if answer is None or answer.status != 200:
        sys.exit(f"{path} answers {answer and answer.status}")
    usable_ms = float(page.evaluate("window.usable"))
    page.close()
    # What comes from the cache without a request has no size.
    return Visit(len([size for size in sizes if size]), sum(sizes), usable_ms)


def measured(browser: Browser, demo: Demo, path: str, who: str | None, turns: int) -> list[str]:
    first, again = [], []
    for _ in range(turns):
        context = visitor(browser, demo, who)
        first.append(visited(context, demo.path(path)))
        again.append(visited(context, demo.path(path)))
        context.close()
    cells = []
    for visits in (first, again):
        cells += [
            f"{median(visit.requests for visit in visits):.0f}",
            f"{median(visit.bytes for visit in visits) / 1000:.1f}",
            f"{median(visit.usable_ms for visit in visits):.0f}",
        ]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="visits a page")
    parser.add_argument("--pages", type=int, default=len(PAGES), help="how many of the pages")
    arguments = parser.parse_args()
    print(
        INTRODUCTION.format(
            turns=arguments.turns,
            version=__version__,
            python=platform.python_version(),
            processor=processor(),
            cores=os.cpu_count(),
        )
    )
    row("page", "requests", "kB", "usable, ms", "again: requests", "kB", "usable, ms")
    row("---", *["---:"] * 6)
    with demo_market() as demo, chromium() as browser:
        visited(visitor(browser, demo, None), "/")  # the browser's own first start
        for name, path, who in PAGES[: arguments.pages]:
            shown = path.format(**dict.fromkeys(demo.tasks, "..."))
            cells = measured(browser, demo, path, who, arguments.turns)
            row(f"{name} (`{shown}`)", *cells)


if __name__ == "__main__":
    main()
