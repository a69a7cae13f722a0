"""Authentication: from a request to its caller."""

from __future__ import annotations

import hmac
import re
import threading
from dataclasses import dataclass

from fedbourse.errors import InvalidInput, TooManyRequests, Unauthenticated
from fedbourse.market.commands.access import hash_of
from fedbourse.market.parties import Caller, EnrolledDevice
from fedbourse.market.ports import Transaction
from fedbourse.protocol.signatures import Request, Signature, is_signed, verify_request

_BEARER = re.compile(r"[Bb]earer +(fbt_[A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class Identity:
    """A caller, and its proof: a token or a signature."""

    caller: Caller
    token_hash: str | None = None
    signature: Signature | None = None


def identify(
    request: Request, tx: Transaction, *, now_ms: int, authorities: tuple[str, ...] = ()
) -> Identity | None:
    """Return who sent a request; None for a stranger who claims no identity.

    The nonce of a signature is not checked yet: see ``confirm``.
    """
    try:
        authorization = request.header("authorization")
    except InvalidInput as error:
        raise Unauthenticated(str(error)) from None
    if is_signed(request):
        if authorization is not None:
            raise Unauthenticated("a request carries a token or a signature; found both")
        return _by_signature(request, tx, now_ms, authorities)
    if authorization is None:
        return None
    token = _BEARER.fullmatch(authorization)
    if token is None:
        raise Unauthenticated("the header authorization must be: Bearer fbt_ and 43 characters")
    return identify_token(hash_of(token[1]), tx, now_ms=now_ms)


def confirm(identity: Identity, tx: Transaction, *, now_ms: int) -> None:
    """Check, in the transaction of the write, that the proof still holds, and use its nonce up."""
    still_holds(identity, tx, now_ms=now_ms)
    if identity.signature is not None:
        use_nonce(identity.signature, tx)


def still_holds(identity: Identity, tx: Transaction, *, now_ms: int) -> None:
    """Refuse a token that has ended meanwhile, and a device that was retired."""
    if identity.token_hash is not None:
        identify_token(identity.token_hash, tx, now_ms=now_ms)
    if identity.signature is not None and _device(tx, identity.signature.device) is None:
        raise Unauthenticated(_RETIRED)


def use_nonce(signature: Signature, tx: Transaction) -> None:
    """Refuse a signature that was used before."""
    if not tx.remember_nonce(signature.device, signature.nonce, expires_ms=signature.expires_ms):
        raise Unauthenticated(USED_BEFORE)


class ReadNonces:
    """The nonces of signed reads that this process has served.

    The nonce of a write is stored in the transaction of the write. A read changes nothing, and a
    device that waits for rounds reads all the time, so that its nonces stay in memory. The price:
    whoever holds a device's signed read (which takes broken TLS, or the market's own machine) can
    replay it within two minutes to another worker, or after a restart, and sees what the same
    read returns now of that device's own records.
    """

    def __init__(self, most: int = 200_000) -> None:
        self._most = most
        self._expires: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._expires)

    def use(self, signature: Signature, *, now_ms: int) -> None:
        """Remember a signature, and refuse one that was used before."""
        nonce = signature.device, signature.nonce
        with self._lock:
            if nonce in self._expires:
                raise Unauthenticated(USED_BEFORE)
            if len(self._expires) >= self._most:
                self._expires = {key: end for key, end in self._expires.items() if end >= now_ms}
            if len(self._expires) >= self._most:
                raise TooManyRequests("too many signed reads in two minutes; try again later")
            self._expires[nonce] = signature.expires_ms


def check_authority(request: Request, authorities: tuple[str, ...]) -> None:
    """Refuse a signature that was made for another market."""
    if authorities and request.authority.lower() not in authorities:
        raise Unauthenticated(
            f"the request is meant for {request.authority!a:.80}; "
            f"this market is {' or '.join(authorities)}"
        )


USED_BEFORE = "this signature was used before; sign each request afresh"
_RETIRED = "the device is not enrolled, or another one of its owner has taken its place"


def _by_signature(
    request: Request, tx: Transaction, now_ms: int, authorities: tuple[str, ...]
) -> Identity:
    check_authority(request, authorities)
    devices: list[EnrolledDevice] = []

    def public_key(device_id: str) -> str | None:
        device = _device(tx, device_id)
        if device is None:
            return None
        devices.append(device)
        return device.public_key

    try:
        signature = verify_request(request, public_key, now_ms=now_ms)
    except Unauthenticated:
        if not devices:
            raise Unauthenticated(f"the signature is not accepted: {_RETIRED}") from None
        raise
    (device,) = devices
    caller = Caller(party=device.owner, scopes=frozenset({"owner"}), device=device.id)
    return Identity(caller, signature=signature)


def _device(tx: Transaction, device_id: str) -> EnrolledDevice | None:
    if not re.fullmatch(r"[0-9a-f]{16}", device_id):
        return None
    device = tx.device(device_id)
    return None if device is None or device.retired_ms is not None else device


def identify_token(hash: str, tx: Transaction, *, now_ms: int) -> Identity:
    """Return who holds the token with a hash; one that has ended is refused."""
    token = tx.token_with(hash)
    if token is None or not hmac.compare_digest(token.hash, hash):
        raise Unauthenticated("the market does not know this token")
    if token.revoked_ms is not None:
        raise Unauthenticated("this token was revoked")
    if token.expires_ms is not None and now_ms >= token.expires_ms:
        raise Unauthenticated("this token has expired")
    return Identity(Caller(party=token.party, scopes=token.scopes), token_hash=hash)
