"""Repeated and rival requests at once: one effect, one response, nothing lost, nothing stuck."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from dataclasses import replace

import httpx2
import pytest

from fedbourse.market import merkle
from fedbourse.market.commands import scheduler
from web.fixtures import Person, World, dump, signed
from web.servers import served

TIMES = 20


@pytest.fixture
def world(store):
    made = World(store)
    with served(made.app) as url:
        host = url.removeprefix("http://")
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as client:
            made.client, made.host = client, host  # type: ignore[attr-defined]
            yield made


def send(world, person, method, path, **options):
    """Send a request as the person signs it at this moment."""
    who = world.people[person] if isinstance(person, str) else person
    request = world.request(Person(who.party, who.token), method, path, **options)
    request = replace(request, authority=world.host)
    if who.key:
        request = signed(request, who.key, now_ms=world.trading.time_ms)
    return world.client.request(
        request.method, request.path, headers=request.headers, content=request.body
    )


def together(*works):
    """Do everything at once, and return what came of each."""
    found, start = [None] * len(works), threading.Barrier(len(works))

    def run(place, work):
        start.wait()
        try:
            found[place] = work()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


def draft(world):
    return "buyer", "POST", "/v1/tasks", world.draft.card.document


def opening(world):
    return "buyer", "POST", f"/v1/tasks/{world.draft.id}/open", {}


def withdrawal(world):
    return "buyer", "POST", "/v1/withdrawals", {"amount_micro": 7, "destination": "home"}


def deposit(world):
    return "buyer", "POST", "/v1/deposits", {"reference": "bank-1"}


def token(world):
    return "operator", "POST", "/v1/tokens", {"party": "buyer:acme", "scopes": ["buyer"]}


def plan(world):
    said = {"tick": world.announced.tick, "previous": world.announced.offer, "budget": 0.5}
    return "owner's device", "PUT", f"/v1/tasks/{world.announced.id}/plan", said


def update(world):
    path = f"/v1/tasks/{world.training.id}/rounds/0/update"
    return "owner's device", "PUT", path, world.update()


def enrolment(world):
    body = {"token": world.enrolment, "public_key": world.new_key.public}
    return Person(key=world.new_key), "POST", "/v1/enrolments", body


WRITES = [draft, opening, withdrawal, deposit, token, plan, update, enrolment]
NEW_ROWS = {
    draft: {"tasks": 1, "events": 1},
    opening: {"events": 1, "openings": 1, "transfers": 1, "accounts": 1},  # its reward is reserved
    withdrawal: {"transfers": 1, "payouts": 1, "payout_steps": 1, "accounts": 1},
    deposit: {"transfers": 1},
    token: {"tokens": 1},
    plan: {"replies": 1},
    update: {"updates": 1, "transfers": 1, "accounts": 1},  # its first pay opens its account
    enrolment: {"devices": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_repeats_at_once_have_one_effect_and_one_answer(world, write):
    person, method, path, body = write(world)
    before = dump(world.store)  # what the write needs is there by now
    key = secrets.token_hex(12)

    def once():
        return send(world, person, method, path, body=body, key=key)

    answers = together(*[once] * TIMES)
    assert {each.status_code for each in answers} <= {200, 201}, [each.text for each in answers]
    assert len({(each.status_code, each.content) for each in answers}) == 1
    replayed = Counter(each.headers.get("idempotency-replayed") for each in answers)
    assert replayed == {None: 1, "true": TIMES - 1}
    after = dump(world.store)
    grown = {name: len(after[name]) - len(before[name]) for name in after}
    assert {name: count for name, count in grown.items() if count} == {
        **NEW_ROWS[write],
        "responses": 1,
    }


@pytest.mark.parametrize("write", [draft, withdrawal, plan], ids=lambda write: write.__name__)
def test_another_body_under_a_used_key_is_refused(world, write):
    person, method, path, body = write(world)
    key = secrets.token_hex(12)
    first = send(world, person, method, path, body=body, key=key)
    after = dump(world.store)
    second = send(world, person, method, path, body={**body, **_changed(body)}, key=key)
    assert first.status_code in (200, 201)
    assert second.status_code == 409, second.text
    assert second.json()["code"] == "Conflict"
    assert dump(world.store) == after


def _changed(body):
    """Return one item of a body with another value that is as good."""
    for name, value in (("goal", "another"), ("amount_micro", 8), ("budget", 0.25)):
        if name in body:
            return {name: value}
    raise AssertionError(body)


def test_a_used_key_at_another_address_is_refused(world):
    key = secrets.token_hex(12)
    path = f"/v1/tasks/{world.draft.id}"
    assert send(world, "buyer", "POST", f"{path}/open", body={}, key=key).status_code == 200
    assert send(world, "buyer", "POST", f"{path}/cancel", body={}, key=key).status_code == 409


def test_keys_of_different_callers_do_not_meet(world):
    key, body = secrets.token_hex(12), world.draft.card.document
    people = ("buyer", "another buyer")
    answers = together(
        *[
            lambda who=who: send(world, who, "POST", "/v1/tasks", body=body, key=key)
            for who in people
        ]
    )
    assert [each.status_code for each in answers] == [201, 201]
    assert len({each.json()["task"] for each in answers}) == 2
    assert all("idempotency-replayed" not in each.headers for each in answers)


def test_money_is_never_withdrawn_twice_by_rivals(world):
    """Twenty withdrawals of all there is, each its own: one is paid."""
    held = world.trading.balance("buyer:acme")
    body = {"amount_micro": held, "destination": "home"}
    answers = together(
        *[lambda: send(world, "buyer", "POST", "/v1/withdrawals", body=body)] * TIMES
    )
    assert Counter(each.status_code for each in answers) == {201: 1, 422: TIMES - 1}
    assert world.trading.balance("buyer:acme") == 0


def test_a_reply_that_was_acknowledged_counts_and_none_is_acknowledged_after(world):
    """Owners replace their replies as fast as they can while three processes close the tick."""
    owners = world.trading.owners(*[1.0 + 0.01 * i for i in range(8)])
    task = world.trading.announced(owners)
    path = f"/v1/tasks/{task.id}"
    last, count, ready = {}, Counter(), threading.Event()

    def replies(owner):
        person = Person(owner.name, key=owner.key)
        for number in range(1, 400):
            plan = {"tick": 0, "previous": task.offer, "budget": number / 1000}
            answer = send(world, person, "PUT", f"{path}/plan", body=plan)
            if answer.status_code != 200:
                return answer
            last[owner.name] = answer.json()
            count[owner.name] += 1
            if len(count) == len(owners) and count.total() > 3 * len(owners):
                ready.set()
        raise AssertionError("nobody closed the tick")

    def ticks():
        ready.wait(60)
        return scheduler.advance(world.market, world.store)

    *refused, one, two, three = together(
        *[lambda owner=owner: replies(owner) for owner in owners], ticks, ticks, ticks
    )
    assert sorted([one, two, three]) == [0, 0, 1]
    assert {each.status_code for each in refused} == {409}, [each.text for each in refused]
    with world.store.read() as tx:
        stored = tx.replies(task.id, [owner.name for owner in owners])
        events = {event.kind: event.body for event in tx.events(task.id, limit=100)}
    assert {owner: [reply.leaf for reply in said] for owner, said in stored.items()} == {
        owner: [said["leaf"]] for owner, said in last.items()
    }
    closing = events.get("last-tick") or events["ticked"]
    assert closing["replies_root"] == merkle.root([last[owner]["leaf"] for owner in sorted(last)])


def test_nobody_replies_to_a_tick_that_has_ended_even_if_the_clock_is_late(world):
    owners = world.trading.owners(1.0, 1.1)
    task = world.trading.announced(owners)
    ann = Person(owners[0].name, key=owners[0].key)
    plan = {"tick": 0, "previous": task.offer, "budget": 0.1}
    path = f"/v1/tasks/{task.id}/plan"
    assert send(world, ann, "PUT", path, body=plan).status_code == 200
    before = dump(world.store)
    assert task.tick_ends_ms < task.deadline_ms
    world.trading.time_ms = task.tick_ends_ms
    late = send(world, ann, "PUT", path, body=plan | {"budget": 0.2})
    assert late.status_code == 409
    assert "tick 0 has ended" in late.json()["detail"]
    assert dump(world.store) == before
