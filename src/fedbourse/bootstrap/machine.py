"""What a served market needs of the machine: its settings, folder, port, TLS, and HTTP server."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import resource
import secrets
import socket
import ssl
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedbourse.errors import CannotWrite, Conflict, InvalidFile, InvalidInput, NotAllowed
from fedbourse.market.service import Market, PayoutLimits
from fedbourse.units import credits_text
from fedbourse.web.settings import Settings
from fedbourse.wire.address import loopback
from fedbourse.wire.plain_text import plain_text

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    import uvicorn
    from starlette.types import ASGIApp

    from fedbourse.wire.keys import SigningKey

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")
_LOCK, _DATABASE, _DEMO = "serve.lock", "market.db", "demo.json"
_DEMO_TEXT = '{"demo": true, "say": "All in this folder is made up, its money is play money."}\n'
_HEADERS_BYTES_MAX = 16 * 1024
_CONNECTIONS_MAX = 1000
_PEER_MAX, _BLOCK_MAX = 200, 300
"""Connections of one address, and of one block of addresses such as a provider gives one client."""
_DESCRIPTORS_MIN = _CONNECTIONS_MAX + 200
"""What a process needs open at once: every connection, and its own files."""
_HEADERS_S = 10.0
_KEEP_ALIVE_S = 20
_STOP_S = 10
_PAYS_TO_MAX = 200


@dataclass(frozen=True)
class MarketSettings:
    """How a market is served."""

    folder: Path = Path("market")
    database: str | None = None
    """A URL; by default an SQLite file in the folder."""
    host: str = "127.0.0.1"
    port: int = 8417
    """0 picks a free one."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    workers: int = 1
    behind_proxy: bool = False
    """Another server, in front of this one, speaks TLS."""
    proxies: str = "127.0.0.1"
    """The addresses whose word on where a request comes from is taken."""
    public_hosts: tuple[str, ...] = ()
    """HOST or HOST:PORT as devices call the market; requests signed for another are refused."""
    access_log: bool = False
    new_operator_token: bool = False
    """Make another operator's token: for an operator who has lost its own."""
    fund_pays_to: str = Market.fund_pays_to
    """Whom the fund of unearned pay is paid out to, as everybody reads it."""
    least_withdrawal_micro: int = 10_000
    """The smallest withdrawal."""
    payouts_per_day: int = 10
    """How often each account may withdraw within 24 hours."""
    demo: bool = False
    """A market that fills itself with made-up tasks, on this machine alone."""

    @property
    def database_url(self) -> str:
        """Return the database's URL."""
        return self.database or f"sqlite:///{self.folder / _DATABASE}"

    def check(self) -> None:
        """Refuse what cannot work, or would be unsafe."""
        if not 0 <= self.port <= 65535:
            raise InvalidInput(f"port must be between 0 and 65535; found {self.port}")
        if self.demo:
            self._check_demo()
        if self.workers < 1:
            raise InvalidInput(f"workers must be at least 1; found {self.workers}")
        if self.workers > 1 and self.database_url.startswith("sqlite"):
            raise InvalidInput(
                f"SQLite is served by one process, and {self.workers} workers were asked for; "
                "name a PostgreSQL database"
            )
        if not 1 <= len(self.fund_pays_to.strip()) <= _PAYS_TO_MAX:
            raise InvalidInput(
                f"fund_pays_to must say in 1 to {_PAYS_TO_MAX} characters whom the fund is paid "
                f"out to; found {len(self.fund_pays_to.strip())}"
            )
        plain_text("fund_pays_to", self.fund_pays_to)
        if self.least_withdrawal_micro < 1:
            raise InvalidInput(
                "least_withdrawal must be at least 0.000001 credits; found "
                f"{credits_text(self.least_withdrawal_micro)}"
            )
        if self.payouts_per_day < 1:
            raise InvalidInput(f"payouts_per_day must be at least 1; found {self.payouts_per_day}")
        for host in self.public_hosts:
            if not _HOST.fullmatch(host):
                raise InvalidInput(f"a public host is HOST or HOST:PORT; found {host!r:.80}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInput("TLS needs a certificate and its key; found one of the two")
        if self.tls_cert is None and not self.behind_proxy and not loopback(self.host):
            raise InvalidInput(
                f"{self.host} can be reached from elsewhere, so that it needs TLS: give a "
                "certificate and its key, or say that the market is behind a proxy that has them"
            )

    def _check_demo(self) -> None:
        """Refuse to show a demonstration to others, or to make it what it is not."""
        if not loopback(self.host):
            raise InvalidInput(
                f"a demonstration is for this machine alone, and {self.host} can be reached from "
                "elsewhere; leave the host out"
            )
        if self.workers > 1:
            raise InvalidInput(
                f"a demonstration is served by one process; found {self.workers} workers"
            )
        for name, asked in (
            ("a database of its own", self.database),
            ("TLS", self.tls_cert or self.tls_key),
            ("a proxy", self.behind_proxy),
            ("public hosts", self.public_hosts),
        ):
            if asked:
                raise InvalidInput(f"a demonstration has no use for {name}; leave that out")

    def market(self, key: SigningKey) -> Market:
        """Return the market with this key and these settings."""
        limits = PayoutLimits(least_micro=self.least_withdrawal_micro, per_day=self.payouts_per_day)
        return Market(key, fund_pays_to=self.fund_pays_to, payout_limits=limits)

    def url(self, port: int) -> str:
        """Return the address at which a port is served."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls_cert else ''}://{host}:{port}"

    def web(self, port: int) -> Settings:
        """Return what the service itself needs to know."""
        hosts = tuple(host.lower() for host in self.public_hosts)
        if not hosts and loopback(self.host) and not self.behind_proxy:
            hosts = tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
        name = "demo, play money" if self.demo else Settings.name
        return Settings(name=name, authorities=hosts)


def raise_descriptor_limit() -> None:
    """Let this process open as many files as it may hold connections, or refuse to serve.

    Otherwise a few hundred silent connections would keep it from opening its own database.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else _DESCRIPTORS_MIN
    if soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS_MIN <= most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS_MIN, hard))
    elif soft != resource.RLIM_INFINITY and soft < _DESCRIPTORS_MIN:
        raise NotAllowed(
            f"a market needs {_DESCRIPTORS_MIN} open files at once; this user may have {hard} "
            "(ulimit -Hn): allow more"
        )


