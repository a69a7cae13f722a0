"""A fair share of the processor: few requests of one network address are handled at once.

Whoever opens many connections waits for itself, and keeps nobody else waiting. A request waits in
the event loop, without a thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedbourse.web.limits import peer_of

_HEALTH = "/v1/health"
"""Never kept waiting: a monitor of the market may share an address with others."""


class Slot:
    """The place of one request among those of its address that are handled at once."""

    def __init__(self, places: anyio.Semaphore) -> None:
        self._places, self._held = places, False

    async def take(self) -> None:
        """Wait until the place is free."""
        await self._places.acquire()
        self._held = True

    def leave(self) -> None:
        """Pass the place to the next request of this address; harmless where it was left before."""
        if self._held:
            self._held = False
            self._places.release()


@dataclass
class _Peer:
    places: anyio.Semaphore
    requests: int = 0


class FairShare:
    """Lets a few requests of an address in at once, until each has its response.

    A long poll leaves its place while it waits; it has it in its ``state``.
    """

    def __init__(self, app: ASGIApp, at_once: int) -> None:
        self.app, self._at_once = app, at_once
        self._peers: dict[str, _Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["path"] == _HEALTH:
            await self.app(scope, receive, send)
            return
        name = peer_of(scope)
        if name not in self._peers:
            self._peers[name] = _Peer(anyio.Semaphore(self._at_once))
        peer = self._peers[name]
        place = scope.setdefault("state", {})["place"] = Slot(peer.places)

        async def leave_at_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                place.leave()  # sending it may take as long as a stream
            await send(message)

        peer.requests += 1
        try:
            await place.take()
            await self.app(scope, receive, leave_at_start)
        finally:
            place.leave()
            peer.requests -= 1
            if not peer.requests:
                del self._peers[name]
