"""Who is behind a request: proved by a token or a signature, never by both, never by a guess."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedbourse.errors import Unauthenticated
from fedbourse.web.identity import confirm, identify
from web.people import NOW, Phone, asks, bearer, token, token_text


def identity_of(store, request, *, now_ms=NOW, authorities=()):
    with store.read() as tx:
        return identify(request, tx, now_ms=now_ms, authorities=authorities)


def add(store, *, tokens=(), devices=()):
    with store.begin() as tx:
        for each in tokens:
            tx.add_token(each)
        for each in devices:
            tx.put_device(each)


def test_who_claims_nothing_is_a_stranger(store):
    assert identity_of(store, asks()) is None


def test_a_token_names_its_party_and_scopes(store):
    add(store, tokens=[token("a"), token("b", party="auditor:kay", scopes=("auditor",))])
    identity = identity_of(store, asks(headers=[bearer("b")]))
    assert (identity.caller.party, identity.caller.scopes) == ("auditor:kay", {"auditor"})
    assert identity.caller.device is None


@pytest.mark.parametrize(
    "value",
    [
        token_text("z"),
        "Bearer " + token_text("z"),
        "Bearer " + token_text("a")[:-1],
        "Bearer " + token_text("a") + "a",
        "Bearer fbe_" + "a" * 43,
        "Basic " + token_text("a"),
        "Bearer",
        "",
        "Bearer \x00",
        "Bearer " + "é" * 43,
    ],
)
def test_a_token_that_is_none_is_refused(store, value):
    add(store, tokens=[token("a")])
    with pytest.raises(Unauthenticated):
        identity_of(store, asks(headers=[("Authorization", value)]))


def test_two_tokens_are_refused(store):
    add(store, tokens=[token("a")])
    with pytest.raises(Unauthenticated):
        identity_of(store, asks(headers=[bearer("a"), bearer("a")]))


def test_an_expired_and_a_revoked_token_are_refused(store):
    add(store, tokens=[token("a", expires_ms=NOW + 1000), token("b")])
    assert identity_of(store, asks(headers=[bearer("a")]), now_ms=NOW + 999)
    with pytest.raises(Unauthenticated, match="expired"):
        identity_of(store, asks(headers=[bearer("a")]), now_ms=NOW + 1000)
    identity = identity_of(store, asks(headers=[bearer("b")]))
    with store.begin() as tx:
        tx.revoke_token("t-b", at_ms=NOW)
    with pytest.raises(Unauthenticated, match="revoked"):
        identity_of(store, asks(headers=[bearer("b")]))
    with store.begin() as tx, pytest.raises(Unauthenticated, match="revoked"):
        confirm(identity, tx, now_ms=NOW)


def test_a_signature_names_the_owner_of_its_device(store):
    phone = Phone()
    add(store, devices=[phone.device])
    identity = identity_of(store, phone.sign(asks()))
    assert (identity.caller.party, identity.caller.scopes) == ("owner:ann", {"owner"})
    assert identity.caller.device == phone.device.id


def test_a_device_that_is_unknown_or_retired_is_refused(store):
    phone, later = Phone(), Phone()
    with pytest.raises(Unauthenticated, match="not enrolled"):
        identity_of(store, phone.sign(asks()))
    add(store, devices=[phone.device])
    identity = identity_of(store, phone.sign(asks()))
    add(store, devices=[later.device])
    with pytest.raises(Unauthenticated, match="taken its place"):
        identity_of(store, phone.sign(asks()))
    with store.begin() as tx, pytest.raises(Unauthenticated, match="taken its place"):
        confirm(identity, tx, now_ms=NOW)
    assert identity_of(store, later.sign(asks()))


def test_a_device_cannot_sign_for_another(store):
    ann, bob = Phone("owner:ann"), Phone("owner:bob")
    add(store, devices=[ann.device, bob.device])
    forged = bob.sign(asks())
    claimed = tuple(
        (name, value.replace(bob.device.id, ann.device.id)) for name, value in forged.headers
    )
    with pytest.raises(Unauthenticated):
        identity_of(store, replace(forged, headers=claimed))


def test_a_token_and_a_signature_together_are_refused(store):
    phone = Phone()
    add(store, tokens=[token("a")], devices=[phone.device])
    with pytest.raises(Unauthenticated, match="both"):
        identity_of(store, phone.sign(asks(headers=[bearer("a")])))
    with pytest.raises(Unauthenticated, match="both"):
        identity_of(store, asks(headers=[bearer("a"), ("Signature", "")]))


def test_a_signature_is_good_once(store):
    phone = Phone()
    add(store, devices=[phone.device])
    request = phone.sign(asks())
    first, again = identity_of(store, request), identity_of(store, request)
    with store.begin() as tx:
        confirm(first, tx, now_ms=NOW)
    with store.begin() as tx, pytest.raises(Unauthenticated, match="used before"):
        confirm(again, tx, now_ms=NOW)


def test_a_signature_meant_for_another_market_is_refused(store):
    phone = Phone()
    add(store, devices=[phone.device])
    request = phone.sign(replace(asks(), authority="other.example"))
    with pytest.raises(Unauthenticated, match=r"other\.example"):
        identity_of(store, request, authorities=("market.example",))
    own = phone.sign(replace(asks(), authority="market.example"))
    assert identity_of(store, own, authorities=("market.example",))
