"""Serve a market: one folder, one database, one port.

The folder holds the market's key (``market.key``), the operator's first token
(``operator.token``), payments (``payments/``), and by default the database (``market.db``).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedbourse.app.configuration import MarketSettings
from fedbourse.app.http_server import http_server, raise_descriptor_limit, server_config
from fedbourse.app.machine import (
    check_kind,
    check_tls,
    listening,
    make_folder,
    only_server,
    write_private,
)
from fedbourse.app.market_key import KEY_FILE, market_key
from fedbourse.app.scheduler import WakeUp, running_scheduler
from fedbourse.dashboard.app import add_dashboard
from fedbourse.errors import FedbourseError, LedgerMismatch
from fedbourse.market.commands.access import issue_token
from fedbourse.market.ports import Store
from fedbourse.market.service import Market
from fedbourse.payments.adapters import PAYMENT_ADAPTERS
from fedbourse.protocol.keys import SigningKey
from fedbourse.storage import SqlStore
from fedbourse.web.app import create_app

__all__ = ["MarketSettings", "Ready", "serve_market"]

OPERATOR = "operator:main"
_TOKEN = "operator.token"
_LOG = logging.getLogger("fedbourse.market")


@dataclass(frozen=True)
class Ready:
    """What is known of a market once it serves."""

    url: str
    public_key: str
    folder: Path
    operator_token: Path | None
    """The file of the operator's first token; None where it was removed."""


def serve_market(
    settings: MarketSettings,
    *,
    on_ready: Callable[[Ready], None],
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve a market until SIGTERM or SIGINT, and finish the responses that were begun.

    ``on_stop`` is called when a single process begins to stop, and still serves.
    """
    settings.check()
    check_tls(settings)
    raise_descriptor_limit()
    make_folder(settings.folder)
    with only_server(settings.folder), listening(settings) as listener:
        check_kind(settings)
        port = listener.getsockname()[1]
        with SqlStore(settings.database_url) as store:
            market = settings.market(market_key(settings.folder, store))
            check_books(store)
            token = operator_token(settings.folder, market, store, anew=settings.new_operator_token)
            ready = Ready(settings.url(port), market.key.public, settings.folder, token)
            if settings.workers == 1:
                start = partial(on_ready, ready)
                _run(settings, market, store, listener, on_start=start, on_stop=on_stop)
                return
        _run_workers(settings, listener, on_start=partial(on_ready, ready))


def check_books(store: Store) -> None:
    """Refuse to serve books in which somebody changed a balance."""
    with store.read() as tx:
        accounts = tx.unbalanced()
    if accounts:
        raise LedgerMismatch(
            f"{len(accounts)} accounts do not hold what their transfers leave, such as "
            f"{accounts[0]}; "
            "the database was changed by hand, or is damaged: restore a backup"
        )


def operator_token(
    folder: Path, market: Market, store: Store, *, anew: bool = False
) -> Path | None:
    """Make an operator's token where there was never one, or ``anew``; return its file."""
    path = folder / _TOKEN
    with store.begin() as tx:
        after = ""
        while not anew and (page := tx.tokens(after=after, limit=1000)):
            if any("operator" in token.scopes for token in page):
                return path if path.exists() else None
            after = page[-1].id
        _, secret = issue_token(market, tx, None, holder=OPERATOR, scopes=["operator"])
        # Written before the commit: a crash in between leaves a token that is not valid, and the
        # next start makes another one.
        write_private(path, f"{secret}\n")
    return path


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
    payments = PAYMENT_ADAPTERS.choose(settings.payments)(settings.folder / "payments")
    wake_up = WakeUp()
    market = replace(market, on_due=wake_up.wake)
    app = create_app(market, store, payments, settings.web(listener.getsockname()[1]))
    add_dashboard(app)
    service = app.state.service
    with running_scheduler(service.market, store, payments, wake_up=wake_up):
        server = http_server(server_config(settings, app), on_start, on_stop)
        service.long_polls.stopping = lambda: server.should_exit
        server.run(sockets=[listener])


def _run_workers(
    settings: MarketSettings, listener: socket.socket, *, on_start: Callable[[], None]
) -> None:
    """Serve in several processes, which are restarted where they die."""
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
            market = settings.market(SigningKey.load(settings.folder / KEY_FILE))
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
