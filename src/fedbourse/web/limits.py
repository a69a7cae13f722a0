"""Bounds on what a stranger can make the service do, before anything of it is understood."""

from __future__ import annotations

import ipaddress
import math
import re
import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

import anyio

from fedbourse.errors import TooLarge, TooManyRequests, Unreachable
from fedbourse.web.problems import problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fedbourse.web.settings import Settings

_ANSWER = re.compile(r"/v1/tasks/[^/]+/rounds/[^/]+/answer")
_WITH_BODY = ("POST", "PUT")
_KEYS_MAX = 10_000


class Buckets:
    """A token bucket for each key, for the keys that were seen last."""

    def __init__(
        self, *, per_s: float, burst: int, now_s: Callable[[], float], keys_max: int = _KEYS_MAX
    ) -> None:
        """Start with every bucket full."""
        self._per_s, self._burst, self._now_s, self._keys_max = per_s, burst, now_s, keys_max
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, key: str) -> float:
        """Take one from a key's bucket and return 0, or how long to wait where it is empty."""
        now = self._now_s()
        with self._lock:
            level, at = self._levels.pop(key, (float(self._burst), now))
            level = min(self._burst, level + max(now - at, 0.0) * self._per_s)
            wait = 0.0 if level >= 1 else (1 - level) / self._per_s
            self._levels[key] = (level if wait else level - 1, now)
            if len(self._levels) > self._keys_max:
                self._levels.popitem(last=False)
        return wait

    def __len__(self) -> int:
        """Return how many keys are remembered."""
        return len(self._levels)


def peer_of(scope: Scope) -> str:
    """Return the network that a request comes from: one IPv4 address, or an IPv6 network of 64."""
    host = scope["client"][0] if scope.get("client") else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))


class RateLimit:
    """Refuses the requests of a network address that come too fast."""

    def __init__(self, app: ASGIApp, buckets: Buckets) -> None:
        """Wrap an application."""
        self.app, self.buckets = app, buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        wait_s = self.buckets.wait_s(peer_of(scope)) if scope["type"] == "http" else 0.0
        if not wait_s:
            await self.app(scope, receive, send)
            return
        seconds = max(1, math.ceil(wait_s))
        answer = problem(
            TooManyRequests,
            f"too many requests from this address; ask again in {seconds} s",
            headers={"Retry-After": str(seconds)},
        )
        await answer(scope, receive, send)


class BodyLimit:
    """Reads a body whole, within its bounds, before the application sees the request.

    What counts is the bytes that arrive, whatever the headers say of them. They count against
    all and against the address that they come from, until the request is answered. Only POST and
    PUT have a body, so that no request that waits for news holds one.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        """Wrap an application."""
        self.app, self._settings = app, settings
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, and pass the request on with it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = self._most(scope)
        if _claimed(scope) > most:
            await _too_large(scope, most)(scope, receive, send)
            return
        held, peer = 0, peer_of(scope)
        try:
            parts: list[bytes] = []
            refused: Response | None = None
            with anyio.move_on_after(self._settings.body_timeout_s) as clock:
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return  # the client went away
                    part = message.get("body", b"")
                    held += len(part)
                    self._held[peer] += len(part)
                    parts.append(part)
                    refused = _too_large(scope, most) if held > most else self._full(peer, held)
                    if refused is not None or not message.get("more_body", False):
                        break
            if clock.cancelled_caught:
                refused = problem(Unreachable, "the body did not arrive in time", status=408)
            if refused is not None:
                await refused(scope, receive, send)
            else:
                body = b"".join(parts)
                parts.clear()  # it is counted once, and held once
                await self.app(scope, _replay(body, receive), send)
        finally:
            self._held[peer] -= held
            if not self._held[peer]:
                del self._held[peer]

    def _most(self, scope: Scope) -> int:
        if scope["method"] not in _WITH_BODY:
            return 0
        if scope["method"] == "PUT" and _ANSWER.fullmatch(scope["path"]) and _signed(scope):
            return self._settings.answer_bytes_max
        return self._settings.json_bytes_max

    def _full(self, peer: str, held: int) -> Response | None:
        if held and self._held[peer] > self._settings.waiting_bytes_per_peer:
            return problem(
                Unreachable, "the market is reading too much from this address; ask again soon"
            )
        if held and self._held.total() > self._settings.waiting_bytes_max:
            return problem(Unreachable, "the market is reading too much at once; ask again soon")
        return None


class SecurityHeaders:
    """Adds to every answer what keeps browsers and caches from doing harm with it."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                given = {name.lower() for name, _ in headers}
                headers += [pair for pair in _headers(scope["scheme"]) if pair[0] not in given]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, with_headers)


def _headers(scheme: str) -> list[tuple[bytes, bytes]]:
    headers = [
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
    ]
    if scheme == "https":
        headers.append((b"strict-transport-security", b"max-age=31536000"))
    return headers


def _claimed(scope: Scope) -> int:
    """Return the length that a request claims to have; 0 where it claims none that is one."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) <= 18:
            return int(value)
        if name == b"content-length" and value.isdigit():
            return 10**18
    return 0


def _signed(scope: Scope) -> bool:
    """Say whether a request claims to be signed; whether it is shows only once its body is read."""
    return {b"signature", b"signature-input"} <= {name for name, _ in scope["headers"]}


def _too_large(scope: Scope, most: int) -> Response:
    sentence = f"a body may have {most} bytes at this address"
    if not most:
        sentence = f"{scope['method']:.20} has no body here; found one, send none"
    elif scope["method"] == "PUT" and _ANSWER.fullmatch(scope["path"]) and not _signed(scope):
        sentence += " without a device's signature"
    # The rest of the body is not read, so the connection cannot be used again.
    return problem(TooLarge, sentence, headers={"Connection": "close"})


def _replay(body: bytes, receive: Receive) -> Receive:
    done = False

    async def replayed() -> Message:
        nonlocal done
        if done:
            return await receive()
        done = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
