"""The wiring of the market's service: one folder, one database, one port.

The folder holds the market's key (``market.key``), the operator's first token
(``operator.token``), payments (``payments/``), and by default the database (``market.db``).
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from fedbourse.bootstrap.alarm import Alarm, WakesClock
from fedbourse.bootstrap.machine import (
    MarketSettings,
    check_kind,
    check_tls,
    http_server,
    listening,
    make_folder,
    only_server,
    raise_descriptor_limit,
    server_config,
    write_private,
)
from fedbourse.bootstrap.market_key import KEY_FILE, market_key
from fedbourse.dashboard.app import add_dashboard
from fedbourse.errors import BooksDiffer, FedbourseError
from fedbourse.market import clock, payouts
from fedbourse.market.access import issue_token
from fedbourse.storage import SqlStore
from fedbourse.storage.manual_payments import ManualPayments
from fedbourse.web.app import create_app
from fedbourse.wire.keys import SigningKey

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from fedbourse.market.ports import Payments, Store
    from fedbourse.market.service import Market

__all__ = ["Alarm", "MarketSettings", "Ready", "WakesClock", "running_clock", "serve_market"]

OPERATOR = "operator:main"
_TOKEN = "operator.token"
_TICK_S = 0.25
"""However many tasks are named, the clock looks at all deadlines so often."""
_REST_S = 0.05
"""However many writes there are, the clock rests so long between two looks."""
_PURGE_S = 600.0
"""How long the answer to a write is kept for its repetition."""
_LOG = logging.getLogger("fedbourse.market")


@dataclass(frozen=True)
class Ready:
    """What whoever started a market wants to know once it answers."""

    url: str
    public_key: str
    folder: Path
    operator_token: Path | None
    """Where the operator's first token lies; None where it was taken away."""


