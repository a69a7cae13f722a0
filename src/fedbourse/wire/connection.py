"""The client's side of the market's service, for the command line and for devices."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

from fedbourse.errors import InvalidInput, NotSignedIn, Unreachable
from fedbourse.wire import bounds
from fedbourse.wire.address import certificates, market_address
from fedbourse.wire.canonical import canonical
from fedbourse.wire.deadline import Deadline
from fedbourse.wire.json_body import read_json
from fedbourse.wire.keys import verified
from fedbourse.wire.messages import market_message
from fedbourse.wire.refusal import refusal
from fedbourse.wire.rotation import keys_since
from fedbourse.wire.signatures import Request, sign_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import httpx2

    from fedbourse.wire.bounds import Allowance
    from fedbourse.wire.keys import SigningKey

ATTEMPTS = 5
"""How often a request that got no answer is sent, the first time included."""
_NO_ANSWER = (502, 503, 504)


@dataclass(frozen=True)
class Fetched:
    """What a request was answered with."""

    status: int
    headers: Mapping[str, str]
    """Their names in lower case."""
    content: bytes


class Connection:
    """A connection to one market, by one caller: with a token, with a device's key, or neither.

    Each write carries an idempotency key, so that sending it again has no second effect.
    """

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
        """Check the address; nothing is sent yet."""
        import httpx2

        if token is not None and key is not None:
            raise InvalidInput("a connection has a token or a key; found both")
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidInput("a token is one word of visible characters; found something else")
        self.server_url = market_address(server_url)
        self._token, self._key = token, key
        self.market_key = market_key
        """The key that the market must sign with."""
        self._timeout_s, self._sleep, self._now_ms = timeout_s, sleep, now_ms
        self._document_bytes_max, self._deadline = document_bytes_max, Deadline()
        secure = self.server_url.startswith("https:")
        self._client = httpx2.Client(
            base_url=self.server_url,
            verify=certificates(ca_file)
            if secure
            else False,  # http:// needs no certificates at all
            # A proxy named by the environment would be shown what plain HTTP to this machine says.
            trust_env=secure,
            timeout=timeout_s,
            follow_redirects=False,
            transport=transport,
            headers={"Accept-Encoding": "identity", "User-Agent": "fedbourse"},
        )

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        self._client.close()

    def get(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        *,
        at_most: int | None = None,
        wait_s: float = 0.0,
        allowance: Allowance | None = None,
    ) -> Any:
        """Return a document; ``wait_s`` is how long the market was asked to wait with it.

        ``at_most`` bounds its bytes, and ``allowance`` those of all requests that share it.
        """
        answer = self._ask(
            "GET", path, params=params, at_most=at_most, wait_s=wait_s, allowance=allowance
        )
        return self._json(answer.content)

    def pages(
        self,
        path: str,
        items: str,
        params: Mapping[str, Any] | None = None,
        *,
        allowance: Allowance,
        cursor: str = "after",
    ) -> Iterator[dict[str, Any]]:
        """Return the items of a list that comes page by page, as far as the allowance reaches."""
        asked = dict(params or {})
        while True:
            page = self.get(path, asked, allowance=allowance)
            found = page.get(items) if isinstance(page, dict) else None
            if not isinstance(found, list):
                raise Unreachable(f"{self.server_url} shows a page without {items}")
            for each in found:
                if not isinstance(each, dict):
                    raise Unreachable(f"{self.server_url} lists {each!r:.40} among its {items}")
                yield each
            asked[cursor] = page.get("next")
            if asked[cursor] is None:
                return
            if isinstance(asked[cursor], bool) or not isinstance(asked[cursor], int | str):
                raise Unreachable(f"{self.server_url} goes on at {asked[cursor]!r:.40}")

    def fetch(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        *,
        at_most: int = bounds.MODEL_BYTES_MAX,
        wait_s: float = 0.0,
    ) -> Fetched:
        """Return a body that is no document, such as a model, with what its headers say of it."""
        return self._ask("GET", path, params=params, at_most=at_most, wait_s=wait_s)

    def post(self, path: str, document: object = None, *, idempotency_key: str = "") -> Any:
        """Send a document, and return the one that answers it."""
        return self._json(self._write("POST", path, document, idempotency_key))

    def put(self, path: str, document: object = None, *, idempotency_key: str = "") -> Any:
        """Send a document in place of an earlier one, and return the one that answers it."""
        return self._json(self._write("PUT", path, document, idempotency_key))

    def delete(
        self, path: str, params: Mapping[str, Any] | None = None, *, idempotency_key: str = ""
    ) -> Any:
        """End something, and return the document that answers it."""
        headers = _write_headers("application/json", idempotency_key)
        return self._json(self._ask("DELETE", path, params=params, headers=headers).content)

    def get_bytes(self, path: str, *, at_most: int = bounds.MODEL_BYTES_MAX) -> bytes:
        """Return a body that is no document, such as a model."""
        return self._ask("GET", path, at_most=at_most).content

    def put_bytes(self, path: str, content: bytes, *, idempotency_key: str = "") -> Any:
        """Send a body that is no document, such as an answer, and return what answers it."""
        headers = _write_headers("application/octet-stream", idempotency_key)
        return self._json(self._ask("PUT", path, content=content, headers=headers).content)

    def check_market(self) -> Any:
        """Return what the market says of itself; refuse one that does not hold the pinned key.

        Where that has been replaced by a key that it vouches for, the last one is pinned from now
        on (``wire.rotation``).
        """
        challenge = secrets.token_hex(16)
        document = self.get("/v1/market", {"challenge": challenge})
        if self.market_key is None:
            return document
        facts = document if isinstance(document, dict) else {}
        found = facts.get("public_key")
        since = keys_since(self.market_key, facts.get("rotations"))
        if found != (since[-1] if since else self.market_key):
            raise NotSignedIn(
                f"{self.server_url} shows the key {found!a:.60}, not {self.market_key}, which "
                "this connection was told to expect, nor one that it vouches for"
            )
        message = market_message(host=self.authority, challenge=challenge)
        if not verified(str(found), canonical(message), str(facts.get("proof"))):
            raise NotSignedIn(
                f"{self.server_url} shows the key {found}, and does not prove that "
                "it holds it under this name"
            )
        self.market_key = str(found)
        return document

    @property
    def authority(self) -> str:
        """The host, with its port where that is not the usual one, by which the market is asked."""
        return self._client.base_url.netloc.decode("ascii").lower()

    def check_signed(self, document: object, signature: str) -> None:
        """Refuse a document that the market did not sign with its pinned key."""
        if self.market_key is None:
            raise InvalidInput("the market's key is not known here, so no signature can be checked")
        if not verified(self.market_key, canonical(document), signature):
            raise NotSignedIn(
                f"a document from {self.server_url} is not signed with {self.market_key}"
            )

    def events(self, path: str, after: int = -1) -> Iterator[dict[str, Any]]:
        """Return a task's events as they happen, until it has ended; breaks are mended."""
        import httpx2

        failures = 0
        while True:
            try:
                for event in self._stream(path, after):
                    after, failures = int(event["sequence"]), 0
                    yield event
            except _Ended:
                return
            except (httpx2.TransportError, Unreachable) as error:
                failures += 1
                if failures >= ATTEMPTS:
                    self._unreachable(error)
            else:
                failures += 1  # an end without a last word is a break too
                if failures >= ATTEMPTS:
                    self._unreachable("the stream ends again and again")
            self._sleep(_pause_s(failures))

    def _stream(self, path: str, after: int) -> Iterator[dict[str, Any]]:
        import httpx2

        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        request = self._request("GET", path, headers=headers)
        quiet = httpx2.Timeout(self._timeout_s, read=bounds.QUIET_S)
        request.extensions["timeout"] = quiet.as_dict()
        with self._deadline.within(bounds.PATIENCE_S):
            response = self._client.send(request, stream=True)
        try:
            if response.status_code == 204:
                raise _Ended
            if response.status_code != 200:
                self._refuse(response)
            for message in httpx2.EventSource(response, bounds.EVENT_BYTES_MAX):
                if not message.data:
                    continue
                event = self._json(message.data.encode())
                number = event.get("sequence") if isinstance(event, dict) else None
                if not isinstance(number, int) or number <= after:
                    raise Unreachable(
                        f"{self.server_url} streams something else than events after {after}"
                    )
                after = number
                yield event
        finally:
            response.close()

    def _write(self, method: str, path: str, document: object, idempotency_key: str) -> bytes:
        content = b"" if document is None else canonical(document)
        headers = _write_headers("application/json", idempotency_key)
        return self._ask(method, path, content=content, headers=headers).content

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
    ) -> Fetched:
        """Send a request until it is answered, and return the answer."""
        import httpx2

        most = self._document_bytes_max if at_most is None else at_most
        for attempt in range(1, ATTEMPTS + 1):
            # Signed afresh each time: the market accepts a nonce once, also where the answer to it
            # was lost.
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
                    if response.status_code not in _NO_ANSWER or attempt == ATTEMPTS:
                        if not response.is_success:
                            self._refuse(response)
                        said = {name.lower(): value for name, value in response.headers.items()}
                        body = self._body(response, most)
                        if allowance is not None:
                            allowance.take_bytes(len(body))
                        return Fetched(response.status_code, said, body)
                finally:
                    response.close()
            except httpx2.TransportError as error:
                if self._deadline.passed:
                    self._unreachable("it takes too long, a little at a time")
                if attempt == ATTEMPTS or isinstance(error, httpx2.ProxyError):
                    self._unreachable(error)
            self._sleep(_pause_s(attempt))
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
        given = {name: value for name, value in (params or {}).items() if value is not None}
        request = self._client.build_request(
            method, path, params=given or None, content=content or None, headers=dict(headers or {})
        )
        request.extensions["trace"] = self._deadline.trace
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        if self._key is not None:
            raw_path, _, query = request.url.raw_path.decode().partition("?")
            asked = Request(
                method=method,
                scheme=request.url.scheme,
                authority=request.headers["host"],
                path=raw_path,
                query=query,
                headers=tuple(request.headers.items()),
                body=content,
            )
            nonce = secrets.token_urlsafe(24)
            added = sign_request(asked, self._key, now_ms=self._now_ms(), nonce=nonce)
            request.headers.update(added)
        return request

    def _body(self, response: httpx2.Response, at_most: int) -> bytes:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Unreachable(f"{self.server_url} answers in a compressed form that was not asked")
        body, begun_ms = bytearray(), self._now_ms()  # not a list: parts may be of a byte each
        with self._deadline.within(bounds.PATIENCE_S + at_most / bounds.BYTES_PER_S_MIN):
            for part in response.iter_bytes():
                body += part
                took_s = (self._now_ms() - begun_ms) / 1000
                if took_s > bounds.PATIENCE_S + len(body) / bounds.BYTES_PER_S_MIN:
                    raise Unreachable(
                        f"{self.server_url} answers too slowly: {len(body)} bytes so far"
                    )
                if len(body) > at_most:
                    raise Unreachable(
                        f"{self.server_url} answers with more than the {at_most} bytes that are "
                        "read"
                    )
        return bytes(body)

    def _json(self, content: bytes) -> Any:
        if not content:
            return None
        try:
            return read_json(content, bytes_per_value_min=bounds.BYTES_PER_VALUE_MIN)
        except InvalidInput as error:
            raise Unreachable(f"{self.server_url} does not answer like a market: {error}") from None

    def _refuse(self, response: httpx2.Response) -> NoReturn:
        """Raise the error that an answer stands for."""
        if response.is_redirect:
            raise Unreachable(
                f"{self.server_url} sends on to {response.headers.get('location', '')!a:.80}; "
                "redirects are not followed, so name the market's own address"
            )
        try:
            body = self._body(response, bounds.PROBLEM_BYTES_MAX)
        except Unreachable:  # no problem is so long
            body = b""
        raise refusal(self.server_url, response.status_code, body)

    def _unreachable(self, error: object) -> NoReturn:
        raise Unreachable(
            f"{self.server_url} does not answer: {error or type(error).__name__!s:.200}"
        ) from None


class _Ended(Exception):
    """The task has ended, and every event was sent."""


def _write_headers(content_type: str, idempotency_key: str) -> dict[str, str]:
    return {
        "Content-Type": content_type,
        "Idempotency-Key": idempotency_key or secrets.token_urlsafe(24),
    }


def _pause_s(attempt: int) -> float:
    # Spread, so that many devices do not come back at the same moment.
    return min(0.1 * 2.0**attempt, 5.0) * (0.5 + secrets.randbelow(1000) / 1000)
