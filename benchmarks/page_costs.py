"""What each page and each GET of the API costs the processor, in a market that is full.

Prints a section in Markdown; `make benchmarks` keeps it in docs/performance-dashboard.md. Requests
go to the application in this process, without a network. Ends with status 1 where a light one takes
more of the processor than ``web.heavy`` allows.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fastapi.routing import APIRoute

from equilibrium import row
from fedbourse.dashboard import app as pages
from fedbourse.market.records import State
from fedbourse.market.service import FUND, Market, escrow
from fedbourse.protocol.keys import SigningKey
from fedbourse.storage import SqlStore
from fedbourse.web import app as api
from fedbourse.web.heavy import HeavyWork
from fedbourse.web.limits import Buckets
from fedbourse.web.settings import Settings
from page_costs_market import Sizes, filled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from page_costs_market import Filled

LIGHT_MS_MAX = 50.0
STRANGER = "stranger"
FREE = Settings(
    peer_per_s=1e9, peer_burst=10**9, caller_per_s=1e9, caller_burst=10**9, wait_max_s=0.01
)
QUERIES: dict[str, tuple[object, ...]] = {
    "limit": (1000,),
    "page": (2, 20, 21),
    "sort": ("reward", "deadline"),
    "state": tuple(State),
    "text": ("late",),
    "challenge": ("0" * 32,),
    "owners": (10**5,),
    "rewards": (",".join(map(str, range(1, 101))),),
}
"""What is asked for besides the plain page: one of these at a time, or several where needed."""
NEEDED = ("rewards",)
INTRODUCTION = """
## What each request costs the processor

