"""Long polling: requests that wait for a task's next version hold no thread and no connection.

All that wait in a process share one query of the database: soon after a change in this process, and
at intervals for changes by other processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from starlette.requests import Request as HttpRequest

from fedbourse.errors import TooManyRequests
from fedbourse.market.ports import Store
from fedbourse.market.records import TaskVersion
from fedbourse.web.limits import release
from fedbourse.web.settings import Settings

_LOG = logging.getLogger("fedbourse.web")


@dataclass(eq=False)
class _Waiter:
    is_new: Callable[[TaskVersion], bool]
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class LongPolls:
    """All waiting requests of a process, up to a bound."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._waiters: dict[str, set[_Waiter]] = {}
        self._peers: Counter[str] = Counter()
        self._callers: Counter[str | None] = Counter()
        self._poller: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._change = asyncio.Event()
        self._threads: anyio.CapacityLimiter | None = None
        self.changes = 0
        """How many changes there were in this process: whoever reads it before a read of the
        records can tell whether that may be out of date."""
        self.stopping: Callable[[], bool] = lambda: False
        """Whether the service is stopping, so that nobody should wait any longer."""

    def __len__(self) -> int:
        return self._peers.total()

    def changed(self) -> None:
        """Report, from any thread, that a task may have a new version."""
        self.changes += 1
        loop = self._loop
        if loop is not None and self._waiters:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._change.set)

    async def wait(
        self,
        http: HttpRequest,
        task: str,
        *,
        is_new: Callable[[TaskVersion], bool],
        wait_s: float,
        changes: int,
        peer: str,
        caller: str | None,
    ) -> bool:
        """Wait for a new version of a task, or until time is up; False where the client is gone.

        ``changes`` is what it was before the caller read the records itself. ``caller`` is the
        authenticated party, None for a stranger: strangers cannot take every place.
        """
        if self.stopping():
            return True
        waiter = _Waiter(is_new)
        with self._place(task, waiter, peer, caller):
            self._run_poller()
            if changes != self.changes:
                self._change.set()
            gone = asyncio.ensure_future(_disconnected(http))
            woken = asyncio.ensure_future(waiter.woken.wait())
            try:
                await asyncio.wait(
                    {gone, woken}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                return not gone.done()
            finally:
                gone.cancel()
                woken.cancel()

    @contextmanager
    def _place(self, task: str, waiter: _Waiter, peer: str, caller: str | None) -> Iterator[None]:
        bounds = self._settings
        caller_max = bounds.waiting_strangers_max if caller is None else bounds.waiting_per_caller
        if (
            len(self) >= bounds.waiting_max
            or self._peers[peer] >= bounds.waiting_per_peer
            or self._callers[caller] >= caller_max
        ):
            raise TooManyRequests("too many requests are waiting; try again later, or do not wait")
        self._peers[peer] += 1
        self._callers[caller] += 1
        self._waiters.setdefault(task, set()).add(waiter)
        try:
            yield
        finally:
            self._waiters[task].discard(waiter)
            if not self._waiters[task]:
                del self._waiters[task]
            release(self._peers, peer)
            release(self._callers, caller)

    def _run_poller(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # tests have one after the other
            self._loop, self._poller = loop, None
            self._change = asyncio.Event()
            self._threads = anyio.CapacityLimiter(1)
        if self._poller is None or self._poller.done():
            self._poller = loop.create_task(self._poll())

    async def _poll(self) -> None:
        """Compare versions again and again, for as long as somebody waits."""
        last_error = ""
        while self._waiters:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._change.wait(), self._settings.waiting_poll_s)
            self._change.clear()
            try:
                versions = await anyio.to_thread.run_sync(self._versions, limiter=self._threads)
            except Exception as error:  # those who wait meet it when they read themselves
                if str(error) != last_error:
                    last_error = str(error)
                    _LOG.error("long polling: %s", error)
                continue
            stopping = self.stopping()
            for task, waiters in self._waiters.items():
                for waiter in waiters:
                    if stopping or (task in versions and waiter.is_new(versions[task])):
                        waiter.woken.set()

    def _versions(self) -> dict[str, TaskVersion]:
        tasks = list(self._waiters)
        if not tasks:
            return {}
        with self._store.read() as tx:
            return tx.versions(tasks)


async def _disconnected(http: HttpRequest) -> None:
    """Return when the client has gone away."""
    with suppress(Exception):
        while (await http.receive())["type"] != "http.disconnect":
            pass
