"""Every route is light or heavy, and whoever has no turn left gets no heavy one."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from fedbourse.dashboard import app as pages
from fedbourse.web import app as api
from fedbourse.web.heavy import HeavyWork
from fedbourse.web.limits import Buckets
from web.fixtures import asked, send

HEAVY = {
    "/tasks/{task}/evidence",
    "/v1/tasks/{task}/evidence",
    "/v1/tasks/{task}/evidence/outlook",
    "/v1/tasks/{task}/what-if",
    "/v1/tasks/{task}/report",
    "/tasks/{task}/report",
    "/tasks/{task}/steps/{step}",
}
"""Those that are heavy whoever asks; searches and old pages of statements are tested below."""
NAMES = {"step": "cancel", "number": "0"}


def addresses():
    for prefix, routers in (("/v1", api.ROUTERS), ("", pages.ROUTERS)):
        for router in routers:
            for route in router.routes:
                if "GET" in route.methods and not route.path.endswith("/stream"):  # type: ignore[attr-defined]
                    yield prefix + route.path  # type: ignore[attr-defined]


@pytest.fixture
def idle(client, town):
    """A market that computes nothing at length for anybody."""
    never = HeavyWork(
        Buckets(per_s=1e-9, burst=0, now_s=time.monotonic), at_once=8, strangers_at_once=4
    )
    town.app.state.service = replace(town.app.state.service, heavy=never)
    return client


@pytest.mark.parametrize("who", ["buyer", "auditor", "operator", "owner's token", "stranger"])
def test_each_route_is_in_the_class_that_it_should_be(idle, town, who):
    person = town.people[who]
    if person.token:
        assert town.sign_in(idle, person).status_code == 303
    statuses = {}
    for address in addresses():
        task = town.completed if address.endswith("report") else town.announced
        path = address.replace("{task}", task.id).replace("{party}", person.party or "fund")
        for name, value in NAMES.items():
            path = path.replace(f"{{{name}}}", value)
        if address.startswith("/v1"):
            query = "rewards=1,2" if address.endswith("what-if") else ""
            request = asked(person, "GET", path, query=query, now_ms=town.trading.time_ms)
            statuses[address] = send(idle, request).status_code
        else:
            statuses[address] = idle.get(path).status_code
    refused = {address for address, status in statuses.items() if status == 429}
    assert refused <= HEAVY
    if who in ("buyer", "operator"):
        assert refused == HEAVY
    assert sum(status == 200 for status in statuses.values()) >= 8


def test_a_search_and_an_old_page_of_a_statement_take_a_turn(idle, town):
    assert idle.get("/").status_code == 200
    assert idle.get("/?text=late").status_code == 429
    town.sign_in(idle, town.buyer)
    assert idle.get("/ledger/buyer:acme").status_code == 200
    assert idle.get("/ledger/buyer:acme?page=21").status_code == 429


def test_a_long_list_takes_a_turn(idle, town):
    assert idle.get("/v1/tasks?limit=100").status_code == 200
    assert idle.get("/v1/tasks?limit=101").status_code == 429
    for limit, status in ((100, 200), (101, 429)):
        path, query = f"/v1/tasks/{town.completed.id}/monitoring", f"limit={limit}"
        assert send(idle, town.request("auditor", "GET", path, query=query)).status_code == status


def test_a_new_card_is_shown_without_its_numbers_where_there_is_no_turn(idle, town):
    town.sign_in(idle, town.buyer)
    shown = idle.get("/buy/new")
    assert shown.status_code == 200
    assert "asks for too much heavy work; wait a second" in shown.text
