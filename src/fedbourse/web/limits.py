"""Bounds on what a stranger can make the service do, before a request is parsed."""

from __future__ import annotations

import ipaddress
import math
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import anyio
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedbourse.errors import TooLarge, TooManyRequests, Unreachable
from fedbourse.web.problems import problem
from fedbourse.web.settings import Settings

_UPDATE = re.compile(r"/v1/tasks/[^/]+/rounds/[^/]+/update")
_REFERENCE = re.compile(r"/v1/tasks/[^/]+/(rounds/[^/]+/)?reference")
_WITH_BODY = ("POST", "PUT")
_KEYS_MAX = 10_000
_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_HTTPS_HEADERS = {"strict-transport-security": "max-age=31536000"}


class Buckets:
    """Token buckets of the keys that were seen last."""

    def __init__(
        self,
        *,
        per_s: float,
        burst: int,
        now_s: Callable[[], float] = time.monotonic,
        keys_max: int = _KEYS_MAX,
    ) -> None:
        self._per_s, self._burst, self._now_s, self._keys_max = per_s, burst, now_s, keys_max
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, key: str) -> float:
        """Take a token from a key's bucket; return 0, or how long to wait where it is empty."""
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
        return len(self._levels)


def release(counts: Counter[Any], key: object, count: int = 1) -> None:
    """Count down; a key that reaches zero is forgotten."""
    counts[key] -= count
    if counts[key] <= 0:
        del counts[key]


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
        self.app, self.buckets = app, buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        wait_s = self.buckets.wait_s(peer_of(scope)) if scope["type"] == "http" else 0.0
        if not wait_s:
            await self.app(scope, receive, send)
            return
        seconds = max(1, math.ceil(wait_s))
        response = problem(
            TooManyRequests,
            f"too many requests from this address; try again in {seconds} s",
            headers={"Retry-After": str(seconds)},
        )
        await response(scope, receive, send)


class BodyLimit:
    """Reads the whole body, within bounds, before the application sees the request.

    Bytes count as they arrive, whatever the headers claim, against a total and against the address
    that they come from, until the response is sent. Only POST and PUT have a body, so that no long
    poll holds one.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self._settings = app, settings
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        bytes_max = self._bytes_max(scope)
        if _claimed(scope) > bytes_max:
            await _too_large(scope, bytes_max)(scope, receive, send)
            return
        held, peer = 0, peer_of(scope)
        try:
            parts: list[bytes] = []
            refusal: Response | None = None
            with anyio.move_on_after(self._settings.body_timeout_s) as timeout:
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return  # the client went away
                    part = message.get("body", b"")
                    held += len(part)
                    self._held[peer] += len(part)
                    parts.append(part)
                    over = held > bytes_max
                    refusal = _too_large(scope, bytes_max) if over else self._full(peer, held)
                    if refusal is not None or not message.get("more_body", False):
                        break
            if timeout.cancelled_caught:
                refusal = problem(Unreachable, "the body did not arrive in time", status=408)
            if refusal is not None:
                await refusal(scope, receive, send)
            else:
                body = b"".join(parts)
                parts.clear()  # it is counted once, and held once
                await self.app(scope, _replay(body, receive), send)
        finally:
            release(self._held, peer, held)

    def _bytes_max(self, scope: Scope) -> int:
        if scope["method"] not in _WITH_BODY:
            return 0
        if scope["method"] == "PUT" and _UPDATE.fullmatch(scope["path"]) and _signed(scope):
            return self._settings.update_bytes_max
        if scope["method"] == "PUT" and _REFERENCE.fullmatch(scope["path"]) and _has_token(scope):
            return self._settings.update_bytes_max
        return self._settings.json_bytes_max

    def _full(self, peer: str, held: int) -> Response | None:
        if held and self._held[peer] > self._settings.waiting_bytes_per_peer:
            return problem(
                Unreachable, "the market is reading too much from this address; try again soon"
            )
        if held and self._held.total() > self._settings.waiting_bytes_max:
            return problem(Unreachable, "the market is reading too much at once; try again soon")
        return None


class SecurityHeaders:
    """Adds the headers that keep browsers and caches from doing harm with a response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                secure = scope["scheme"] == "https"
                for name, value in (_HEADERS | _HTTPS_HEADERS if secure else _HEADERS).items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)


def _claimed(scope: Scope) -> int:
    """Return the length that a request claims; 0 where it claims no valid one."""
    lengths = (value for name, value in scope["headers"] if name == b"content-length")
    return next((int(value[:19]) for value in lengths if value.isdigit()), 0)


def _signed(scope: Scope) -> bool:
    """Tell whether a request claims a signature; that is verified once its body is read."""
    return {b"signature", b"signature-input"} <= {name for name, _ in scope["headers"]}


def _has_token(scope: Scope) -> bool:
    """Tell whether a request brings a token; whose it is turns out once its body is read."""
    return any(name == b"authorization" for name, _ in scope["headers"])


def _too_large(scope: Scope, bytes_max: int) -> Response:
    sentence = f"a body may have {bytes_max} bytes at this address"
    if not bytes_max:
        sentence = f"{scope['method']:.20} has no body here; found one, send none"
    elif scope["method"] == "PUT" and _UPDATE.fullmatch(scope["path"]) and not _signed(scope):
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
