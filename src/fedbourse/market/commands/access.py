"""Tokens and devices: who is let in.

A secret follows from its id and the market's key. The database holds its hash and never itself, and
still a repeated request gets the same secret.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from fedbourse.errors import Conflict, InvalidInput, Unauthenticated
from fedbourse.market.parties import SCOPES, EnrolledDevice, Enrolment, Scope, Token, party
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.service import Market

_DAY_MS = 24 * 3600 * 1000
DAYS_MAX = 3660
HOURS_MAX = 24 * 366
_NO_ENROLMENT = "the market does not know this enrolment token, or it is used or too old"


def issue_token(
    market: Market,
    tx: Transaction,
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
    now, ends = market.now_ms(), None
    if days is not None:
        ends = now + int(number("days", days, above=0, at_most=DAYS_MAX) * _DAY_MS)
    id = f"{now:012x}{secrets.token_hex(4)}"
    secret = token_secret(market, id)
    token = Token(
        id=id,
        hash=hash_of(secret),
        party=holder,
        scopes=frozenset(_scopes(holder, scopes)),
        created_ms=now,
        expires_ms=ends,
    )
    tx.add_token(token)
    return token, secret


def tokens(tx: Transaction, caller: Caller, *, after: str, limit: int) -> list[Token]:
    """Return tokens as they are kept."""
    caller.require("operator", "auditor")
    return tx.tokens(after=after, limit=limit)


def revoke_token(
    market: Market, tx: Transaction, caller: Caller, token_id: str, *, last: bool = False
) -> int:
    """End a token; return when, also if that was long ago.

    The last one of an operator ends only where ``last`` says that this is meant.
    """
    caller.require("operator")
    if not last and tx.live_tokens("operator", at_ms=market.now_ms(), limit=2) == [token_id]:
        raise Conflict(
            f"token {token_id} is the last one of an operator: without it nobody can make or "
            "revoke a token; make another one first, or say that it is meant (--last, last=true)"
        )
    return tx.revoke_token(token_id, at_ms=market.now_ms())


def issue_enrolment(
    market: Market, tx: Transaction, caller: Caller, *, owner: str, hours: float = 24.0
) -> tuple[Enrolment, str]:
    """Make a one-time token with which a device of this owner may enrol; return it, and its id."""
    caller.require("operator")
    if not party(owner).startswith("owner:"):
        raise InvalidInput(f"a device belongs to an owner, such as owner:ann; found {owner!r:.80}")
    span = number("hours", hours, above=0, at_most=HOURS_MAX)
    id = secrets.token_hex(12)
    ends = market.now_ms() + int(span * 3600 * 1000)
    enrolment = Enrolment(hash=hash_of(enrolment_secret(market, id)), owner=owner, expires_ms=ends)
    tx.add_enrolment(enrolment)
    return enrolment, id


def check_enrolment(tx: Transaction, token: object) -> None:
    """Refuse whoever never was given a one-time token, by a read: strangers cause no write.

    One that is used passes, since a device may repeat a request whose response was lost.
    """
    if not isinstance(token, str) or not token.startswith("fbe_"):
        raise Unauthenticated("an enrolment token begins with fbe_")
    if not tx.has_enrolment(hash_of(token)):
        raise Unauthenticated(_NO_ENROLMENT)


def enrol(
    market: Market, tx: Transaction, *, token: str, device: str, public_key: str
) -> EnrolledDevice:
    """Take in a device that holds a one-time token; the owner's device before it is retired.

    That the request was signed with this key is the route's to check.
    """
    check_enrolment(tx, token)
    if tx.device(device) is not None:
        raise InvalidInput(f"device {device} has enrolled before; enrol a new key")
    owner = tx.use_enrolment(hash_of(token), at_ms=market.now_ms())
    if owner is None:
        raise Unauthenticated(_NO_ENROLMENT)
    enrolled = EnrolledDevice(
        id=device, owner=owner, public_key=public_key, enrolled_ms=market.now_ms()
    )
    tx.put_device(enrolled)
    return enrolled


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
    valid = [scope for scope in SCOPES if scope in scopes]
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not valid:
        problem = repr(unknown[0])[:60] if unknown else "none"
        raise InvalidInput(f"scopes are {', '.join(SCOPES)}; found {problem}")
    kind = holder.partition(":")[0]
    for scope in valid:
        # An account and what may be done with it go together; the operator may hold any.
        if scope in ("buyer", "owner") and scope != kind:
            raise InvalidInput(f"the scope {scope} is for a {scope}:NAME; found {holder!r:.80}")
    return valid
