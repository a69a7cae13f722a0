"""What is computed at length is bounded: for each caller, for strangers, and for all."""

from __future__ import annotations

import ast
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx2
import pytest

import fedbourse
from fedbourse.errors import TooManyRequests, Unreachable
from fedbourse.market.views import View
from fedbourse.storage import SqlStore
from fedbourse.web.app import create_app
from fedbourse.web.heavy import HeavyWork
from fedbourse.web.limits import Buckets
from web.fixtures import UNHURRIED, World
from web.servers import served

_THREADS = 40
"""As many as requests have: the bound of anyio, which FastAPI leaves as it is."""
SOURCE = Path(fedbourse.__file__).parent


def work(per_s=1e9, burst=10**9):
    buckets = Buckets(per_s=per_s, burst=burst, now_s=time.monotonic)
    return HeavyWork(buckets, at_once=3, strangers_at_once=1)


def test_one_caller_has_one_thing_computed_at_a_time():
    heavy = work()
    with heavy.turn("buyer:acme", authenticated=True):
        with pytest.raises(TooManyRequests, match="buyer:acme has heavy work under way already"):
            heavy.turn("buyer:acme", authenticated=True).__enter__()
        with heavy.turn("buyer:other", authenticated=True):
            pass
    with heavy.turn("buyer:acme", authenticated=True):
        pass


def test_a_turn_that_fails_is_over():
    heavy = work()
    with pytest.raises(ZeroDivisionError), heavy.turn("buyer:acme", authenticated=True):
        raise ZeroDivisionError
    with heavy.turn("buyer:acme", authenticated=True):
        pass


def test_strangers_leave_turns_to_those_who_are_known():
    heavy = work()
    with ExitStack() as turns:
        turns.enter_context(heavy.turn("192.0.2.1", authenticated=False))
        with pytest.raises(Unreachable, match="computes as much as it can"):
            heavy.turn("192.0.2.2", authenticated=False).__enter__()
        for name in ("buyer:a", "buyer:b"):
            turns.enter_context(heavy.turn(name, authenticated=True))
        with pytest.raises(Unreachable, match="computes as much as it can"):
            heavy.turn("buyer:c", authenticated=True).__enter__()


def test_nobody_has_much_computed_in_a_short_time():
    heavy = work(per_s=1e-3, burst=2)
    for _ in range(2):
        with heavy.turn("buyer:acme", authenticated=True):
            pass
    with pytest.raises(TooManyRequests, match="too much heavy work; wait a second"):
        heavy.turn("buyer:acme", authenticated=True).__enter__()


def test_health_is_answered_while_every_thread_of_requests_is_taken(tmp_path, monkeypatch):
    go_on, waiting = threading.Event(), threading.Semaphore(0)

    def slow(*_args, **_options):
        waiting.release()
        assert go_on.wait(60)
        return {"tasks": [], "next": None}

    monkeypatch.setattr(View, "tasks", slow)
    with SqlStore(f"sqlite:///{tmp_path / 'market.db'}", connections=60) as store:
        world = World(store)
        settings = replace(UNHURRIED, peer_at_once=_THREADS + 5)
        app = create_app(world.market, store, world.bank, settings)
        with served(app) as url, ThreadPoolExecutor(_THREADS + 5) as clients:
            ask = partial(httpx2.get, trust_env=False, timeout=60)
            asked = [clients.submit(ask, f"{url}/v1/tasks") for _ in range(_THREADS + 5)]
            try:
                for _ in range(_THREADS):
                    assert waiting.acquire(timeout=60)
                assert ask(f"{url}/v1/health").json() == {"status": "ok"}
            finally:
                go_on.set()
            assert {each.result().status_code for each in asked} == {200}


AUTHENTICATES = {"session.py", "sign_in.py", "visits.py"}
READERS = [
    *(path for path in (SOURCE / "dashboard").glob("*.py") if path.name not in AUTHENTICATES),
    *(SOURCE / "web").glob("*_routes.py"),
]


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.name)
def test_pages_and_routes_ask_views_and_hand_transactions_on(path):
    """A transaction is for commands: nothing reads out of it but a view."""
    read = [
        f"{path.name}:{node.lineno} unit.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "unit"
    ]
    assert not read
