"""Many connections of one address wait behind each other, and nobody else behind them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import anyio
import httpx2
import pytest

from fedbourse.market.views import View
from fedbourse.storage import SqlStore
from fedbourse.web.fair_share import FairShare
from web.fixtures import World
from web.servers import served

AT_ONCE = 2


class Slow:
    """An application that answers when the test says so, and then goes on sending."""

    def __init__(self):
        self.working, self.answer, self.end = [], anyio.Event(), anyio.Event()

    async def __call__(self, scope, receive, send):
        self.working.append(scope["client"][0])
        await self.answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.end.wait()
        await send({"type": "http.response.body", "body": b""})


def scope(client, path="/"):
    return {"type": "http", "path": path, "client": (client, 5)}


async def nothing(*_message):
    """Neither send nor receive."""


async def settled():
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


def test_an_address_has_so_many_requests_worked_on_at_once_and_others_are_not_held_up():
    async def run():
        slow = Slow()
        app = FairShare(slow, AT_ONCE)
        async with anyio.create_task_group() as requests:
            for client in ["192.0.2.1"] * 5 + ["192.0.2.2"]:
                requests.start_soon(app, scope(client), nothing, nothing)
            await settled()
            assert slow.working == ["192.0.2.1"] * AT_ONCE + ["192.0.2.2"]
            slow.answer.set()
            await settled()  # an answer that is still being sent keeps nobody waiting
            assert sorted(slow.working) == ["192.0.2.1"] * 5 + ["192.0.2.2"]
            slow.end.set()
        assert len(app) == 0

    anyio.run(run)


def test_a_request_that_fails_or_is_given_up_leaves_its_place():
    async def failing(scope, receive, send):
        raise ZeroDivisionError

    async def run():
        app = FairShare(failing, 1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await app(scope("192.0.2.1"), nothing, nothing)
        slow = Slow()
        app = FairShare(slow, 1)
        async with anyio.create_task_group() as requests:
            for _ in range(3):
                requests.start_soon(app, scope("192.0.2.1"), nothing, nothing)
            await settled()
            requests.cancel_scope.cancel()
        assert (len(app), slow.working) == (0, ["192.0.2.1"])

    anyio.run(run)


def test_monitors_and_other_addresses_are_answered_while_one_address_asks_for_too_much(
    tmp_path, monkeypatch
):
    go_on, working = threading.Event(), threading.Semaphore(0)

    def slow(*_args, **_options):
        working.release()
        assert go_on.wait(60)
        return {"tasks": [], "next": None}

    monkeypatch.setattr(View, "tasks", slow)
    with SqlStore(f"sqlite:///{tmp_path / 'market.db'}", connections=60) as store:
        world = World(store)
        at_once = world.app.state.service.settings.peer_at_once
        with served(world.app) as url, ThreadPoolExecutor(20) as clients, ExitStack() as opened:
            opened.callback(go_on.set)
            ask = partial(httpx2.get, trust_env=False, timeout=60)
            asked = [clients.submit(ask, f"{url}/v1/tasks") for _ in range(20)]
            for _ in range(at_once):
                assert working.acquire(timeout=60)
            assert not working.acquire(timeout=0.2)
            assert ask(f"{url}/v1/health").json() == {"status": "ok"}
            away = httpx2.HTTPTransport(local_address="127.0.0.2")
            with httpx2.Client(transport=away, base_url=url, timeout=60) as other:
                assert other.get("/v1/market").status_code == 200
            go_on.set()
            assert {each.result().status_code for each in asked} == {200}
