"""Tokens and devices: who is let in.

A secret follows from its id and the market's key. The database holds its hash and never itself, and
still a repeated request can be answered with the same secret.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from fedbourse.errors import Conflict, InvalidInput, NotSignedIn
from fedbourse.market.parties import SCOPES, Device, Enrolment, Scope, Token, party
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market

_DAY_MS = 24 * 3600 * 1000
DAYS_MAX = 3660
HOURS_MAX = 24 * 366
_NO_ENROLMENT = "the market does not know this enrolment token, or it is used or too old"


def issue_token(
    market: Market,
    unit: Unit,
    caller: Caller | None,
    *,
    holder: str,
    scopes: Sequence[str],
    days: float | None = None,
) -> tuple[Token, str]:
    """Make a bearer token; return what is kept, and the secret.

    ``caller`` is None only when whoever runs the market makes the first one.
    """
    if caller is not None:
        caller.require("operator")
    party(holder)
    wanted = _scopes(holder, scopes)
    now, ends = market.now_ms(), None
    if days is not None:
        ends = now + int(number("days", days, above=0, at_most=DAYS_MAX) * _DAY_MS)
    id = f"{now:012x}{secrets.token_hex(4)}"
    secret = token_secret(market, id)
    token = Token(
        id=id,
        hash=hash_of(secret),
        party=holder,
        scopes=frozenset(wanted),
        created_ms=now,
        expires_ms=ends,
    )
    unit.add_token(token)
    return token, secret


def tokens(unit: Unit, caller: Caller, *, after: str, limit: int) -> list[Token]:
    """Return tokens as they are kept."""
    caller.require("operator", "auditor")
    return unit.tokens(after=after, limit=limit)


def revoke_token(
    market: Market, unit: Unit, caller: Caller, token_id: str, *, last: bool = False
) -> int:
    """End a token; return when, also if that was long ago.

    The last one of an operator ends only where ``last`` says that this is meant.
    """
    caller.require("operator")
    if not last and unit.live_tokens("operator", at_ms=market.now_ms(), limit=2) == [token_id]:
        raise Conflict(
            f"token {token_id} is the last one of an operator: without it nobody can make or "
            "revoke a token; make another one first, or say that it is meant (--last, last=true)"
        )
    return unit.revoke_token(token_id, at_ms=market.now_ms())


def issue_enrolment(
    market: Market, unit: Unit, caller: Caller, *, owner: str, hours: float = 24.0
) -> tuple[Enrolment, str]:
    """Make a one-time token with which a device of this owner may enrol; return it, and its id."""
    caller.require("operator")
    if not party(owner).startswith("owner:"):
        raise InvalidInput(f"a device belongs to an owner, such as owner:ann; found {owner!r:.80}")
    span = number("hours", hours, above=0, at_most=HOURS_MAX)
    id = secrets.token_hex(12)
    ends = market.now_ms() + int(span * 3600 * 1000)
    enrolment = Enrolment(hash=hash_of(enrolment_secret(market, id)), owner=owner, expires_ms=ends)
    unit.add_enrolment(enrolment)
    return enrolment, id


def check_enrolment(unit: Unit, token: object) -> None:
    """Refuse whoever never was given a one-time token, by a read: strangers cause no write.

    One that is used passes, since a device may repeat what it was not answered.
    """
    if not isinstance(token, str) or not token.startswith("fbe_"):
        raise NotSignedIn("an enrolment token begins with fbe_")
    if not unit.has_enrolment(hash_of(token)):
        raise NotSignedIn(_NO_ENROLMENT)


def enrol(market: Market, unit: Unit, *, token: str, device: str, public_key: str) -> Device:
    """Take in a device that holds a one-time token; the owner's device before it is retired.

    That the request was signed with this key is the route's to check.
    """
    check_enrolment(unit, token)
    known = unit.device(device)
    if known is not None:
        raise InvalidInput(f"device {device} has enrolled before; enrol a new key")
    owner = unit.use_enrolment(hash_of(token), at_ms=market.now_ms())
    if owner is None:
        raise NotSignedIn(_NO_ENROLMENT)
    made = Device(id=device, owner=owner, public_key=public_key, enrolled_ms=market.now_ms())
    unit.put_device(made)
    return made


def token_secret(market: Market, token_id: str) -> str:
    """Return the bearer token with this id."""
    return f"fbt_{market.key.derive(f'token {token_id}')}"


def enrolment_secret(market: Market, enrolment_id: str) -> str:
    """Return the one-time token with this id."""
    return f"fbe_{market.key.derive(f'enrolment {enrolment_id}')}"


def hash_of(secret: str) -> str:
    """Return the form in which a secret is kept."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _scopes(holder: str, scopes: Sequence[str]) -> list[Scope]:
    """Return the scopes if they exist and fit the holder."""
    wanted = [scope for scope in SCOPES if scope in scopes]
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not wanted:
        found = repr(unknown[0])[:60] if unknown else "none"
        raise InvalidInput(f"scopes are {', '.join(SCOPES)}; found {found}")
    kind = holder.partition(":")[0]
    for scope in wanted:
        # An account and what may be done with it go together; the operator may hold any.
        if scope in ("buyer", "owner") and scope != kind:
            raise InvalidInput(f"the scope {scope} is for a {scope}:NAME; found {holder!r:.80}")
    return wanted
