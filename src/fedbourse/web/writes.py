"""The one way to carry out a write: once, atomically, with the same response when repeated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Conflict, FedbourseError, InvalidInput
from fedbourse.market.ports import Store, Transaction
from fedbourse.market.records import Response
from fedbourse.protocol.signatures import Request

_RETENTION_MS = 24 * 3600 * 1000
"""How long the response to a write is stored."""
_PUT_RETENTION_MS = 15 * 60 * 1000
"""The same for a PUT, which is idempotent by itself. There is one for every tick reply and update
of every owner."""
_KEY = re.compile(r"[\x21-\x7e]{8,128}")


@dataclass(frozen=True)
class WriteOutcome:
    """The response to a write."""

    status: int
    body: str
    replayed: bool = False


def carry_out(
    store: Store,
    request: Request,
    *,
    caller: str,
    confirm: Callable[[Transaction], None],
    command: Callable[[Transaction], object],
    now_ms: int,
    status: int = 200,
    scopes: Iterable[str] = (),
) -> WriteOutcome:
    """Carry out a command in one transaction, or return the outcome of its first time.

    ``confirm`` checks the caller's proof and uses up its nonce. A command that is refused leaves
    nothing behind but that nonce: a refused request cannot be replayed later, when it might pass.
    ``scopes`` are the caller's: an outcome under other scopes is not shown.
    """
    key = _idempotency_key(request)
    # What a request asks for, and as whom, however it is signed.
    fingerprint = digest(
        [request.method, request.path, request.query, request.body_hash, sorted(scopes)]
    )
    expires_ms = now_ms + (_PUT_RETENTION_MS if request.method == "PUT" else _RETENTION_MS)
    refusal: FedbourseError | None = None
    outcome = WriteOutcome(status, "")
    with store.begin() as tx:
        confirm(tx)
        try:
            with tx.savepoint():
                stored = tx.claim(caller, key, fingerprint, expires_ms=expires_ms)
                if stored is None:
                    body = canonical(command(tx)).decode()
                    outcome = WriteOutcome(status, body)
                    tx.keep_response(caller, key, Response(fingerprint, status, body))
                elif stored.fingerprint != fingerprint:
                    raise Conflict(
                        f"the idempotency key {key[:60]} was used before for another request; "
                        "make a new one"
                    )
                else:
                    outcome = WriteOutcome(stored.status, stored.body, replayed=True)
        except FedbourseError as error:
            if error.http_status >= 500:
                raise  # the database failed: there is nothing left to end
            refusal = error
    if refusal is not None:
        raise refusal
    return outcome


def _idempotency_key(request: Request) -> str:
    key = request.header("idempotency-key")
    if key is None or not _KEY.fullmatch(key):
        raise InvalidInput(
            "a write needs the header Idempotency-Key with 8 to 128 visible ASCII characters; "
            f"found {'none' if key is None else ascii(key)[:60]}"
        )
    return key
