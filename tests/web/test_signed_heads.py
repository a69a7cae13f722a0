"""Signed heads over the service: right, public, and signed once however many ask."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedbourse.encoding.canonical import canonical
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.protocol.keys import SigningKey, verified
from fedbourse.storage import SqlStore
from fedbourse.testing.trading import BUYER, Trading
from fedbourse.web.app import create_app
from web.clients import TestClient
from web.fixtures import UNHURRIED, Bank


class CountingKey(SigningKey):
    """A key that says how often it signed."""

    signatures = 0

    def sign(self, message: bytes) -> str:
        type(self).signatures += 1
        return super().sign(message)


@pytest.fixture
def trading(tmp_path):
    with SqlStore(f"sqlite:///{tmp_path / 'market.db'}") as store:
        found = Trading(store)
        found.market = replace(found.market, key=CountingKey(SigningKey.generate().private))
        found.fund(10**9)
        yield found


@pytest.fixture
def client(trading):
    app = create_app(trading.market, trading.store, Bank(), UNHURRIED)
    with TestClient(app) as found:
        yield found


def shown(client, path):
    head = client.get(path).json()
    message = head["head"]
    assert verified(head["public_key"], canonical(message), head["signature"])
    assert message["kind"] == "log head"
    return message


def test_strangers_make_a_market_sign_a_head_once_a_second_or_when_it_grew(client, trading) -> None:
    task = trading.opened()
    paths = ("/v1/log/head", f"/v1/tasks/{task.id}/head")
    CountingKey.signatures = 0
    for _ in range(5):
        first = [shown(client, path) for path in paths]
    assert CountingKey.signatures == 2
    assert [(head["of"], head["length"]) for head in first] == [("market", 1), (task.id, 2)]
    assert first[1]["hash"] == trading.task(task.id).last_hash
    trading.do(buyer_commands.cancel, BUYER, task.id, reason="")
    assert shown(client, paths[1])["length"] == 3  # at once: a log never seems shorter than it is
    assert shown(client, paths[0]) == first[0]
    assert CountingKey.signatures == 4  # the state of the task that is cancelled is signed as well
    trading.time_ms += 1000
    later = shown(client, paths[0])
    assert later == first[0] | {"at_ms": trading.time_ms}
    assert CountingKey.signatures == 5


def test_the_list_of_openings_comes_page_by_page(client, trading) -> None:
    tasks = [trading.opened().id for _ in range(3)]
    trading.do(
        buyer_commands.create, BUYER, trading.task(tasks[0]).card
    )  # a draft is nobody's business
    whole = client.get("/v1/log").json()
    assert [event["task"] for event in whole["events"]] == tasks
    assert whole["next"] is None
    first = client.get("/v1/log?limit=2").json()
    rest = client.get(f"/v1/log?limit=2&after={first['next']}").json()
    assert first["events"] + rest["events"] == whole["events"]
