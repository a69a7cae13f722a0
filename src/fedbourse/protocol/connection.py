"""The client's side of the market's service, for the command line and for devices."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from fedbourse.encoding.canonical import canonical
from fedbourse.encoding.strict_json import read_json
from fedbourse.errors import InvalidInput, ProtocolError, Unauthenticated, Unreachable
from fedbourse.protocol import bounds
from fedbourse.protocol.keys import verified
from fedbourse.protocol.messages import market_message
from fedbourse.protocol.rotation import keys_since
from fedbourse.protocol.transport import ATTEMPTS, MarketResponse, Transport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fedbourse.protocol.bounds import Allowance


class Connection(Transport):
    """A connection to one market, by one caller.

    Each write carries an idempotency key, so that sending it again has no second effect.
    """

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
        response = self._ask(
            "GET", path, params=params, at_most=at_most, wait_s=wait_s, allowance=allowance
        )
        return self._json(response.content)

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
        query = dict(params or {})
        while True:
            page = self.get(path, query, allowance=allowance)
            entries = page.get(items) if isinstance(page, dict) else None
            if not isinstance(entries, list):
                raise ProtocolError(f"{self.server_url} sends a page without {items}")
            for entry in entries:
                if not isinstance(entry, dict):
                    raise ProtocolError(f"{self.server_url} lists {entry!r:.40} among its {items}")
                yield entry
            following = page.get("next")
            if following is None:
                return
            if isinstance(following, bool) or not isinstance(following, int | str):
                raise ProtocolError(f"{self.server_url} continues at {following!r:.40}")
            query[cursor] = following

    def fetch(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        *,
        at_most: int = bounds.MODEL_BYTES_MAX,
        wait_s: float = 0.0,
    ) -> MarketResponse:
        """Return a body that is not JSON, such as a model, with its headers."""
        return self._ask("GET", path, params=params, at_most=at_most, wait_s=wait_s)

    def post(self, path: str, document: object = None, *, idempotency_key: str = "") -> Any:
        """Send a document, and return the response."""
        return self._json(self._write("POST", path, document, idempotency_key))

    def put(self, path: str, document: object = None, *, idempotency_key: str = "") -> Any:
        """Replace a document, and return the response."""
        return self._json(self._write("PUT", path, document, idempotency_key))

    def delete(
        self, path: str, params: Mapping[str, Any] | None = None, *, idempotency_key: str = ""
    ) -> Any:
        """End something, and return the response."""
        headers = _write_headers("application/json", idempotency_key)
        return self._json(self._ask("DELETE", path, params=params, headers=headers).content)

    def get_bytes(self, path: str, *, at_most: int = bounds.MODEL_BYTES_MAX) -> bytes:
        """Return a body that is not JSON, such as a model."""
        return self._ask("GET", path, at_most=at_most).content

    def put_bytes(self, path: str, content: bytes, *, idempotency_key: str = "") -> Any:
        """Send a body that is not JSON, such as an update, and return the response."""
        headers = _write_headers("application/octet-stream", idempotency_key)
        return self._json(self._ask("PUT", path, content=content, headers=headers).content)

    def check_market(self) -> Any:
        """Return the market's facts; refuse one that does not hold the pinned key.

        If that key has been rotated, the newest key that it vouches for is pinned from now on.
        """
        challenge = secrets.token_hex(16)
        document = self.get("/v1/market", {"challenge": challenge})
        if self.market_key is None:
            return document
        facts = document if isinstance(document, dict) else {}
        key = facts.get("public_key")
        newest = (self.market_key, *keys_since(self.market_key, facts.get("rotations")))[-1]
        if key != newest:
            raise Unauthenticated(
                f"{self.server_url} has the key {key!a:.60}; expected {self.market_key}, or one "
                "that it vouches for"
            )
        message = market_message(host=self.authority, challenge=challenge)
        if not verified(newest, canonical(message), str(facts.get("proof"))):
            raise Unauthenticated(
                f"{self.server_url} shows the key {key}, and does not prove that "
                "it holds it under this name"
            )
        self.market_key = newest
        return document

    def check_signed(self, document: object, signature: str) -> None:
        """Refuse a document that the market did not sign with its pinned key."""
        if self.market_key is None:
            raise InvalidInput("without the market's key no signature can be checked")
        if not verified(self.market_key, canonical(document), signature):
            raise Unauthenticated(
                f"a document from {self.server_url} is not signed with {self.market_key}"
            )

    def events(self, path: str, after: int = -1) -> Iterator[dict[str, Any]]:
        """Yield a task's events as they happen until it ends; reconnect when the stream breaks."""
        import httpx2

        failures = 0
        while True:
            try:
                for event in self._stream(path, after):
                    after, failures = int(event["sequence"]), 0
                    yield event
            except _Ended:
                return
            except (httpx2.TransportError, ProtocolError, Unreachable) as error:
                problem: object = error
            else:
                problem = "the stream ends again and again"  # a 204 is its proper end
            failures += 1
            if failures >= ATTEMPTS:
                if isinstance(problem, ProtocolError):
                    raise problem
                self._unreachable(problem)
            self._back_off(failures)

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
                    raise ProtocolError(
                        f"{self.server_url} streams something other than events after {after}"
                    )
                after = number
                yield event
        finally:
            response.close()

    def _write(self, method: str, path: str, document: object, idempotency_key: str) -> bytes:
        content = b"" if document is None else canonical(document)
        headers = _write_headers("application/json", idempotency_key)
        return self._ask(method, path, content=content, headers=headers).content

    def _json(self, content: bytes) -> Any:
        if not content:
            return None
        try:
            return read_json(content, bytes_per_value_min=bounds.BYTES_PER_VALUE_MIN)
        except InvalidInput as error:
            raise ProtocolError(f"{self.server_url} sends an invalid document: {error}") from None


class _Ended(Exception):
    """The task has ended, and every event was sent."""


def _write_headers(content_type: str, idempotency_key: str) -> dict[str, str]:
    return {
        "Content-Type": content_type,
        "Idempotency-Key": idempotency_key or secrets.token_urlsafe(24),
    }
