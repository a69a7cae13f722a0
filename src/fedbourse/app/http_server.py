"""The HTTP server of a market, with bounds on slow clients and on connections."""

from __future__ import annotations

import ipaddress
import logging
import resource
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedbourse.errors import NotAllowed
from fedbourse.web.limits import release

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

    import uvicorn
    from starlette.types import ASGIApp

    from fedbourse.app.configuration import MarketSettings

_HEADERS_BYTES_MAX = 16 * 1024
_CONNECTIONS_MAX = 1000
_PEER_MAX, _BLOCK_MAX = 200, 300
"""Connections of one address, and of a block of addresses such as one client may have."""
_DESCRIPTORS_MIN = _CONNECTIONS_MAX + 200
"""File descriptors for every connection, and the process's own files."""
_HEADERS_S = 10.0
_KEEP_ALIVE_S = 20
_STOP_S = 10


def raise_descriptor_limit() -> None:
    """Let this process open a file for each connection that it may hold, or refuse to serve.

    Otherwise a few hundred idle connections would keep it from opening its own database.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _DESCRIPTORS_MIN:
        return
    if hard != resource.RLIM_INFINITY and hard < _DESCRIPTORS_MIN:
        raise NotAllowed(
            f"a market needs {_DESCRIPTORS_MIN} open files at once; this user may have {hard} "
            "(ulimit -Hn): allow more"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS_MIN, hard))


class Patient(H11Protocol):
    """HTTP, with a deadline for the head of a request and a bound on connections.

    The head of each request on a connection arrives within ``_HEADERS_S``; bodies have a deadline
    of their own (``web.limits``), and an idle connection is closed after ``_KEEP_ALIVE_S``.
    """

    shares: ClassVar[bool] = True
    """Whether each address, and each block of addresses, has its share of all connections."""
    counts: ClassVar[Counter[str]] = Counter()
    peers: tuple[tuple[str, int], ...] = ()
    head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a first request."""
        super().connection_made(transport)
        if self.shares:
            self.peers = shares_of(self.client[0] if self.client else "")
        self.counts.update(name for name, _ in self.peers)
        if any(self.counts[name] > most for name, most in self.peers):
            transport.close()
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for name, _ in self.peers:
            release(self.counts, name)
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle what has arrived, and set a deadline for the rest of a head that has begun."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self.conn.trailing_data[0] or self.timeout_keep_alive_task is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(_HEADERS_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None


class PatientBehindProxy(Patient):
    """The same, where all connections come from one proxy."""

    shares = False


def shares_of(host: str) -> tuple[tuple[str, int], ...]:
    """Return the networks of a host, each with the number of connections that it may hold.

    >>> shares_of("192.0.2.7")
    (('192.0.2.7/32', 200), ('192.0.2.0/24', 300))
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ((host, _PEER_MAX),)
    one, block = (32, 24) if address.version == 4 else (64, 48)
    return tuple(
        (str(ipaddress.ip_network((address, length), strict=False)), most)
        for length, most in ((one, _PEER_MAX), (block, _BLOCK_MAX))
    )


def server_config(settings: MarketSettings, app: ASGIApp | str) -> uvicorn.Config:
    """Return the configuration of the HTTP server."""
    import uvicorn

    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=PatientBehindProxy if settings.behind_proxy else Patient,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="info" if settings.access_log else "warning",
        access_log=settings.access_log,
        server_header=False,
        proxy_headers=settings.behind_proxy,
        forwarded_allow_ips=settings.proxies,
        workers=settings.workers,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_S,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        h11_max_incomplete_event_size=_HEADERS_BYTES_MAX,
    )


def http_server(
    config: uvicorn.Config, on_start: Callable[[], None], on_stop: Callable[[], None]
) -> uvicorn.Server:
    """Return a server that reports its start and its stop, and stops on a signal."""
    import signal

    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                on_start()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            on_stop()
            await super().shutdown(sockets=sockets)

    server = Server(config)
    # The server raises a signal again when it has stopped; by then there is nothing left to do.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    return server
