"""The scheduler beside the service: it goes on after errors, and nobody starves it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

import pytest

from fedbourse.app import scheduler
from fedbourse.errors import Unreachable
from fedbourse.market.commands import scheduler as market_scheduler
from fedbourse.market.service import Market
from fedbourse.protocol.keys import SigningKey

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


def test_the_scheduler_goes_on_after_an_error_and_logs_each_once(caplog):
    store, wake_up = Failing(5), scheduler.WakeUp()
    market = Market(SigningKey.generate())
    with (
        caplog.at_level(logging.ERROR, logger="fedbourse.market"),
        scheduler.running_scheduler(market, store, None, wake_up=wake_up),
    ):
        assert store.works.wait(WAIT_S)
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("deadlines: the database rests") == 1
    assert messages.count("payouts: the database rests") == 1
    assert "payouts: a bug" in messages
    assert "deadlines: a bug" in messages or "purge: a bug" in messages


@pytest.mark.parametrize("at_once", [1, 1000])
def test_deadlines_are_looked_at_however_many_tasks_are_named(monkeypatch, at_once):
    """One look takes longer than the next name, or a thousand names take longer than a tick."""
    all_looks, wake_up = threading.Semaphore(0), scheduler.WakeUp()
    names = [f"{number:024x}" for number in range(at_once)]

    def one(market, store, task):
        for name in names:
            wake_up.wake(name)
        time.sleep(0.05 if names else 0)
        return False

    monkeypatch.setattr(market_scheduler, "advance", lambda *_: all_looks.release() or 0)
    monkeypatch.setattr(market_scheduler, "advance_one", one)
    wake_up.wake(names[0])
    with scheduler.running_scheduler(None, Failing(10**9), None, wake_up=wake_up):
        try:
            assert all(all_looks.acquire(timeout=5) for _ in range(4))
        finally:
            names.clear()
