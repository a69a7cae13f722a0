"""The one way in which a write is carried out: once, whole, and answered alike when repeated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import Conflict, FedbourseError, InvalidInput
from fedbourse.market.task import Response
from fedbourse.wire.canonical import canonical, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fedbourse.market.ports import Store, Unit
    from fedbourse.wire.signatures import Request

_KEPT_MS = 24 * 3600 * 1000
"""How long it is remembered what a write was answered with."""
_KEPT_SHORTLY_MS = 15 * 60 * 1000
"""The same of a PUT: said once more it puts the same in place of the same. There are as many as
owners have replies to ticks and answers to rounds."""
_KEY = re.compile(r"[\x21-\x7e]{8,128}")


@dataclass(frozen=True)
class Outcome:
    """What a write is answered with."""

    status: int
    body: str
    replayed: bool = False


def carry_out(
    store: Store,
    request: Request,
    *,
    caller: str,
    confirm: Callable[[Unit], None],
    command: Callable[[Unit], object],
    now_ms: int,
    status: int = 200,
    scopes: Iterable[str] = (),
) -> Outcome:
    """Carry out a command in one transaction, or return what its first time was answered with.

    ``confirm`` checks the caller's proof and uses up its nonce. A command that is refused leaves
    nothing behind but that nonce: a refused request cannot be replayed later, when it might pass.
    ``scopes`` are the caller's: what was answered under others is not shown.
    """
    key = _idempotency_key(request)
    fingerprint = fingerprint_of(request, scopes)
    expires_ms = now_ms + (_KEPT_SHORTLY_MS if request.method == "PUT" else _KEPT_MS)
    refused: FedbourseError | None = None
    outcome = Outcome(status, "")
    with store.begin() as unit:
        confirm(unit)
        try:
            with unit.savepoint():
                kept = unit.claim(caller, key, fingerprint, expires_ms=expires_ms)
                if kept is None:
                    body = canonical(command(unit)).decode()
                    outcome = Outcome(status, body)
                    unit.keep_response(caller, key, Response(fingerprint, status, body))
                else:
                    outcome = _repeated(kept, fingerprint, key)
        except FedbourseError as error:
            if error.http_status >= 500:
                raise  # the database failed: there is nothing left to end
            refused = error
    if refused is not None:
        raise refused
    return outcome


def fingerprint_of(request: Request, scopes: Iterable[str] = ()) -> str:
    """Return the hash of what a request asks for, and as whom, however it is signed."""
    asked = [request.method, request.path, request.query, request.body_hash, sorted(scopes)]
    return digest(asked)


def _repeated(kept: Response, fingerprint: str, key: str) -> Outcome:
    if kept.fingerprint != fingerprint:
        raise Conflict(
            f"the idempotency key {key[:60]} was used before for another request; make a new one"
        )
    return Outcome(kept.status, kept.body, replayed=True)


def _idempotency_key(request: Request) -> str:
    key = request.header("idempotency-key")
    if key is None or not _KEY.fullmatch(key):
        found = "none" if key is None else f"{key!a:.60}"
        raise InvalidInput(
            "a write needs the header Idempotency-Key with 8 to 128 visible ASCII characters; "
            f"found {found}"
        )
    return key
