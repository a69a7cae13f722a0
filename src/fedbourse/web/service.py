"""What stands behind the routes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from fedbourse.market.parties import Caller
from fedbourse.market.ports import Payments, Store
from fedbourse.market.service import Market
from fedbourse.market.views import View
from fedbourse.web.heavy import HeavyWork
from fedbourse.web.identity import ReadNonces
from fedbourse.web.limits import Buckets
from fedbourse.web.long_polling import LongPolls
from fedbourse.web.report_cache import ReportCache
from fedbourse.web.settings import Settings
from fedbourse.web.signed_heads import SignedHeads
from fedbourse.web.stream import Streams


@dataclass(frozen=True)
class Service:
    """A market, its store, and what all requests of a process share."""

    market: Market
    store: Store
    payments: Payments
    settings: Settings
    streams: Streams
    long_polls: LongPolls
    read_nonces: ReadNonces
    heads: SignedHeads
    callers: Buckets
    """The rate limit of each caller."""
    heavy: HeavyWork
    reports: ReportCache = field(default_factory=ReportCache)
    health_thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1))
    """Health is checked here, however busy the threads of requests are."""

    def heavy_turn(self, caller: Caller | None, peer: str) -> AbstractContextManager[None]:
        """Take the turn of a caller, or of a stranger's address, at heavy work."""
        key = peer if caller is None else caller.party
        return self.heavy.turn(key, authenticated=caller is not None)

    @contextmanager
    def view(self, caller: Caller | None = None) -> Iterator[View]:
        """Open a snapshot of the records as a caller, or a stranger, may see them."""
        with self.store.read() as tx:
            yield View(self.market, tx, caller)
