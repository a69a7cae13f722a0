"""A market with pages, people who sign in, and a real browser that is watched.

``town`` is a market with a task in every state, ``client`` reads it without a browser, ``address``
is where it is served. ``visitor("phone", dark=True)`` opens a browser page that fails the test on
any error in its console, any request to elsewhere, and any page without its policy.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dashboard.fixtures import Town
from fedbourse.dashboard.pages import POLICY
from fedbourse.storage import SqlStore
from fedbourse.testing.databases import fresh_url
from web.clients import TestClient
from web.fixtures import whole_world
from web.servers import served

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build/screenshots"
AXE = ROOT / "node_modules/axe-core/axe.min.js"
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"phone": {"width": 360, "height": 780}, "desktop": {"width": 1280, "height": 900}}


@pytest.fixture
def town(request):
    """A market of the test's own, on SQLite; with a task in every state if it uses ``whole``."""
    if "whole" in request.fixturenames:
        with whole_world("sqlite", request, of=Town) as made:
            yield made
    else:
        with fresh_url("sqlite", request) as url, SqlStore(url) as store:
            yield Town(store)


@pytest.fixture
def whole(town):
    """Let the market of the test have a task in every state."""
    return town


@pytest.fixture
def client(town):
    """A browser without a screen: keeps cookies, follows nothing by itself."""
    with TestClient(town.app, base_url="http://testserver", follow_redirects=False) as asked:
        yield asked


@pytest.fixture
def address(town):
    """Where the market of the test is served."""
    with served(town.app) as url:
        yield url


class _Loop:
    """Playwright's event loop, which would otherwise seem to run in every later test.

    Its calls are synchronous by leaving a loop that runs half way; other tests of the same worker
    start loops of their own.
    """

    def __init__(self):
        self._running = None

    def enter(self):
        if self._running is not None:
            asyncio._set_running_loop(self._running)

    def leave(self):
        self._running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def _chromium():
    """One browser for each worker."""
    from playwright.sync_api import sync_playwright

    loop = _Loop()
    playwright = sync_playwright().start()
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    loop.leave()
    yield browser, loop
    loop.enter()
    browser.close()
    playwright.stop()


@pytest.fixture
def browser(_chromium):
    """The browser, ready for the length of a test."""
    found, loop = _chromium
    loop.enter()
    yield found
    loop.leave()


class Watch:
    """What went wrong on a page, as it happens."""

    def __init__(self, page, address):
        self.wrong: list[str] = []
        self.expected: list[str] = []
        self._here = urlsplit(address).netloc
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        page.on("request", self._request)
        page.on("response", self._response)

    def expect(self, pattern):
        """Let one kind of message pass, such as the console's own on an answer of 403."""
        self.expected.append(pattern)

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _request(self, request):
        url = urlsplit(request.url)
        if url.scheme in ("http", "https", "ws", "wss") and url.netloc != self._here:
            self.wrong.append(f"outside: {request.url}")

    def _response(self, response):
        url = urlsplit(response.url)
        api = url.path.startswith(("/v1/", "/static/"))
        policy = response.headers.get("content-security-policy")
        if url.netloc == self._here and not api and policy != POLICY:
            self.wrong.append(f"policy of {response.url}: {policy}")

    def check(self):
        left = [w for w in self.wrong if not any(re.search(e, w) for e in self.expected)]
        assert not left, left


@pytest.fixture
def visitor(browser, address):
    """Open a watched page: ``visitor("phone", dark=True, who=person)``, with ``page.watch``."""
    contexts, watches = [], []

    def opened(size="desktop", *, dark=False, who=None, **options):
        context = browser.new_context(
            base_url=address,
            viewport=SIZES[size],
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.watch = Watch(page, address)
        watches.append(page.watch)
        if who is not None:
            sign_in(page, who)
        return page

    yield opened
    for context in contexts:
        context.close()
    for watch in watches:
        watch.check()


def sign_in(page, person, *, then="/"):
    """Sign somebody in as a person does."""
    page.goto(f"/sign-in?next={then}")
    page.get_by_label("Token").fill(person.token)
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    page.get_by_text(person.party).first.wait_for()


@pytest.fixture
def axe():
    """Check a page for barriers: ``axe(page)`` fails on any that is serious.

    ``axe(page, "color-contrast")`` looks at one rule alone.
    """

    def check(page, *rules):
        if not page.evaluate("typeof axe == 'object'"):
            # Not through the page, whose policy forbids what is not its own.
            page.evaluate(AXE.read_text(encoding="utf-8"))
        options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
        found = page.evaluate("options => axe.run(document, options)", options)
        serious = [
            f"{each['id']}: {each['help']} at {[node['target'] for node in each['nodes']][:3]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert not serious, serious

    return check


@pytest.fixture
def looked_at(visitor, axe, pytestconfig):
    """Look at a page at every size, light and dark: no barrier, nothing wider than the screen.

    With ``--pictures`` ``looked_at("/", "market", who=person)`` leaves some in build/screenshots.
    """
    pictures = pytestconfig.getoption("pictures")

    def check(path, name, *, who=None, ready=lambda page: None, expect=()):
        page = visitor(who=who)
        for pattern in expect:
            page.watch.expect(pattern)
        for size, viewport in SIZES.items():
            page.set_viewport_size(viewport)
            page.emulate_media(color_scheme="light")
            page.goto(path)
            ready(page)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} px too wide on a {size}"
            # Of all that is looked at, only contrast depends on the colours.
            for scheme, rules in (("light", ()), ("dark", ("color-contrast",))):
                page.emulate_media(color_scheme=scheme)
                axe(page, *rules)
                if pictures:
                    path_of = SCREENSHOTS / f"{name}-{size}-{scheme}.png"
                    page.screenshot(path=path_of, full_page=True)

    return check
