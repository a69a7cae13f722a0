"""Cookie sessions: a browser that has shown a token once need not show it again for half a day.

The cookie holds the token's hash, never the token, under an authentication code of the market's
key. Every request looks the token up again, so that a revoked one ends its sessions at once, as
signing out ends one of them for good.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass

from starlette.responses import Response

from fedbourse.errors import Unauthenticated
from fedbourse.market.ports import Transaction
from fedbourse.market.service import Market
from fedbourse.protocol.keys import key_id
from fedbourse.protocol.signatures import Request
from fedbourse.web.identity import Identity, identify_token

LIFE_S = 12 * 3600
_COOKIE = re.compile(r"([0-9a-f]{32})\.([0-9a-f]{64})\.([0-9]{1,15})\.([0-9a-f]{64})")


@dataclass(frozen=True)
class Session:
    """A browser that is signed in."""

    id: str
    """Random; it binds forms to this session."""
    token_hash: str
    issued_ms: int

    @property
    def expires_ms(self) -> int:
        """When it ends by itself."""
        return self.issued_ms + LIFE_S * 1000


def new_session(token_hash: str, *, now_ms: int) -> Session:
    """Begin a session of the holder of a token."""
    return Session(id=secrets.token_hex(16), token_hash=token_hash, issued_ms=now_ms)


def cookie_name(market: Market, scheme: str) -> str:
    """Return the cookie's name: cookies know no ports, and one machine may run several markets."""
    name = f"fedbourse-{key_id(market.key.public)[:8]}"
    return f"__Host-{name}" if scheme == "https" else name


def cookie_value(market: Market, session: Session) -> str:
    """Return what a browser keeps of a session."""
    content = f"{session.id}.{session.token_hash}.{session.issued_ms}"
    return f"{content}.{_code(market, 'session', content)}"


def read_session(market: Market, request: Request, *, now_ms: int) -> Session | None:
    """Return the session that a request belongs to; None where there is none that counts."""
    match = _COOKIE.fullmatch(_cookie(request, cookie_name(market, request.scheme)))
    if match is None:
        return None
    id, token_hash, issued, code = match.groups()
    if not hmac.compare_digest(code, _code(market, "session", f"{id}.{token_hash}.{issued}")):
        return None
    session = Session(id=id, token_hash=token_hash, issued_ms=int(issued))
    return session if session.issued_ms <= now_ms < session.expires_ms else None


def identity_of(session: Session, tx: Transaction, *, now_ms: int) -> Identity | None:
    """Return who a session belongs to; None once it has ended, or its token has."""
    if tx.has_ended(session.id):
        return None
    try:
        return identify_token(session.token_hash, tx, now_ms=now_ms)
    except Unauthenticated:
        return None


def csrf_of(market: Market, session: Session) -> str:
    """Return what every form of a session carries, and no other page can know."""
    return _code(market, "form", session.id)


def keep(response: Response, market: Market, scheme: str, session: Session) -> None:
    """Let the browser keep a session."""
    _set(response, market, scheme, cookie_value(market, session), LIFE_S)


def forget(response: Response, market: Market, scheme: str) -> None:
    """Let the browser forget its session."""
    _set(response, market, scheme, "", 0)


def _set(response: Response, market: Market, scheme: str, value: str, max_age: int) -> None:
    response.set_cookie(
        cookie_name(market, scheme),
        value,
        max_age=max_age,
        path="/",
        httponly=True,
        samesite="strict",
        secure=scheme == "https",
    )


def _code(market: Market, purpose: str, content: str) -> str:
    key = market.key.derive(f"dashboard {purpose}")
    return hmac.new(key.encode(), content.encode(), "sha256").hexdigest()


def _cookie(request: Request, name: str) -> str:
    """Return a cookie; of two with one name neither counts, for one may be somebody else's."""
    pairs = [
        part.strip().partition("=")
        for header, value in request.headers
        if header.lower() == "cookie"
        for part in value.split(";")
    ]
    values = [value for key, _, value in pairs if key == name]
    return values[0] if len(values) == 1 else ""
