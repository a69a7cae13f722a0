"""Every route, tried as everybody: refused to all but those it is for, and then nothing changes."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import pytest

from fedbourse.cli.verify import task_records
from fedbourse.errors import NotAllowed
from fedbourse.market.audit import verify_task
from fedbourse.market.service import escrow
from fedbourse.protocol.keys import SigningKey
from fedbourse.testing.databases import KINDS
from web.clients import TestClient
from web.fixtures import Person, asked, dump, send, signed, whole_world
from web.route_table import (
    EVERYBODY,
    ITS_BUYER,
    ITS_OWNER,
    KNOWN,
    NOBODY,
    READERS,
    ROUTES,
    TABLE,
    WRITES,
    person_of,
    plain,
    request_of,
)


@pytest.fixture(scope="module", params=KINDS)
def quiet_world(request):
    """One world for all tests that change nothing in it."""
    with (
        whole_world(request.param, request) as world,
        TestClient(world.app, raise_server_exceptions=False) as client,
    ):
        world.client = client
        yield world


@pytest.fixture
def world(kind, request):
    with (
        whole_world(kind, request) as made,
        TestClient(made.app, raise_server_exceptions=False) as client,
    ):
        made.client = client
        yield made


def assert_refused(answer, *allowed):
    __tracebackhide__ = True
    assert answer.status_code in (allowed or (401, 403, 404)), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code


def test_the_table_has_every_route_of_the_document(quiet_world):
    document = quiet_world.client.get("/v1/openapi.json").json()
    routes = {
        (method.upper(), path) for path, found in document["paths"].items() for method in found
    }
    assert routes == set(TABLE)


def test_the_document_says_which_proof_a_route_takes(quiet_world):
    document = quiet_world.client.get("/v1/openapi.json").json()
    for route, entry in TABLE.items():
        method, path = route
        said = {
            name for each in document["paths"][path][method.lower()]["security"] for name in each
        }
        devices = {"owner's device", "another owner", "new device"}
        needed = {"signature"} if devices & entry.may else set()
        needed |= {"token"} if entry.may - devices - {"stranger"} else set()
        if plain(route):
            needed = set()
        assert needed <= said, route


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_a_route_is_refused_to_everybody_it_is_not_for(quiet_world, route):
    world = quiet_world
    before = dump(world.store)
    for person in world.people:
        if person in TABLE[route].may:
            continue
        if plain(route):
            continue
        answer = send(world.client, request_of(world, route, person))
        proved = person in KNOWN and route[1] != "/v1/enrolments"
        assert_refused(answer, *((403, 404) if proved else (401, 404)))
    assert dump(world.store) == before


UNKNOWN = ("stranger", "nobody's token", "expired", "revoked", "retired device", "unknown device")


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_whoever_the_market_does_not_know_never_takes_the_writers_lock(
    quiet_world, route, monkeypatch
):
    world = quiet_world

    def begun(*_, **__):
        raise AssertionError("a stranger began a write")

    monkeypatch.setattr(world.store, "begin", begun)
    for person in UNKNOWN:
        answer = send(world.client, request_of(world, route, person))
        assert answer.status_code < 500, answer.text
    if route[1] == "/v1/enrolments":
        made_up = Person(key=SigningKey.generate())
        body = {"token": "fbe_" + "A" * 43, "public_key": made_up.key.public}
        now = world.trading.time_ms
        answer = send(world.client, asked(made_up, *route, body=body, now_ms=now))
        assert answer.status_code == 401
        assert "does not know this enrolment token" in answer.json()["detail"]


PROVED = [route for route in ROUTES if not plain(route)]


@pytest.mark.parametrize("route", PROVED, ids=" ".join)
def test_a_signature_must_be_of_this_request_by_this_device_and_fresh(quiet_world, route):
    world = quiet_world
    before = dump(world.store)
    key = world.new_key if route[1] == "/v1/enrolments" else world.ann.key
    good = request_of(world, route, "stranger")
    now = world.trading.time_ms
    for name, bad in tampered(good, key, now):
        answer = send(world.client, bad)
        # Without its body nobody can say with which key a new device signs.
        keyless = route[1] == "/v1/enrolments" and bad.body == b"{}"
        # Whoever signed it, a body where none belongs is not read.
        bodied = bool(bad.body) and bad.method not in ("POST", "PUT")
        status = 413 if bodied else 422 if keyless else 401
        assert answer.status_code == status, (name, answer.text)
        assert_refused(answer, 401, 413, 422)
    assert dump(world.store) == before


def tampered(good, key, now):
    """Return the request as others would have to send it, each time with one thing wrong."""

    def by(request, **options):
        return signed(request, options.pop("key", key), now_ms=options.pop("now_ms", now))

    def sent_as(request, **parts):
        # What was signed is one thing, what is sent another.
        own = {"method": good.method, "path": good.path, "query": good.query, "body": good.body}
        return replace(by(request), authority=good.authority, **(own | parts))

    def header(request, name, change):
        found = tuple(
            (key, change(value) if key.lower() == name else value) for key, value in request.headers
        )
        assert found != request.headers, name
        return replace(request, headers=found)

    def without(request, name):
        found = tuple(each for each in request.headers if each[0].lower() != name)
        assert found != request.headers, name
        return replace(request, headers=found)

    fine = by(good)
    forged = by(good, key=SigningKey.generate())
    headers = {name.lower(): value for name, value in fine.headers}
    yield "forged: another key", forged
    yield (
        "forged: another key under this one's name",
        header(forged, "signature-input", lambda _: headers["signature-input"]),
    )
    yield "stale", by(good, now_ms=now - 62_000)
    yield "from the future", by(good, now_ms=now + 62_000)
    yield "method", sent_as(replace(good, method="PATCH"))
    yield "authority", sent_as(replace(good, authority="market.example"))
    yield "path", sent_as(replace(good, path=good.path + "x"))
    yield "query", sent_as(good, query="limit=2")
    yield "query of another", sent_as(replace(good, query="limit=2"))
    yield "body", replace(fine, body=good.body + b" ")
    yield (
        "created",
        header(fine, "signature-input", lambda v: v.replace(f"created={now // 1000}", "created=1")),
    )
    yield "nonce", header(fine, "signature-input", lambda v: v.replace('nonce="', 'nonce="x'))
    yield "keyid", header(fine, "signature-input", lambda v: v.replace('keyid="', 'keyid="0'))
    yield "tag", header(fine, "signature-input", lambda v: v.replace("fedbourse-v1", "other"))
    yield "path not covered", header(fine, "signature-input", lambda v: v.replace(' "@path"', ""))
    yield "signature", header(fine, "signature", lambda v: v[:20] + "AAAA" + v[24:])
    yield "no signature", without(fine, "signature")
    yield "no input", without(fine, "signature-input")
    yield (
        "and a token",
        replace(fine, headers=(*fine.headers, ("authorization", "Bearer fbt_" + "A" * 43))),
    )
    if good.method != "GET":
        yield "no digest", without(fine, "content-digest")
        yield (
            "digest and body of another",
            replace(
                header(
                    fine,
                    "content-digest",
                    lambda _: dict(by(replace(good, body=b"{}")).headers)["Content-Digest"],
                )
                if good.body != b"{}"
                else fine,
                body=b"{}" if good.body != b"{}" else b"",
            ),
        )
        yield "idempotency key", header(fine, "idempotency-key", lambda v: v[:-1] + "x")
        yield "no idempotency key", without(fine, "idempotency-key")


def test_those_it_is_for_are_answered_and_a_replay_is_refused(world):
    """Also shows that the refusals above are for who asked, not for what was asked."""
    seen = []
    for owner in (None, world.ann.name):
        world.secrets_of(owner)  # remembered as they are before erasure
    for route, entry in TABLE.items():
        request = request_of(world, route, entry.by)
        answer = send(world.client, request)
        assert answer.status_code == entry.status, (route, answer.text)
        seen.append((entry.by, answer.content))
        after = dump(world.store)
        if any(name.lower() == "signature" for name, _ in request.headers):
            assert_refused(send(world.client, request), 401)
            assert dump(world.store) == after, route
    for by, content in seen:
        assert_tells_nothing(world, by, content)


@pytest.mark.parametrize("route", [each for each in ROUTES if each[0] == "GET"], ids=" ".join)
def test_nobody_reads_what_another_owner_said(quiet_world, route):
    world = quiet_world
    names = [name for name in TABLE[route].may if name not in READERS]
    found = TABLE[route].path(world)
    paths = [found] + [
        found.replace(world.draft.id, task.id)
        for task in (world.open, world.announced, world.settled, world.training, world.completed)
        if not found.endswith("/stream")
    ]
    for name in names:
        for path in dict.fromkeys(paths):
            request = asked(world.people[name], "GET", path, now_ms=world.trading.time_ms)
            assert_tells_nothing(world, name, send(world.client, request).content)


def assert_tells_nothing(world, name, content):
    __tracebackhide__ = True
    if name in READERS or name == "new device":
        return
    for secret in world.secrets_of(world.ann.name if name in ITS_OWNER else None):
        assert secret.encode() not in content, (name, secret, content)


def test_the_search_for_secrets_finds_them_where_they_are(quiet_world):
    world = quiet_world
    path = f"/v1/tasks/{world.training.id}/allocations"
    shown = send(world.client, world.request("auditor", "GET", path)).text
    secrets = world.secrets_of(None)
    assert sum(secret in shown for secret in secrets) >= 12
    participation = f"/v1/tasks/{world.training.id}/participation"
    own = send(world.client, world.request("owner's device", "GET", participation)).text
    assert any(secret in own for secret in secrets)


@pytest.mark.parametrize("rest", ["", "/statement"])
def test_escrow_shows_its_buyer_what_is_left_and_not_who_got_it(quiet_world, rest):
    world = quiet_world
    path = f"/v1/accounts/{escrow(world.training.id)}{rest}"
    readers = READERS | (ITS_BUYER if not rest else NOBODY)
    for name in KNOWN:
        answer = send(world.client, world.request(name, "GET", path))
        # A token of the buyer that only reads is an auditor's.
        assert (answer.status_code == 200) == (name in readers), (name, answer.text)


class Asking:
    """Somebody's connection, as far as ``fedbourse verify`` uses it."""

    def __init__(self, world, name):
        self.world, self.name = world, name

    def pages(self, path, items, *, allowance):
        """Return the items of a list that has one page."""
        found = self.get(path, {"limit": 1000})
        assert found["next"] is None
        return found[items]

    def get(self, path, params=None):
        asked = self.world.request(self.name, "GET", path, query=urlencode(params or {}))
        answer = send(self.world.client, asked)
        if answer.status_code in (401, 403, 404):
            raise NotAllowed(answer.text)
        assert answer.status_code == 200, answer.text
        return answer.json()