Written by `benchmarks/page_costs.py`. Every page and every GET of the API, in a market on SQLite
with {tasks:,} tasks, one of them completed after {rounds:,} rounds, a task of {owners:,} owners in
each state from open to completed, and an owner who was paid {transfers:,} times. Each is asked for
by everybody who may, about every one of these tasks, with the parameters that make it long; a row
is the worst of them. CPU is that of the whole process, the median of {runs} after a first request.
A *light* request takes no turn (`fedbourse.web.heavy`) and may take {most:g} ms; what is *heavy at
first* is kept for whoever asks next.
"""


class Turns(HeavyWork):
    """Turns that are counted, and always free."""

    taken = 0

    @contextmanager
    def turn(self, key: str, *, authenticated: bool) -> Iterator[None]:
        self.taken += 1
        yield


@dataclass(frozen=True)
class Cost:
    """What one request took."""

    status: int
    cpu_ms: float
    turns: int


@dataclass(frozen=True)
class Row:
    """The worst of the requests for one route by one caller, of one class."""

    route: str
    who: str
    asked: str
    cpu_ms: float
    kind: str

    @property
    def too_long(self) -> bool:
        return self.kind == "light" and self.cpu_ms > LIGHT_MS_MAX


class Desk:
    """The application, and those who ask it."""

    def __init__(self, store: SqlStore, market: Filled) -> None:
        self.turns = Turns(
            Buckets(per_s=1, burst=1, now_s=time.monotonic), at_once=1, strangers_at_once=1
        )
        key = SigningKey.generate()
        behind = Market(key, now_ms=lambda: market.now_ms)
        self.app: FastAPI = api.create_app(behind, store, None, FREE)
        pages.add_dashboard(self.app)
        self.app.state.service = replace(self.app.state.service, heavy=self.turns)
        self._runner = asyncio.Runner()
        self._headers: dict[tuple[str, bool], list[tuple[bytes, bytes]]] = {
            (STRANGER, True): [],
            (STRANGER, False): [],
        }
        for who, token in market.tokens.items():
            self._headers[who, True] = [(b"authorization", f"Bearer {token}".encode())]
            self._headers[who, False] = [(b"cookie", self._cookie(token))]

    def _cookie(self, token: str) -> bytes:
        """Sign somebody in, as the form does."""
        form = (b"content-type", b"application/x-www-form-urlencoded")
        body = urlencode({"token": token}).encode()
        headers = [form, (b"origin", b"http://market"), (b"content-length", b"%d" % len(body))]
        answer = self._ask("POST", "/sign-in", "", headers, body)
        cookies = [value for name, value in answer["headers"] if name == b"set-cookie"]
        return cookies[0].partition(b";")[0]

    def cost(self, who: str, path: str, query: str) -> Cost:
        """Ask once."""
        headers = self._headers[who, path.startswith("/v1")]
        turns, start_s = self.turns.taken, time.process_time()
        answer = self._ask("GET", path, query, headers)
        cpu_ms = 1000 * (time.process_time() - start_s)
        return Cost(answer["status"], cpu_ms, self.turns.taken - turns)

    def _ask(self, method, path, query, headers, body=b""):  # type: ignore[no-untyped-def]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", b"market"), *headers],
            "client": ("127.0.0.1", 1),
            "server": ("market", 80),
        }
        answers = []
        messages = [{"type": "http.request", "body": body}]

        async def receive():  # type: ignore[no-untyped-def]
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message):  # type: ignore[no-untyped-def]
            answers.append(message)

        self._runner.run(self.app(scope, receive, send))
        return answers[0]


def routes() -> Iterator[tuple[str, APIRoute]]:
    """Return the address and the route of every GET, streams left aside: they never end."""
    for prefix, routers in (("/v1", api.ROUTERS), ("", pages.ROUTERS)):
        for router in routers:
            for route in router.routes:
                assert isinstance(route, APIRoute)
                if "GET" in route.methods and not route.path.endswith("/stream"):
                    yield prefix + route.path, route


def paths(address: str, market: Filled) -> Iterator[tuple[str, str]]:
    """Return all that a route is asked about, in words and as a path."""
    places: dict[str, dict[str, str]] = {
        "{task}": dict(market.tasks),
        "{party}": {
            **market.parties,
            "fund": FUND,
            "outside": "outside",
            "escrow": escrow(market.tasks["completed"]),
        },
        "{number}": {"": "0"},
        "{step}": {step: step for step in ("open", "announce", "train", "cancel")},
    }
    named = {name: each for name, each in places.items() if name in address}
    for chosen in product(*(each.items() for each in named.values())):
        path = address
        for name, (_, value) in zip(named, chosen, strict=True):
            path = path.replace(name, value)
        yield " ".join(words for words, _ in chosen if words), path


def queries(route: APIRoute) -> Iterator[str]:
    """Return the parameters that a route is asked with."""
    known = [each.alias for each in route.dependant.query_params]
    needed = {name: QUERIES[name][0] for name in known if name in NEEDED}
    yield urlencode(needed)
    for name in known:
        if name not in NEEDED:
            for value in QUERIES.get(name, ()):
                yield urlencode(needed | {name: value})


def measured(desk: Desk, who: str, path: str, query: str, runs: int) -> tuple[float, str] | None:
    """Return what a request costs and its class; None where it is not allowed, or not now."""
    first = desk.cost(who, path, query)
    if first.status != 200:
        return None
    again = [desk.cost(who, path, query) for _ in range(1 if first.turns else runs)]
    if any(each.turns for each in again):
        return median(each.cpu_ms for each in again), "heavy"
    kind = "heavy at first" if first.turns else "light"
    return median(each.cpu_ms for each in again), kind


def table(desk: Desk, market: Filled, runs: int) -> Iterator[Row]:
    """Return the rows, route by route."""
    for address, route in routes():
        for who in (STRANGER, *market.parties):
            worst: dict[str, Row] = {}
            for (words, path), query in product(paths(address, market), list(queries(route))):
                cost = measured(desk, who, path, query, runs)
                if cost is None:
                    continue
                asked = " ".join(
                    each for each in (words, f"`{query:.30}`" if query else "") if each
                )
                found = Row(address, who, asked, *cost)
                if found.kind not in worst or found.cpu_ms > worst[found.kind].cpu_ms:
                    worst[found.kind] = found
            yield from worst.values()


def main() -> None:
    """Measure, and print the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10**4)
    parser.add_argument("--owners", type=int, default=10**5)
    parser.add_argument("--transfers", type=int, default=5 * 10**5)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    sizes = Sizes(options.tasks, options.rounds, options.owners, options.transfers)
    print(INTRODUCTION.format(**vars(sizes), runs=options.runs, most=LIGHT_MS_MAX))
    row("route", "who", "of", "CPU, ms", "class")
    row("---", "---", "---", "---:", "---")
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build") as folder:
        url = f"sqlite:///{Path(folder).absolute() / 'market.db'}"
        with SqlStore(url) as store:
            market = filled(store, sizes)
            desk = Desk(store, market)
            too_long = 0
            for found in table(desk, market, options.runs):
                too_long += found.too_long
                number = f"{found.cpu_ms:.1f}"
                number = f"**{number}**" if found.too_long else number
                row(f"`{found.route}`", found.who, found.asked, number, found.kind)
    print(f"\nThe bound of {LIGHT_MS_MAX:g} ms is {'missed' if too_long else 'met'}.")
    sys.exit(1 if too_long else 0)


if __name__ == "__main__":
    main()