def serve_market(
    settings: MarketSettings,
    *,
    on_ready: Callable[[Ready], None],
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve a market until SIGTERM or SIGINT; every answer that was begun is finished.

    ``on_stop`` is called when one process that serves begins to end, and still answers.
    """
    settings.check()
    check_tls(settings)
    raise_descriptor_limit()
    make_folder(settings.folder)
    with only_server(settings.folder), listening(settings) as listener:
        check_kind(settings)
        port = listener.getsockname()[1]
        with SqlStore(settings.database_url) as store:
            key = market_key(settings.folder, store)
            market = settings.market(key)
            check_books(store)
            anew = settings.new_operator_token
            token = operator_token(settings.folder, market, store, anew=anew)
            ready = Ready(settings.url(port), market.key.public, settings.folder, token)
            if settings.workers == 1:
                start = partial(on_ready, ready)
                _run(settings, market, store, listener, on_start=start, on_stop=on_stop)
                return
        _run_workers(settings, listener, on_start=partial(on_ready, ready))


def check_books(store: Store) -> None:
    """Refuse to serve books in which somebody changed a balance."""
    with store.read() as unit:
        wrong = unit.unbalanced()
    if wrong:
        raise BooksDiffer(
            f"{len(wrong)} accounts do not hold what their transfers leave, {wrong[0]} among them; "
            "the database was changed by hand, or is damaged: restore a backup"
        )


def operator_token(
    folder: Path, market: Market, store: Store, *, anew: bool = False
) -> Path | None:
    """Make an operator's token where none was ever made, or ``anew``; return where it lies."""
    path = folder / _TOKEN
    with store.begin() as unit:
        after = ""
        while not anew and (page := unit.tokens(after=after, limit=1000)):
            if any("operator" in token.scopes for token in page):
                return path if path.exists() else None
            after = page[-1].id
        _, secret = issue_token(market, unit, None, holder=OPERATOR, scopes=["operator"])
        # Written before the token counts: a crash in between leaves a file that nobody accepts, and
        # the next start makes another one.
        write_private(path, f"{secret}\n")
    return path


@contextmanager
def running_clock(
    market: Market,
    store: Store,
    payments: Payments,
    *,
    alarm: Alarm,
    moved: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Let the market act by itself while the block runs: soon after the alarm rings, and in time.

    Several processes may do so at once: each thing is done by one of them. ``moved`` is called
    after each look that moved a task on.
    """
    stop = threading.Event()

    def purge() -> None:
        with store.begin() as unit:
            unit.purge(now_ms=market.now_ms())

    def look(tasks: Iterable[str], until_s: float) -> None:
        """Look at tasks one by one; those that time does not suffice for are among all."""
        if sum(
            clock.advance_one(market, store, task) for task in tasks if time.monotonic() < until_s
        ):
            moved()

    def look_at_all() -> None:
        if clock.advance(market, store):
            moved()

    def tick() -> None:
        said: dict[str, str] = {}
        purged_s = -math.inf
        while not stop.is_set():
            _try("deadlines", said, look_at_all)
            if time.monotonic() - purged_s >= _PURGE_S and _try("purge", said, purge):
                purged_s = time.monotonic()
            looked_s = time.monotonic()
            while not stop.is_set() and (passed_s := time.monotonic() - looked_s) < _TICK_S:
                rested = passed_s >= _REST_S
                left_s = (_TICK_S if rested else _REST_S) - passed_s
                tasks = alarm.wait(max(left_s, 0.0), rested=rested)
                if tasks is not None:
                    _try("deadlines", said, partial(look, tasks, looked_s + _TICK_S))
                elif rested:
                    break

    threads = [
        threading.Thread(target=tick, name="market-clock"),
        threading.Thread(
            target=_pay_out, args=(market, store, payments, stop), name="market-payouts"
        ),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        alarm.ring()
        for thread in threads:
            thread.join()


def _pay_out(market: Market, store: Store, payments: Payments, stop: threading.Event) -> None:
    """Go through the queue of pay-outs: in a thread of its own, since a bank may be slow."""
    said: dict[str, str] = {}
    interrupted = True  # what was here before may have been killed

    def look() -> None:
        nonlocal interrupted
        if interrupted:
            payouts.take_up(market, store)
        interrupted = True
        done = payouts.hand_over(market, store, payments)
        interrupted = False
        if done.failure is not None:
            raise done.failure

    while not stop.is_set():
        _try("payouts", said, look)
        stop.wait(_TICK_S)


def _try(name: str, said: dict[str, str], work: Callable[[], object]) -> bool:
    """Do something; where it fails, that is logged once, and tried again at the next look."""
    try:
        work()
    except Exception as error:
        if said.get(name) != str(error):
            known = isinstance(error, FedbourseError)
            _LOG.error("%s: %s", name, error, exc_info=None if known else error)
        said[name] = str(error)
        return False
    said.pop(name, None)
    return True


def _run(
    settings: MarketSettings,
    market: Market,
    store: SqlStore,
    listener: socket.socket,
    *,
    on_start: Callable[[], None],
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve in this process."""
    payments = ManualPayments(settings.folder / "payments")
    alarm = Alarm()
    web = create_app(market, store, payments, settings.web(listener.getsockname()[1]))
    add_dashboard(web)
    waiting = web.state.service.waiting
    app = WakesClock(web, alarm, waiting.changed)
    with running_clock(market, store, payments, alarm=alarm, moved=waiting.changed):
        server = http_server(server_config(settings, app), on_start, on_stop)
        waiting.over = lambda: server.should_exit
        server.run(sockets=[listener])


def _run_workers(
    settings: MarketSettings, listener: socket.socket, *, on_start: Callable[[], None]
) -> None:
    """Serve in several processes, which are started again where they die."""
    import multiprocessing

    from uvicorn.supervisors import Multiprocess

    started = multiprocessing.get_context("spawn").Event()

    def tell() -> None:
        started.wait()
        on_start()

    threading.Thread(target=tell, daemon=True).start()
    work = partial(_work, settings, os.getpid(), started.set)
    # The application is made in each worker, by _work.
    Multiprocess(server_config(settings, "none:none"), work, [listener]).run()


def _work(
    settings: MarketSettings,
    parent: int,
    on_start: Callable[[], None],
    sockets: list[socket.socket],
) -> None:
    """Serve in one of several processes, for as long as the one that started it lives."""
    try:
        with SqlStore(settings.database_url) as store:
            key = SigningKey.load(settings.folder / KEY_FILE)
            market = settings.market(key)
            _end_with(parent)
            _run(settings, market, store, sockets[0], on_start=on_start)
    except FedbourseError as error:
        _LOG.error("a worker stops: %s", error)
        raise SystemExit(error.exit_code) from None


def _end_with(parent: int) -> None:
    import signal

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
