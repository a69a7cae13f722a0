"""The clock that runs beside the service: it goes on after errors, and no haste starves it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from unittest import mock

import anyio
import pytest

from fedbourse.bootstrap import market as bootstrap_market
from fedbourse.errors import Unreachable
from fedbourse.market.service import Market
from fedbourse.wire.keys import SigningKey

TASK = "018f0c3e9a5b7d2c4e6f8a1b"
WAIT_S = 60


class Failing:
    """A store that breaks a few times for each thread."""

    def __init__(self, times):
        self.times, self.looks, self.works = times, Counter(), threading.Event()

    def read(self):
        self.looks[threading.current_thread().name] += 1
        if self.looks[threading.current_thread().name] <= self.times:
            raise Unreachable("the database rests")
        if len(self.looks) == 2 and min(self.looks.values()) > self.times:
            self.works.set()
        raise RuntimeError("a bug")

    begin = read


def test_the_clock_goes_on_after_an_error_and_says_each_once(caplog):
    store, alarm = Failing(5), bootstrap_market.Alarm()
    market = Market(SigningKey.generate())
    with (
        caplog.at_level(logging.ERROR, logger="fedbourse.market"),
        bootstrap_market.running_clock(market, store, None, alarm=alarm),
    ):
        assert store.works.wait(WAIT_S)
    said = [record.getMessage() for record in caplog.records]
    assert said.count("deadlines: the database rests") == 1
    assert said.count("payouts: the database rests") == 1
    assert "payouts: a bug" in said
    assert "deadlines: a bug" in said or "purge: a bug" in said


@pytest.mark.parametrize("at_once", [1, 1000])
def test_deadlines_are_looked_at_however_many_tasks_are_named(monkeypatch, at_once):
    """One look takes longer than the next name, or a thousand names take longer than a tick."""
    all_looks, alarm = threading.Semaphore(0), bootstrap_market.Alarm()
    names = [f"{number:024x}" for number in range(at_once)]

    def one(market, store, task):
        for name in names:
            alarm.ring(name)
        time.sleep(0.05 if names else 0)
        return False

    monkeypatch.setattr(bootstrap_market.clock, "advance", lambda *_: all_looks.release() or 0)
    monkeypatch.setattr(bootstrap_market.clock, "advance_one", one)
    alarm.ring(names[0])
    with bootstrap_market.running_clock(None, Failing(10**9), None, alarm=alarm):
        try:
            assert all(all_looks.acquire(timeout=5) for _ in range(4))
        finally:
            names.clear()


@pytest.mark.parametrize(
    ("method", "status", "rung", "changed"),
    [
        ("PUT", 200, [TASK], 0),
        ("POST", 201, [TASK], 1),
        ("POST", 404, [], 0),
        ("PUT", 422, [], 0),
        ("POST", 429, [], 0),
        ("POST", 503, [], 0),
        ("GET", 200, [], 0),
    ],
)
def test_only_a_write_that_succeeded_wakes_the_clock(method, status, rung, changed):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        pass

    alarm, told = mock.Mock(), mock.Mock()
    wakes = bootstrap_market.WakesClock(app, alarm, told)
    scope = {"type": "http", "method": method, "path": f"/v1/tasks/{TASK}/plan"}
    anyio.run(wakes, scope, None, send)
    assert [call.args[0] for call in alarm.ring.call_args_list] == rung
    assert told.call_count == changed
