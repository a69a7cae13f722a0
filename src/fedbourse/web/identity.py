"""From a request to the caller who proved to be behind it."""

from __future__ import annotations

import hmac
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import InvalidInput, NotSignedIn, TooManyRequests
from fedbourse.market.access import hash_of
from fedbourse.market.parties import Caller
from fedbourse.wire.signatures import is_signed, verify_request

if TYPE_CHECKING:
    from fedbourse.market.parties import Device, Token
    from fedbourse.market.ports import Unit
    from fedbourse.wire.signatures import Request, Signature

_BEARER = re.compile(r"[Bb]earer +(fbt_[A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class Identity:
    """A caller, and by what it proved who it is."""

    caller: Caller
    token_hash: str | None = None
    signature: Signature | None = None


def identify(
    request: Request, unit: Unit, *, now_ms: int, authorities: tuple[str, ...] = ()
) -> Identity | None:
    """Return who sent a request; None for a stranger who claims to be nobody.

    The nonce of a signature is not looked at yet: see ``confirm``.
    """
    try:
        authorization = request.header("authorization")
    except InvalidInput as error:
        raise NotSignedIn(str(error)) from None
    if is_signed(request):
        if authorization is not None:
            raise NotSignedIn("a request carries a token or a signature; found both")
        return _by_signature(request, unit, now_ms, authorities)
    if authorization is None:
        return None
    found = _BEARER.fullmatch(authorization)
    if not found:
        raise NotSignedIn("the header authorization must be: Bearer fbt_ and 43 characters")
    return _by_token(hash_of(found[1]), unit, now_ms)


def confirm(identity: Identity, unit: Unit, *, now_ms: int) -> None:
    """Check in the transaction that counts that the proof still holds, and use its nonce up."""
    still_holds(identity, unit, now_ms=now_ms)
    if identity.signature is not None:
        use_nonce(identity.signature, unit)


def still_holds(identity: Identity, unit: Unit, *, now_ms: int) -> None:
    """Refuse a token that has ended meanwhile, and a device that was retired."""
    if identity.token_hash is not None:
        _by_token(identity.token_hash, unit, now_ms)
    if identity.signature is not None and _device(unit, identity.signature.device) is None:
        raise NotSignedIn(_RETIRED)


def use_nonce(signature: Signature, unit: Unit) -> None:
    """Refuse a signature that was used before."""
    if not unit.remember_nonce(signature.device, signature.nonce, expires_ms=signature.expires_ms):
        raise NotSignedIn(USED_BEFORE)


class ReadNonces:
    """The nonces of signed reads that this process has answered.

    The nonce of a write is kept in the database, in the transaction of the write. A read changes
    nothing, and a device that waits for rounds reads all the time, so that its nonces are kept in
    memory. What that gives up: whoever has a device's signed read in hand (which takes TLS broken,
    or the market's own machine) can have it answered again within two minutes by another worker,
    or after a restart. It learns what the same read says now, of that device's own records.
    """

    def __init__(self, most: int = 200_000) -> None:
        """Start with none; beyond ``most`` that have not expired, reads have to wait."""
        self._most = most
        self._expires: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._expires)

    def use(self, signature: Signature, *, now_ms: int) -> None:
        """Remember a signature, and refuse one that was used before."""
        key = signature.device, signature.nonce
        with self._lock:
            if key in self._expires:
                raise NotSignedIn(USED_BEFORE)
            if len(self._expires) >= self._most:
                kept = {each: end for each, end in self._expires.items() if end >= now_ms}
                self._expires = kept
            if len(self._expires) >= self._most:
                raise TooManyRequests("too many signed reads in two minutes; ask again later")
            self._expires[key] = signature.expires_ms


def check_authority(request: Request, authorities: tuple[str, ...]) -> None:
    """Refuse a signature that was made for another market."""
    if authorities and request.authority.lower() not in authorities:
        raise NotSignedIn(
            f"the request is meant for {request.authority!a:.80}; "
            f"this market is {' or '.join(authorities)}"
        )


USED_BEFORE = "this signature was used before; sign each request afresh"
_RETIRED = "the device is not enrolled, or another one of its owner has taken its place"


def _by_signature(
    request: Request, unit: Unit, now_ms: int, authorities: tuple[str, ...]
) -> Identity:
    check_authority(request, authorities)
    seen: list[Device] = []

    def known(device_id: str) -> str | None:
        device = _device(unit, device_id)
        if device is None:
            return None
        seen.append(device)
        return device.public_key

    try:
        signature = verify_request(request, known, now_ms=now_ms)
    except NotSignedIn:
        if not seen:
            raise NotSignedIn(f"the signature is not accepted: {_RETIRED}") from None
        raise
    (device,) = seen
    caller = Caller(party=device.owner, scopes=frozenset({"owner"}), device=device.id)
    return Identity(caller, signature=signature)


def _device(unit: Unit, device_id: str) -> Device | None:
    if not re.fullmatch(r"[0-9a-f]{16}", device_id):
        return None
    device = unit.device(device_id)
    return None if device is None or device.retired_ms is not None else device


def _by_token(hash: str, unit: Unit, now_ms: int) -> Identity:
    token = unit.token_with(hash)
    if token is None or not hmac.compare_digest(token.hash, hash):
        raise NotSignedIn("the market does not know this token")
    _check_token(token, now_ms)
    return Identity(Caller(party=token.party, scopes=token.scopes), token_hash=hash)


def _check_token(token: Token, now_ms: int) -> None:
    if token.revoked_ms is not None:
        raise NotSignedIn("this token was revoked")
    if token.expires_ms is not None and now_ms >= token.expires_ms:
        raise NotSignedIn("this token has expired")
