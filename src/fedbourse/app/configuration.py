"""How a market is served; settings that cannot work, or are unsafe, are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fedbourse.encoding.plain_text import plain_text
from fedbourse.errors import InvalidInput
from fedbourse.market.service import Market, PayoutLimits
from fedbourse.payments.adapters import PAYMENT_ADAPTERS
from fedbourse.protocol.address import loopback
from fedbourse.protocol.keys import SigningKey
from fedbourse.units import credits_text
from fedbourse.web.settings import Settings

DATABASE_FILE = "market.db"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")
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
    """A proxy in front of this server terminates TLS."""
    proxies: str = "127.0.0.1"
    """The addresses of proxies whose forwarded headers are trusted."""
    public_hosts: tuple[str, ...] = ()
    """HOST or HOST:PORT as devices call the market; requests signed for another are refused."""
    access_log: bool = False
    new_operator_token: bool = False
    """Make another operator's token: for an operator who has lost theirs."""
    fund_pays_to: str = Market.fund_pays_to
    """Whom the fund of unearned pay is paid out to, as it is published."""
    min_withdrawal_micro: int = 10_000
    """The smallest withdrawal."""
    payouts_per_day: int = 10
    """How often each account may withdraw within 24 hours."""
    payments: str = "manual"
    """The payment adapter that brings money in and out."""
    demo: bool = False
    """A market that fills itself with simulated tasks, on this machine alone."""

    @property
    def database_url(self) -> str:
        """Return the database's URL."""
        return self.database or f"sqlite:///{self.folder / DATABASE_FILE}"

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
                f"SQLite is served by one process; found {self.workers} workers; name a "
                "PostgreSQL database"
            )
        if not 1 <= len(self.fund_pays_to.strip()) <= _PAYS_TO_MAX:
            raise InvalidInput(
                f"fund_pays_to must say in 1 to {_PAYS_TO_MAX} characters whom the fund is paid "
                f"out to; found {len(self.fund_pays_to.strip())}"
            )
        plain_text("fund_pays_to", self.fund_pays_to)
        if self.min_withdrawal_micro < 1:
            raise InvalidInput(
                "min_withdrawal must be at least 0.000001 credits; found "
                f"{credits_text(self.min_withdrawal_micro)}"
            )
        if self.payouts_per_day < 1:
            raise InvalidInput(f"payouts_per_day must be at least 1; found {self.payouts_per_day}")
        PAYMENT_ADAPTERS.choose(self.payments)
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
        """Refuse a demonstration that others could reach, or that looks like a real market."""
        if not loopback(self.host):
            raise InvalidInput(
                f"a demonstration is for this machine alone, and {self.host} can be reached from "
                "elsewhere; leave the host out"
            )
        if self.workers > 1:
            raise InvalidInput(
                f"a demonstration is served by one process; found {self.workers} workers"
            )
        for name, value in (
            ("a database of its own", self.database),
            ("TLS", self.tls_cert or self.tls_key),
            ("a proxy", self.behind_proxy),
            ("public hosts", self.public_hosts),
            ("payments that are not manual", self.payments != "manual"),
        ):
            if value:
                raise InvalidInput(f"a demonstration has no use for {name}; leave that out")

    def market(self, key: SigningKey) -> Market:
        """Return the market with this key and these settings."""
        limits = PayoutLimits(min_micro=self.min_withdrawal_micro, per_day=self.payouts_per_day)
        return Market(key, fund_pays_to=self.fund_pays_to, payout_limits=limits)

    def url(self, port: int) -> str:
        """Return the address at which a port is served."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls_cert else ''}://{host}:{port}"

    def web(self, port: int) -> Settings:
        """Return the settings of the web service."""
        hosts = tuple(host.lower() for host in self.public_hosts)
        if not hosts and loopback(self.host) and not self.behind_proxy:
            hosts = tuple(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
        name = "demo, play money" if self.demo else Settings.name
        return Settings(name=name, authorities=hosts)
