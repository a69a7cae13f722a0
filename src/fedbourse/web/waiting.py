"""Requests that wait for a task to move on: they hold no thread and no connection meanwhile.

All that wait in a process share one question to the database. It is asked soon after something
changed in this process, and now and then for what other processes changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from fedbourse.errors import TooManyRequests

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request as HttpRequest

    from fedbourse.market.ports import Store
    from fedbourse.market.task import Mark
    from fedbourse.web.settings import Settings

_LOG = logging.getLogger("fedbourse.web")


@dataclass(eq=False)
class _Waiter:
    news: Callable[[Mark], bool]
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class Waiting:
    """All waiting requests of a process, which are never more than allowed."""

    def __init__(self, store: Store, settings: Settings) -> None:
        """Start with none."""
        self._store, self._settings = store, settings
        self._waiters: dict[str, set[_Waiter]] = {}
        self._open: Counter[str] = Counter()
        self._callers: Counter[str | None] = Counter()
        self._poller: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look = asyncio.Event()
        self._threads: anyio.CapacityLimiter | None = None
        self.changes = 0
        """How often something changed in this process: taken before a look, it shows whether the
        look may be out of date."""
        self.over: Callable[[], bool] = lambda: False
        """Whether the service is stopping, so that nobody should wait any longer."""

    def __len__(self) -> int:
        """Return how many wait."""
        return self._open.total()

    def changed(self) -> None:
        """Say, from any thread, that a task may have moved on."""
        self.changes += 1
        loop = self._loop
        if loop is not None and self._waiters:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._look.set)

    async def wait(
        self,
        http: HttpRequest,
        task: str,
        *,
        news: Callable[[Mark], bool],
        wait_s: float,
        seen: int,
        peer: str,
        caller: str | None,
    ) -> bool:
        """Wait until there is news of a task, or for so long; False where the client went away.

        ``seen`` is what ``changes`` was before the caller looked itself. ``caller`` is the party
        that proved who it is, None for a stranger: strangers cannot take every place.
        """
        if self.over():
            return True
        if self._full(peer, caller):
            raise TooManyRequests("too many requests are waiting; ask again later, or do not wait")
        waiter = _Waiter(news)
        self._open[peer] += 1
        self._callers[caller] += 1
        self._waiters.setdefault(task, set()).add(waiter)
        self._run_poller()
        if seen != self.changes:
            self._look.set()
        gone = asyncio.ensure_future(_gone(http))
        woken = asyncio.ensure_future(waiter.woken.wait())
        try:
            await asyncio.wait({gone, woken}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            return not gone.done()
        finally:
            gone.cancel()
            woken.cancel()
            self._leave(task, waiter, peer, caller)

    def _full(self, peer: str, caller: str | None) -> bool:
        bounds = self._settings
        of_caller = bounds.waiting_strangers_max if caller is None else bounds.waiting_per_caller
        return (
            len(self) >= bounds.waiting_max
            or self._open[peer] >= bounds.waiting_per_peer
            or self._callers[caller] >= of_caller
        )

    def _leave(self, task: str, waiter: _Waiter, peer: str, caller: str | None) -> None:
        self._waiters[task].discard(waiter)
        if not self._waiters[task]:
            del self._waiters[task]
        self._open[peer] -= 1
        if self._open[peer] <= 0:
            del self._open[peer]
        self._callers[caller] -= 1
        if self._callers[caller] <= 0:
            del self._callers[caller]

    def _run_poller(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # tests have one after the other
            self._loop, self._poller = loop, None
            self._look = asyncio.Event()
            self._threads = anyio.CapacityLimiter(1)
        if self._poller is None or self._poller.done():
            self._poller = loop.create_task(self._poll())

    async def _poll(self) -> None:
        """Look again and again, for as long as somebody waits."""
        said = ""
        while self._waiters:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), self._settings.waiting_poll_s)
            self._look.clear()
            try:
                marks = await anyio.to_thread.run_sync(self._marks, limiter=self._threads)
            except Exception as error:  # those who wait will be told when they ask themselves
                if str(error) != said:
                    said = str(error)
                    _LOG.error("waiting: %s", error)
                continue
            over = self.over()
            for task, waiters in self._waiters.items():
                for waiter in waiters:
                    if over or (task in marks and waiter.news(marks[task])):
                        waiter.woken.set()

    def _marks(self) -> dict[str, Mark]:
        tasks = list(self._waiters)
        if not tasks:
            return {}
        with self._store.read() as unit:
            return unit.marks(tasks)


async def _gone(http: HttpRequest) -> None:
    """Return when the client has gone away."""
    with suppress(Exception):
        while (await http.receive())["type"] != "http.disconnect":
            pass
