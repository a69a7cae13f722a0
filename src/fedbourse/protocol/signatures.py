"""Signed requests, after RFC 9421: who asks, what exactly, when, and only once.

A signature covers the method, authority, path, query, the hash of the body (RFC 9530) and the
idempotency key. The caller must remember the nonce: this module holds no state.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fedbourse.errors import FedbourseError, InvalidInput, Unauthenticated
from fedbourse.protocol.keys import SigningKey, key_id, public_key

if TYPE_CHECKING:
    from collections.abc import Callable

TAG = "fedbourse-v1"
WINDOW_MS = 60_000
"""How far the time of a signature may lie from now, either way."""
NONCE_CHARS = range(16, 65)
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_PARAMETERS = {"created", "nonce", "keyid", "alg", "tag"}
_INPUT_MAX = 1000
_LABEL = "fedbourse"
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(:[0-9]{1,5})?")


@dataclass(frozen=True)
class Request:
    """A request as it is sent: nothing decoded, nothing normalised."""

    method: str
    scheme: str
    authority: str
    """Host and port, as in the Host header."""
    path: str
    query: str = ""
    """Without the question mark."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return a header that may be sent once."""
        values = [value for key, value in self.headers if key.lower() == name]
        if len(values) > 1:
            raise InvalidInput(f"the header {name} may be sent once; found it {len(values)} times")
        return values[0].strip(" \t") if values else None

    @cached_property
    def body_hash(self) -> str:
        """SHA-256 of the body, which may be large and is asked for more than once."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def writes(self) -> bool:
        """Whether it asks for a change."""
        return self.method in _WRITES


@dataclass(frozen=True)
class Signature:
    """A signature that has been verified."""

    device: str
    nonce: str
    created_ms: int

    @property
    def expires_ms(self) -> int:
        """From when on the signature is too old by any clock, so that its nonce may be forgotten.

        The second window allows for servers whose clocks differ.
        """
        return self.created_ms + 2 * WINDOW_MS


def is_signed(request: Request) -> bool:
    """Say whether a request carries anything of a signature."""
    return any(key.lower() in ("signature", "signature-input") for key, _ in request.headers)


def sign_request(request: Request, key: SigningKey, *, now_ms: int, nonce: str) -> dict[str, str]:
    """Return the headers that sign a request; they are to be added to it as they are."""
    from http_message_signatures import HTTPMessageSigner, MappingKeyResolver, algorithms

    name = key_id(key.public)
    signer = HTTPMessageSigner(
        signature_algorithm=algorithms.ED25519,
        key_resolver=MappingKeyResolver(public_keys={}, private_keys={name: key.private}),
    )
    message = _Message(request)
    signer.sign(
        message,
        key_id=name,
        created=datetime.datetime.fromtimestamp(now_ms // 1000, tz=datetime.UTC),
        nonce=nonce,
        label=_LABEL,
        tag=TAG,
        covered_component_ids=_covered(request),
        body=request.body if _has_digest(request) else None,
    )
    return message.headers.added


def verify_request(
    request: Request, key_of: Callable[[str], str | None], *, now_ms: int
) -> Signature:
    """Return the signature of a request, or raise ``Unauthenticated`` whatever is wrong with it.

    ``key_of`` returns the public key of a device. What it raises itself is passed on.
    """
    keys = _key_resolver(key_of)
    try:
        return _verify(request, keys, now_ms)
    except Exception as error:
        if keys.failure is not None:
            raise keys.failure from None
        if isinstance(error, Unauthenticated):
            raise
        why = str(error) if isinstance(error, FedbourseError) else "it does not fit the request"
        raise Unauthenticated(f"the signature is not accepted: {why}") from None


def _verify(request: Request, keys: Any, now_ms: int) -> Signature:
    from http_message_signatures import algorithms

    for name in ("signature-input", "signature", "content-digest", "idempotency-key"):
        if len(request.header(name) or "") > _INPUT_MAX:
            raise Unauthenticated(f"the header {name} must be at most {_INPUT_MAX} characters")
    verifier = _verifier()(signature_algorithm=algorithms.ED25519, key_resolver=keys)
    results = verifier.verify(
        _Message(request),
        max_age=None,  # time is checked below, by the clock that was passed in
        expect_tag=TAG,
        body=request.body if _has_digest(request) else None,
    )
    if len(results) != 1:
        raise Unauthenticated(f"a request carries one signature; found {len(results)}")
    (result,) = results
    covered = set(result.covered_components) - {'"@signature-params"'}
    if covered != {f'"{name}"' for name in _covered(request)}:
        raise Unauthenticated(
            f"a signature must cover exactly {', '.join(_covered(request))}, without parameters"
        )
    if set(result.parameters) != _PARAMETERS:
        raise Unauthenticated(f"a signature must state exactly {', '.join(sorted(_PARAMETERS))}")
    nonce, created_ms = str(result.parameters["nonce"]), int(result.parameters["created"]) * 1000
    if len(nonce) not in NONCE_CHARS:
        raise Unauthenticated(f"a nonce must have 16 to 64 characters; found {len(nonce)}")
    if abs(created_ms - now_ms) > WINDOW_MS:
        raise Unauthenticated(
            f"a signature is good for {WINDOW_MS // 1000} s; this one was made at {created_ms} ms "
            f"and the market's clock says {now_ms} ms"
        )
    return Signature(device=str(result.parameters["keyid"]), nonce=nonce, created_ms=created_ms)


def _covered(request: Request) -> tuple[str, ...]:
    names = ["@method", "@authority", "@path", "@query"]
    if _has_digest(request):
        names.append("content-digest")
    if request.header("idempotency-key") is not None:
        names.append("idempotency-key")
    return tuple(names)


def _has_digest(request: Request) -> bool:
    return bool(request.body) or request.writes


class _Headers:
    """Headers in the order they were sent, as the library wants them; it may add, not change."""

    def __init__(self, lines: tuple[tuple[str, str], ...]) -> None:
        self._lines = lines
        self.added: dict[str, str] = {}

    def items(self) -> list[tuple[str, str]]:
        return [*self._lines, *self.added.items()]

    def __iter__(self) -> Any:
        return iter(dict.fromkeys(name for name, _ in self.items()))

    def __contains__(self, name: str) -> bool:
        return any(key.lower() == name.lower() for key, _ in self.items())

    def __setitem__(self, name: str, value: str) -> None:
        self.added[name] = value

    def __delitem__(self, name: str) -> None:
        raise InvalidInput(f"the request carries the header {name} already; sign it once")


class _Message:
    """A request as the library wants it."""

    def __init__(self, request: Request) -> None:
        # The library takes the parts out of the whole address again: a Host of "market/paid#" would
        # lend the signature of one path to another.
        if not _AUTHORITY.fullmatch(request.authority):
            raise InvalidInput(
                f"the host must be a name and a port; found {request.authority!a:.60}"
            )
        if (
            not request.path.startswith("/")
            or set("?#") & set(request.path)
            or "#" in request.query
        ):
            raise InvalidInput("the path or query holds a character that must be encoded")
        self.method = request.method
        query = f"?{request.query}" if request.query else ""
        self.url = f"{request.scheme}://{request.authority}{request.path}{query}"
        self.headers = _Headers(request.headers)


def _key_resolver(key_of: Callable[[str], str | None]) -> Any:
    from http_message_signatures import HTTPSignatureKeyResolver

    class Keys(HTTPSignatureKeyResolver):
        # The library turns whatever is raised here into "invalid signature"; a database that does
        # not respond must not look like a forgery.
        failure: Exception | None = None

        def resolve_public_key(self, key_id: str) -> Any:
            try:
                public = key_of(key_id)
            except Exception as error:
                self.failure = error
                raise
            return None if public is None else public_key(public)

    return Keys()


def _verifier() -> Any:
    from http_message_signatures import HTTPMessageVerifier

    class Verifier(HTTPMessageVerifier):
        def validate_created_and_expires(self, sig_input: Any, max_age: Any = None) -> None:
            """Leave the time to the caller: the library would ask the machine's clock."""

    return Verifier
