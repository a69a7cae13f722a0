"""Callers for tests: a clock that can be moved, tokens, devices, and requests that they sign."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

from fedbourse.errors import NotFound
from fedbourse.market.commands.access import hash_of
from fedbourse.market.parties import EnrolledDevice, Token
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.protocol.signatures import Request, sign_request

NOW = 1_900_000_000_000
_COUNT = itertools.count()


@dataclass
class Clock:
    """The market's clock."""

    ms: int = NOW

    def __call__(self) -> int:
        return self.ms


class NoPayments:
    """A bank through which nothing came in."""

    def received(self, reference):
        raise NotFound(f"no money came in with the reference {reference}")

    def pay(self, payout):
        raise AssertionError("nothing is to be paid")


def token_text(letter="a"):
    return "fbt_" + letter * 43


def token(letter="a", *, party="buyer:acme", scopes=("buyer",), **times):
    return Token(
        id=f"t-{letter}",
        hash=hash_of(token_text(letter)),
        party=party,
        scopes=frozenset(scopes),
        created_ms=NOW,
        **times,
    )


@dataclass(frozen=True)
class Phone:
    """An owner's device."""

    owner: str = "owner:ann"
    key: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def device(self):
        return EnrolledDevice(key_id(self.key.public), self.owner, self.key.public, enrolled_ms=NOW)

    def sign(self, request, *, now_ms=NOW, nonce=None):
        nonce = nonce or f"nonce-of-a-test-{next(_COUNT):08d}"
        added = sign_request(request, self.key, now_ms=now_ms, nonce=nonce)
        return replace(request, headers=request.headers + tuple(added.items()))


def asks(method="GET", path="/v1/x", *, headers=(), body=b"", query=""):
    return Request(method, "http", "testserver", path, query, tuple(headers), body)


def bearer(letter="a"):
    return ("authorization", f"Bearer {token_text(letter)}")