def check_tls(settings: MarketSettings) -> None:
    """Refuse a certificate and a key that cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return
    for path in (settings.tls_cert, settings.tls_key):
        try:
            path.open("rb").close()
        except OSError as error:
            raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    try:
        # Without a passphrase of our own, the terminal would be asked for one.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=lambda: b"")
    except (ssl.SSLError, ValueError):
        raise InvalidFile(
            f"{settings.tls_cert} and {settings.tls_key} must be a certificate and its key, in PEM "
            "and without a passphrase; they are not, or do not belong together"
        ) from None


def make_folder(folder: Path) -> None:
    """Make the market's folder, for its user alone."""
    if folder == Path():
        raise InvalidInput("a market's folder needs a name; found none")
    if "?" in str(folder):
        raise InvalidInput(f"a market's folder has no ? in its name; found {str(folder)!r:.80}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        raise CannotWrite(f"the folder {folder} cannot be made: {error.strerror}") from None
    if mode & 0o022:
        raise InvalidFile(
            f"the folder {folder} can be changed by others, mode {mode:o}; make it 700"
        )


def check_kind(settings: MarketSettings) -> None:
    """Refuse made-up tasks in a real market, and a demonstration served as one."""
    folder, mark = settings.folder, settings.folder / _DEMO
    if mark.exists():
        if not settings.demo:
            raise Conflict(
                f"{folder} holds a demonstration, whose money is play money; serve it with --demo, "
                "or name another folder"
            )
    elif settings.demo:
        strangers = sorted(each.name for each in folder.iterdir() if each.name != _LOCK)
        if (folder / _DATABASE).exists() or (folder / "market.key").exists():
            raise Conflict(
                f"{folder} holds a real market, which is never filled with made-up tasks; name "
                "another folder"
            )
        if strangers:
            raise CannotWrite(
                f"{folder} must be a new or an empty folder; it holds {strangers[0]!r:.80}"
            )
        write_private(mark, _DEMO_TEXT)


@contextmanager
def only_server(folder: Path) -> Iterator[None]:
    """Refuse a second server on one folder."""
    import fcntl

    try:
        number = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CannotWrite(f"{folder / _LOCK} cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"a market is being served from {folder} already; stop that one, or name another "
                "folder"
            ) from None
        yield
    finally:
        os.close(number)


@contextmanager
def listening(settings: MarketSettings) -> Iterator[socket.socket]:
    """Take hold of the port."""
    where = f"port {settings.port} of {settings.host}"
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, number)
    except (OSError, UnicodeError) as error:
        raise InvalidInput(
            f"{settings.host!r:.80} is no address of this machine: {error}"
        ) from None
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)  # two that share an address meet here, not before
        except PermissionError:
            raise NotAllowed(f"this user may not listen on {where}; try one above 1023") from None
        except OSError as error:
            raise Conflict(
                f"{where} cannot be listened on: {error.strerror}; name another one"
            ) from None
        yield listener


def write_private(path: Path, text: str) -> None:
    """Write a file that only its user reads, whole or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None


class Patient(H11Protocol):
    """Speaks HTTP, but not to those who say nothing, or who hold too many connections.

    The head of every request, the first on a connection and each later one, arrives within
    ``_HEADERS_S``; bodies have a deadline of their own (``web.limits``), and between two requests a
    connection is kept for ``_KEEP_ALIVE_S``.
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
            self.counts[name] -= 1
            if self.counts[name] <= 0:
                del self.counts[name]
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Read what has come, and set a time for the rest of a request that has only begun."""
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
    """The same where all connections come from one proxy."""

    shares = False


def shares_of(host: str) -> tuple[tuple[str, int], ...]:
    """Return the networks that a host counts for, each with the most connections it may hold.

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
    """Return how the HTTP server behaves: small headers, few words, an end in time."""
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
    """Return a server that says when it starts and stops, and stops quietly when it is told to."""
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
    # The server raises a signal once more when it has stopped; by then there is nothing left to do.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    return server