def test_a_buyer_cannot_watch_an_update_being_paid_and_verifies_all_the_same(world):
    task, account = world.training, escrow(world.training.id)
    path = f"/v1/accounts/{account}"
    buyer, auditor = Asking(world, "buyer"), Asking(world, "auditor")
    for number in range(task.card.rounds):
        last = world.trading.balance(account)
        to_come = task.reward - task.reward * number // task.card.rounds
        for owner in world.owners:
            world.trading.update(owner, task, round=number)
            assert buyer.get(path)["balance_micro"] == to_come
            now = world.trading.balance(account)
            assert auditor.get(path)["balance_micro"] == now < last
            last = now
        for who in (buyer, auditor):
            records = task_records(who, task.id)
            checks = verify_task(**records)
            assert not [check for check in checks if check.passed is False]
        world.trading.advance()
    assert world.trading.task(task.id).state == "completed"
    assert task_records(buyer, task.id)["escrow_micro"] == 0


def test_a_draft_is_not_even_there_for_others(quiet_world):
    world = quiet_world
    for name in world.people:
        answer = send(world.client, world.request(name, "GET", "/v1/tasks"))
        if name not in EVERYBODY:
            assert_refused(answer, 401)
            continue
        states = [each["state"] for each in answer.json()["tasks"]]
        assert ("draft" in states) == (name in ITS_BUYER | READERS), name
        assert states.count("open") == 1
        for rest in ("", "/card", "/events", "/head"):
            path = f"/v1/tasks/{world.draft.id}{rest}"
            answer = send(world.client, world.request(name, "GET", path))
            status = 200 if name in ITS_BUYER | READERS else 404
            assert answer.status_code == status, (name, path)


@pytest.mark.parametrize("route", WRITES, ids=" ".join)
def test_a_write_needs_an_idempotency_key(quiet_world, route):
    world, entry = quiet_world, TABLE[route]
    before = dump(world.store)
    body = entry.body(world) if entry.body else None
    bare = asked(world.people["stranger"], route[0], entry.path(world), body=body, now_ms=0)
    person = person_of(world, entry.by)
    for key in (None, "short", "x" * 129, "a key with spaces", "é" * 10):
        headers = [each for each in bare.headers if each[0] != "idempotency-key"]
        if key is not None:
            headers.append(("idempotency-key", key))
        if person.token:
            headers.append(("authorization", f"Bearer {person.token}"))
        request = replace(bare, headers=tuple(headers))
        if person.key:
            if key == "é" * 10:
                continue  # what cannot be signed is refused as a signature
            request = signed(request, person.key, now_ms=world.trading.time_ms)
        encoded = [(name, value.encode("latin-1")) for name, value in request.headers]
        answer = world.client.request(
            request.method, request.path, headers=encoded, content=request.body
        )
        assert_refused(answer, 422)
    assert dump(world.store) == before
