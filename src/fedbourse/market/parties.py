"""Who is who: parties that hold accounts, and how each proves who it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from fedbourse.encoding.documents import NOT_SHOWN
from fedbourse.errors import InvalidInput, NotAllowed

Scope = Literal["operator", "buyer", "owner", "auditor"]
SCOPES: tuple[Scope, ...] = ("operator", "buyer", "owner", "auditor")
"""operator: runs the market; buyer: its own tasks and account; owner: its own allocations and
account; auditor: reads everything, changes nothing."""

_PARTY = re.compile(r"(operator|buyer|owner|auditor):[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Caller:
    """Somebody who has proved who it is. Its party is also the name of its account."""

    party: str
    scopes: frozenset[Scope]
    device: str | None = None
    """The key of the device that signed the request, where one did."""

    def require(self, *scopes: Scope) -> None:
        """Refuse a caller who holds none of these scopes."""
        if not self.scopes.intersection(scopes):
            raise NotAllowed(
                f"this needs the scope {' or '.join(scopes)}; "
                f"{self.party} has {', '.join(sorted(self.scopes)) or 'none'}"
            )


MARKET = Caller("market", frozenset())
"""The market itself, when a deadline has come or all that it waited for is in."""


@dataclass(frozen=True)
class Token:
    """A bearer token as the market keeps it: its hash, never itself."""

    id: str
    hash: str = field(metadata=NOT_SHOWN)
    party: str
    scopes: frozenset[Scope]
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


@dataclass(frozen=True)
class Enrolment:
    """A one-time token, by its hash, with which one device of an owner may enrol."""

    hash: str
    owner: str
    expires_ms: int
    used_ms: int | None = None


@dataclass(frozen=True)
class EnrolledDevice:
    """An owner's device: a public key. Enrolling another one retires it."""

    id: str
    owner: str
    public_key: str
    enrolled_ms: int
    retired_ms: int | None = None


def party(name: str) -> str:
    """Return the name of a party if it is one.

    >>> party("buyer:acme")
    'buyer:acme'
    """
    if not isinstance(name, str) or not _PARTY.fullmatch(name):
        raise InvalidInput(
            "a party is buyer:NAME, owner:NAME, auditor:NAME or operator:NAME, with a NAME of "
            f"small letters, digits, dots and dashes; found {name!r:.80}"
        )
    return name
