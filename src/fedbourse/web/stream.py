"""A task's events as they happen: server-sent events that can be resumed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

import anyio
import anyio.to_thread
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from fedbourse.errors import InvalidInput, TooManyRequests
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.log import Event
from fedbourse.market.ports import Store
from fedbourse.web.limits import release
from fedbourse.web.settings import Settings

_BATCH = 100
_SEQUENCE = re.compile(r"-1|[0-9]{1,15}")
_THREADS = 4
"""Streams wait for each other, and leave the threads of requests alone."""


def last_event(text: str | None, after: int) -> int:
    """Return the sequence number after which a stream starts: the header's, or else the query's.

    >>> last_event("41", -1)
    41
    """
    number = (text or "").strip()
    if not number:
        return after
    if not _SEQUENCE.fullmatch(number):
        raise InvalidInput(f"Last-Event-ID must be the number of an event; found {number!a:.60}")
    return int(number)


class Streams:
    """All open streams of a process, up to a bound."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._open: Counter[str] = Counter()
        self._threads: anyio.CapacityLimiter | None = None

    def __len__(self) -> int:
        return self._open.total()

    async def respond(self, task: str, *, after: int, peer: str) -> Response:
        """Return a stream of a task's events; status 204 where the last one was seen already.

        204 is how a browser's EventSource learns not to come back.
        """
        if (
            len(self) >= self._settings.streams_max
            or self._open[peer] >= self._settings.streams_per_peer
        ):
            raise TooManyRequests("too many streams are open; close one, or try again later")
        self._open[peer] += 1
        try:
            events, ended = await self._poll(task, after)
        except BaseException:
            release(self._open, peer)
            raise
        if ended and not events:
            release(self._open, peer)
            return Response(status_code=204)
        return _Stream(
            self._events(task, after, events, ended),
            ping=self._settings.heartbeat_s,
            send_timeout=self._settings.body_timeout_s,
            at_end=lambda: release(self._open, peer),
        )

    async def _events(
        self, task: str, after: int, events: list[Event], ended: bool
    ) -> AsyncIterator[ServerSentEvent]:
        while True:
            for event in events:
                after = event.sequence
                yield ServerSentEvent(
                    id=str(after), event=event.kind, data=json.dumps(asdict(event)), sep="\n"
                )
            if len(events) < _BATCH:
                if ended:
                    return
                await anyio.sleep(self._settings.stream_poll_s)
            events, ended = await self._poll(task, after)

    async def _poll(self, task: str, after: int) -> tuple[list[Event], bool]:
        """Read in a thread, in a transaction that ends at once."""

        def read() -> tuple[list[Event], bool]:
            with self._store.read() as tx:
                events = tx.events(task, after=after, limit=_BATCH)
                return events, tx.task(task).state in ENDED

        if self._threads is None:  # it belongs to the event loop, which starts after the app
            self._threads = anyio.CapacityLimiter(_THREADS)
        return await anyio.to_thread.run_sync(read, limiter=self._threads)


class _Stream(EventSourceResponse):
    """A response that reports its end, also where it never began."""

    def __init__(self, *args: Any, at_end: Callable[[], None], **options: Any) -> None:
        super().__init__(*args, **options)
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unfinished = False

        async def watched(message: Message) -> None:
            nonlocal unfinished
            unfinished = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        try:
            await super().__call__(scope, receive, watched)
        finally:
            self._at_end()
        if unfinished:  # it ends with the market
            await send({"type": "http.response.body", "body": b"", "more_body": False})
