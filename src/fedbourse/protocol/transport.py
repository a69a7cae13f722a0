"""How a request reaches a market: signed, sent until there is a response, read within bounds."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

from fedbourse.errors import InvalidInput, ProtocolError, Unreachable
from fedbourse.protocol import bounds
from fedbourse.protocol.address import certificates, market_address
from fedbourse.protocol.deadline import Deadline
from fedbourse.protocol.refusal import refusal
from fedbourse.protocol.signatures import Request, sign_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx2

    from fedbourse.protocol.bounds import Allowance
    from fedbourse.protocol.keys import SigningKey

ATTEMPTS = 5
"""How often a request without a response is sent, the first time included."""
_NO_RESPONSE = (502, 503, 504)


@dataclass(frozen=True)
class MarketResponse:
    """A response of the market, read to its end."""

    status: int
    headers: Mapping[str, str]
    """Their names in lower case."""
    content: bytes


class Transport:
    """HTTP to one market, for one caller: with a token, with a device's key, or neither."""

    def __init__(
        self,
        server_url: str,
        *,
        token: str | None = None,
        key: SigningKey | None = None,
        market_key: str | None = None,
        ca_file: str | None = None,
        document_bytes_max: int = bounds.DOCUMENT_BYTES_MAX,
        timeout_s: float = 30.0,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        import httpx2

        if token is not None and key is not None:
            raise InvalidInput("a connection has a token or a key, not both")
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidInput("a token must be one word of printable ASCII characters")
        self.server_url = market_address(server_url)
        self._token, self._key = token, key
        self.market_key = market_key
        """The key that the market must sign with."""
        self._timeout_s, self._sleep, self._now_ms = timeout_s, sleep, now_ms
        self._document_bytes_max, self._deadline = document_bytes_max, Deadline()
        secure = self.server_url.startswith("https:")
        self._client = httpx2.Client(
            base_url=self.server_url,
            verify=secure and certificates(ca_file),
            # A proxy from the environment would see plain HTTP that is meant for this machine.
            trust_env=secure,
            timeout=timeout_s,
            follow_redirects=False,
            transport=transport,
            headers={"Accept-Encoding": "identity", "User-Agent": "fedbourse"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        self._client.close()

    @property
    def authority(self) -> str:
        """The market's host, with its port unless that is the default."""
        return self._client.base_url.netloc.decode("ascii").lower()

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        at_most: int | None = None,
        wait_s: float = 0.0,
        allowance: Allowance | None = None,
    ) -> MarketResponse:
        """Send a request until there is a response, and return it."""
        import httpx2

        most = self._document_bytes_max if at_most is None else at_most
        for attempt in range(1, ATTEMPTS + 1):
            # Signed afresh each time: a nonce counts once, even if the response is lost.
            request = self._request(method, path, params=params, content=content, headers=headers)
            if wait_s > 0:
                patience = httpx2.Timeout(self._timeout_s, read=self._timeout_s + wait_s)
                request.extensions["timeout"] = patience.as_dict()
            if allowance is not None:
                allowance.take_request()
            try:
                head_s = bounds.PATIENCE_S + wait_s + len(content) / bounds.BYTES_PER_S_MIN
                with self._deadline.within(head_s):
                    response = self._client.send(request, stream=True)
                try:
                    if response.status_code not in _NO_RESPONSE or attempt == ATTEMPTS:
                        if not response.is_success:
                            self._refuse(response)
                        headers_read = {k.lower(): v for k, v in response.headers.items()}
                        body = self._body(response, most)
                        if allowance is not None:
                            allowance.take_bytes(len(body))
                        return MarketResponse(response.status_code, headers_read, body)
                finally:
                    response.close()
            except httpx2.TransportError as error:
                if self._deadline.passed:
                    self._unreachable("it takes too long, a little at a time")
                if attempt == ATTEMPTS or isinstance(error, httpx2.ProxyError):
                    self._unreachable(error)
            self._back_off(attempt)
        raise AssertionError("the last attempt returns or raises")

    def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Request:
        if not path.startswith("/") or path.startswith("//"):
            raise InvalidInput(f"a path starts with one slash; found {path!r:.60}")
        query = {name: value for name, value in (params or {}).items() if value is not None}
        request = self._client.build_request(
            method, path, params=query or None, content=content or None, headers=dict(headers or {})
        )
        request.extensions["trace"] = self._deadline.trace
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        if self._key is not None:
            raw_path, _, raw_query = request.url.raw_path.decode().partition("?")
            signed = Request(
                method=method,
                scheme=request.url.scheme,
                authority=request.headers["host"],
                path=raw_path,
                query=raw_query,
                headers=tuple(request.headers.items()),
                body=content,
            )
            nonce = secrets.token_urlsafe(24)
            request.headers.update(
                sign_request(signed, self._key, now_ms=self._now_ms(), nonce=nonce)
            )
        return request

    def _body(self, response: httpx2.Response, at_most: int) -> bytes:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise ProtocolError(f"{self.server_url} sends a compressed response, unasked")
        body, begun_ms = bytearray(), self._now_ms()  # not a list: parts may be of a byte each
        with self._deadline.within(bounds.PATIENCE_S + at_most / bounds.BYTES_PER_S_MIN):
            for part in response.iter_bytes():
                body += part
                took_s = (self._now_ms() - begun_ms) / 1000
                if took_s > bounds.PATIENCE_S + len(body) / bounds.BYTES_PER_S_MIN:
                    raise Unreachable(
                        f"{self.server_url} responds too slowly: {len(body)} bytes so far"
                    )
                if len(body) > at_most:
                    raise ProtocolError(
                        f"{self.server_url} responds with more than the {at_most} bytes that are "
                        "read"
                    )
        return bytes(body)

    def _back_off(self, attempt: int) -> None:
        self._sleep(_pause_s(attempt))

    def _refuse(self, response: httpx2.Response) -> NoReturn:
        """Raise the error that a response stands for."""
        if response.is_redirect:
            raise ProtocolError(
                f"{self.server_url} redirects to {response.headers.get('location', '')!a:.80}; "
                "redirects are not followed: give the market's own address"
            )
        try:
            body = self._body(response, bounds.PROBLEM_BYTES_MAX)
        except (ProtocolError, Unreachable):  # no refusal is that long
            body = b""
        raise refusal(self.server_url, response.status_code, body)

    def _unreachable(self, error: object) -> NoReturn:
        raise Unreachable(
            f"{self.server_url} does not respond: {error or type(error).__name__!s:.200}"
        ) from None


def _pause_s(attempt: int) -> float:
    # Spread, so that many devices do not come back at the same moment.
    return min(0.1 * 2.0**attempt, 5.0) * (0.5 + secrets.randbelow(1000) / 1000)
