"""Take the pictures of the dashboard that the tour and the README show, from ``serve --demo``."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from demo_browser import chromium, demo_market, visitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from demo_browser import Demo

IMAGES = Path(__file__).parent / "images"
SIZES = {"desktop": (1280, 860), "phone": (390, 780)}
BYTES_MAX = 200_000
WATCHED_MS = 45_000
"""How long a training is watched, so that there are curves to show."""


@dataclass(frozen=True)
class Picture:
    """A page, who views it, and what is done before the picture is taken."""

    name: str
    path: str
    who: str | None = None
    size: str = "desktop"
    height: int | None = None
    at: str = ""
    """What is scrolled to the top; nothing for the top of the page."""


PICTURES = (
    Picture("live", "/tasks/{training}", "buyer", height=1000, at="#live"),
    Picture("market", "/"),
    Picture("card", "/tasks/{waiting}", size="phone"),
    Picture("what-if", "/buy/new", "buyer", height=1000),
    Picture("step", "/tasks/{waiting}/steps/announce", "buyer", height=900),
    Picture("earn", "/tasks/{waiting}/earn", "owner", height=1000),
    Picture("earn-phone", "/tasks/{waiting}/earn", "owner", size="phone", at="#your-budget"),
    Picture("own", "/own", "owner", height=760),
    Picture("report", "/tasks/{finished}/report", "buyer", height=1000),
    Picture("ledger", "/ledger/verify", "auditor", height=640),
)


def prepare(page: Page, picture: Picture, demo: Demo) -> None:
    """Do what a person would have done by then."""
    if picture.name == "live":
        page.locator("#records").set_input_files(demo.records)
        page.locator("#evaluated canvas").first.wait_for()
        page.wait_for_timeout(WATCHED_MS)
    if picture.name == "ledger":
        page.get_by_role("main").get_by_role("button").first.click()
        page.wait_for_load_state()
    if picture.name.startswith("earn"):
        page.locator("#value").fill("25")
    if picture.name == "what-if":
        page.get_by_label("Goal").fill("Tell from a watch whether its wearer is tired.")
        page.get_by_label("Category of data").fill("A record is an hour as a watch sees it.")
    page.wait_for_timeout(800)


def take(browser: Browser, picture: Picture, demo: Demo) -> None:
    """Take one picture, and refuse one that is too heavy for a page of documentation."""
    width, height = SIZES[picture.size]
    viewport = {"width": width, "height": picture.height or height}
    context = visitor(browser, demo, picture.who, viewport=viewport, color_scheme="light")
    page = context.new_page()
    response = page.goto(demo.path(picture.path))
    if response is None or response.status != 200:
        sys.exit(f"{picture.path} returns {response and response.status}")
    prepare(page, picture, demo)
    if picture.at:
        page.locator(picture.at).evaluate("(part) => part.scrollIntoView()")
    path = IMAGES / f"dashboard-{picture.name}.png"
    page.screenshot(path=path)
    context.close()
    if path.stat().st_size > BYTES_MAX:
        sys.exit(f"{path} has {path.stat().st_size} bytes; at most {BYTES_MAX}")


def take_report(browser: Browser) -> None:
    """Take the picture of the report that ``fedbourse demo`` writes."""
    with TemporaryDirectory() as folder:
        out = Path(folder, "demo")
        command = [sys.executable, "-m", "fedbourse", "demo", "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        page = browser.new_page(viewport={"width": 1100, "height": 760}, color_scheme="light")
        page.goto((out / "report.html").as_uri())
        page.screenshot(path=IMAGES / "report.png")
        page.close()


def main() -> None:
    """Take those that are named, or all; ``trade`` is the report of ``fedbourse demo``."""
    named = sys.argv[1:]
    wanted = [each for each in PICTURES if each.name in named or not named]
    with chromium() as browser:
        if "trade" in named or not named:
            take_report(browser)
        if wanted:
            with demo_market() as demo:
                for picture in wanted:
                    take(browser, picture, demo)


if __name__ == "__main__":
    main()
