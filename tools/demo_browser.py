"""A demonstration market and a browser that looks at it: for pictures, and for measuring pages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.demos.market_scenes import FINISHED, TRAINING, WAITING
from fedbourse.protocol.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext

WITHIN_S = 180.0
_STATES = {"finished": (FINISHED, "completed"), "training": (TRAINING, "training")}
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@dataclass(frozen=True)
class Demo:
    """A demonstration that has a task in each of three states."""

    url: str
    tokens: dict[str, str]
    records: str
    tasks: dict[str, str]
    """Ids: finished, training, waiting."""

    def path(self, template: str) -> str:
        """Return a path with the ids of tasks in their places."""
        return template.format(**self.tasks)


@contextmanager
def demo_market() -> Iterator[Demo]:
    """Serve a demonstration in a folder of its own until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fedbourse", "serve", "--demo", "--folder"]
        with subprocess.Popen(
            [*command, f"{folder}/market-demo", "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                ready = json.loads(process.stdout.readline())
                tasks = _filled(ready["url"], ready["tokens"]["auditor"])
                yield Demo(ready["url"], ready["tokens"], ready["records"], tasks)
            finally:
                process.terminate()
                process.wait(timeout=30)


def _filled(url: str, token: str) -> dict[str, str]:
    """Return the tasks by their kind, once each is where it should be."""
    end = time.monotonic() + WITHIN_S
    with Connection(url, token=token) as line:
        while time.monotonic() < end:
            found: dict[str, str] = {}
            for task in line.get("/v1/tasks")["tasks"]:
                for kind, (scene, state) in _STATES.items():
                    if (task["goal"], task["state"]) == (scene.card.goal, state):
                        found[kind] = task["task"]
                if task["goal"] == WAITING.card.goal:
                    found["waiting"] = task["task"]
            if len(found) == 3:
                return found
            time.sleep(0.3)
    sys.exit(f"the demonstration was not filled within {WITHIN_S:.0f} s")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start this machine's Chromium."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        sys.exit("chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def visitor(browser: Browser, demo: Demo, who: str | None, **options: Any) -> BrowserContext:
    """Return a browser's window without a past, in which somebody has signed in."""
    context = browser.new_context(
        base_url=demo.url, locale="en-GB", timezone_id="UTC", reduced_motion="reduce", **options
    )
    if who is not None:
        form = {"token": demo.tokens[who], "next": "/"}
        answer = context.request.post(
            "/sign-in", form=form, headers={"Origin": demo.url}, max_redirects=0
        )
        if answer.status != 303:
            sys.exit(f"{who} could not sign in: {answer.status}")
    return context
