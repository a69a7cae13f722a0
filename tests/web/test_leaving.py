"""Withdrawing over the API: with a token or a device, once, and nobody else hears of it."""

from __future__ import annotations

import pytest

from web.clients import TestClient
from web.fixtures import Person, send, whole_world


@pytest.fixture
def world(kind, request):
    with (
        whole_world(kind, request) as made,
        TestClient(made.app, raise_server_exceptions=False) as client,
    ):
        made.client = client
        yield made


def ask(world, person, method, path, **options):
    return send(world.client, world.request(person, method, path, **options))


@pytest.mark.slow
@pytest.mark.parametrize("state", ["open", "announced"])
@pytest.mark.parametrize("proof", ["token", "device"])
def test_an_owner_withdraws_once_however_often_it_asks(world, state, proof):
    task, owner = getattr(world, state), world.owners[1]
    device = Person(owner.name, key=owner.key)
    person = device if proof == "device" else world.holder(owner.name, "owner")
    path = f"/v1/tasks/{task.id}/interest"
    first = ask(world, person, "DELETE", path, key="withdraw-1")
    assert first.status_code == 200
    assert first.json() == {
        "task": task.id,
        "owner": owner.name,
        "tick": 0,
        "reason": "left",
        "at_ms": world.trading.time_ms,
    }
    world.trading.time_ms += 1000
    for key in ("withdraw-1", "withdraw-2"):
        again = ask(world, person, "DELETE", path, key=key)
        assert (again.status_code, again.content) == (200, first.content)
    said = {"value": None, "previous": task.card.digest}
    if state == "announced":
        path = path.replace("interest", "plan")
        said = {"tick": task.tick, "budget": 0.5, "previous": task.offer}
    refused = ask(world, device, "PUT", path, body=said)
    assert (refused.status_code, refused.json()["code"]) == (409, "LeftTask")
    assert "you have left this task" in refused.json()["detail"]


def test_it_shows_to_the_owner_and_in_the_count_and_nowhere_else(world):
    task, owner = world.open, world.owners[1]
    before = ask(world, "stranger", "GET", f"/v1/tasks/{task.id}").json()
    person = world.holder(owner.name, "owner")
    ask(world, person, "DELETE", f"/v1/tasks/{task.id}/interest")
    after = ask(world, "stranger", "GET", f"/v1/tasks/{task.id}").json()
    assert (before.pop("interested"), after.pop("interested")) == (2, 1)
    assert after == before
    participation = ask(world, person, "GET", f"/v1/tasks/{task.id}/participation").json()
    assert (participation["exit"]["reason"], participation["exit"]["at_ms"]) == (
        "left",
        world.trading.time_ms,
    )
    assert participation["interest"] is None
    other = world.holder(world.owners[2].name, "owner")
    assert ask(world, other, "GET", f"/v1/tasks/{task.id}/participation").json()["exit"] is None
    for name in ("stranger", "buyer", "another owner"):
        for part in ("", "/events", "/report", "/participation"):
            assert owner.name not in ask(world, name, "GET", f"/v1/tasks/{task.id}{part}").text


def test_what_is_settled_is_not_left(world):
    for task in (world.settled, world.training, world.completed):
        answer = ask(world, "owner's device", "DELETE", f"/v1/tasks/{task.id}/interest")
        assert answer.status_code == 409
        assert "leave needs a task that is open or announced" in answer.json()["detail"]
