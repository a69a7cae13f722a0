"""The scheduler beside the service: it acts on deadlines, and hands pay-outs over.

Commands of the market wake it (``Market.on_due``) for the tasks that they may have made due.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from fedbourse.errors import FedbourseError
from fedbourse.market.commands import payouts, scheduler
from fedbourse.market.ports import Payments, Store
from fedbourse.market.service import Market

_TICK_S = 0.25
"""How often all deadlines are checked, however many tasks wake the scheduler."""
_PURGE_S = 600.0
"""How often expired nonces, sessions and responses are deleted."""
_LOG = logging.getLogger("fedbourse.market")


class WakeUp:
    """Wakes the scheduler for tasks that may be due."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._tasks: set[str] = set()
        self._woken = False

    def wake(self, *tasks: str) -> None:
        """Wake the scheduler, to check these tasks at once."""
        with self._condition:
            self._tasks.update(tasks)
            self._woken = True
            self._condition.notify()

    def wait(self, timeout_s: float) -> set[str]:
        """Return the tasks to check, as soon as there is a call of ``wake`` or time is up."""
        with self._condition:
            self._condition.wait_for(lambda: self._woken, timeout_s)
            tasks, self._tasks, self._woken = self._tasks, set(), False
            return tasks


@contextmanager
def running_scheduler(
    market: Market, store: Store, payments: Payments, *, wake_up: WakeUp
) -> Iterator[None]:
    """Run the scheduler while the block runs.

    Several processes may do so at once: each thing is done by one of them.
    """
    stop = threading.Event()
    # Pay-outs have a thread of their own, since a bank may be slow.
    threads = [
        threading.Thread(target=_act, args=(market, store, wake_up, stop), name="scheduler"),
        threading.Thread(target=_pay_out, args=(market, store, payments, stop), name="payouts"),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        wake_up.wake()
        for thread in threads:
            thread.join()


class _Attempts:
    """Tries things again and again, and logs each error once until it changes."""

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}

    def attempt(self, name: str, work: Callable[[], object]) -> bool:
        """Return whether something worked."""
        try:
            work()
        except Exception as error:
            if self._errors.get(name) != str(error):
                expected = isinstance(error, FedbourseError)
                _LOG.error("%s: %s", name, error, exc_info=None if expected else error)
            self._errors[name] = str(error)
            return False
        self._errors.pop(name, None)
        return True


def _act(market: Market, store: Store, wake_up: WakeUp, stop: threading.Event) -> None:
    """Act on deadlines, at every tick and for each task that wakes the scheduler."""

    def purge() -> None:
        with store.begin() as tx:
            tx.purge(now_ms=market.now_ms())

    def advance_each(tasks: Iterable[str], until_s: float) -> None:
        """Check tasks one by one; the next tick checks those that time does not suffice for."""
        for task in tasks:
            if time.monotonic() < until_s:
                scheduler.advance_one(market, store, task)

    attempts, purged_s = _Attempts(), -math.inf
    while not stop.is_set():
        attempts.attempt("deadlines", partial(scheduler.advance, market, store))
        if time.monotonic() - purged_s >= _PURGE_S and attempts.attempt("purge", purge):
            purged_s = time.monotonic()
        until_s = time.monotonic() + _TICK_S
        while not stop.is_set() and (left_s := until_s - time.monotonic()) > 0:
            if tasks := wake_up.wait(left_s):
                attempts.attempt("deadlines", partial(advance_each, tasks, until_s))


def _pay_out(market: Market, store: Store, payments: Payments, stop: threading.Event) -> None:
    """Go through the queue of pay-outs."""
    interrupted = True  # an earlier process may have been killed

    def hand_over() -> None:
        nonlocal interrupted
        if interrupted:
            payouts.take_up(market, store)
        interrupted = True
        result = payouts.hand_over(market, store, payments)
        interrupted = False
        if result.failure is not None:
            raise result.failure

    attempts = _Attempts()
    while not stop.is_set():
        attempts.attempt("payouts", hand_over)
        stop.wait(_TICK_S)
