"""A market behind its service with a task in every state, and everybody who might ask about them.

The clock pauses and nothing happens by itself, so that only requests change the database.
"""

from __future__ import annotations

import json
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from sqlalchemy import select

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import NotFound
from fedbourse.market.commands import access, payouts
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import training as training_commands
from fedbourse.market.parties import EnrolledDevice
from fedbourse.market.records import State
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.protocol.signatures import Request, sign_request
from fedbourse.storage import SqlStore
from fedbourse.storage.schema import metadata
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.databases import fresh_url, new_template
from fedbourse.testing.trading import (
    BUYER,
    EVIDENCE,
    OPERATOR,
    Trading,
    card,
    noise,
)
from fedbourse.web.app import create_app
from fedbourse.web.settings import Settings

UNHURRIED = Settings(
    peer_per_s=1e9,
    peer_burst=10**9,
    caller_per_s=1e9,
    caller_burst=10**9,
    heavy_per_s=1e9,
    heavy_burst=10**9,
    stream_poll_s=0.02,
    wait_max_s=0.05,
)
"""Tests ask faster than anybody should, and do not wait."""
CREDITS = 1_000_000
HOST = "testserver"
STATES = ("completed", "training", "settled", "announced", "open", "draft")


class Bank:
    """A bank through which the money of these references came in."""

    def __init__(self, **received):
        self.known = {name.replace("_", "-"): each for name, each in received.items()}
        self.paid = []

    def received(self, reference):
        if reference not in self.known:
            raise NotFound(f"no money came in with the reference {reference}")
        return self.known[reference]

    def pay(self, payout):
        self.paid.append(payout)

    def has_paid(self, payout):
        return payout in [each.id for each in self.paid]


@dataclass(frozen=True)
class Person:
    """Somebody who asks: with a token, with a device's key, or as a stranger."""

    party: str | None = None
    token: str | None = None
    key: SigningKey | None = None


def asked(person, method, path, *, body=None, key=None, query="", now_ms, nonce=None):
    """Return a request of a person, signed where it has a key; documents become JSON."""
    headers = []
    if body is not None and not isinstance(body, bytes):
        body = canonical(body)
        headers.append(("content-type", "application/json"))
    elif body is not None:
        headers.append(("content-type", "application/octet-stream"))
    if method != "GET":
        headers.append(("idempotency-key", key or secrets.token_hex(12)))
    if person.token:
        headers.append(("authorization", f"Bearer {person.token}"))
    request = Request(method, "http", HOST, path, query, tuple(headers), body or b"")
    return signed(request, person.key, now_ms=now_ms, nonce=nonce) if person.key else request


def signed(request, key, *, now_ms, nonce=None):
    added = sign_request(request, key, now_ms=now_ms, nonce=nonce or secrets.token_hex(12))
    return replace(request, headers=request.headers + tuple(added.items()))


def send(client, request):
    target = request.path + (f"?{request.query}" if request.query else "")
    return client.request(request.method, target, headers=request.headers, content=request.body)


def replied(trading, owners, task_id, *, ticks=60):
    """Let these owners reply to ticks until the price is found; return the task."""
    for _ in range(ticks):
        task = trading.task(task_id)
        if task.state is not State.ANNOUNCED:
            return task
        for owner in owners:
            trading.plan(owner, task)
        trading.advance()
    raise AssertionError(f"no settlement after {ticks} ticks")


def dump(store):
    """Return all rows of all tables but nonces, which a refused request uses up."""
    with store._database.reader.connect() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(select(table))))
            for table in metadata.sorted_tables
            if table.name != "nonces"
        }


class World:
    """All of it."""

    VALUES = (1.23456789123, 1.31415926535, 1.27182818284)

    def __init__(self, store):
        self._serve(store)
        self.trading.fund(1000 * CREDITS)
        self.owners = self.trading.owners(*self.VALUES)
        self.ann = self.owners[0]
        self.people = self._people()
        self.new_key = SigningKey.generate()

    def _serve(self, store):
        self.store = store
        self.trading = Trading(store)
        self.market = self.trading.market
        self.bank = Bank(bank_1=(BUYER.party, 5 * CREDITS))
        self.app = create_app(self.market, store, self.bank, UNHURRIED)

    @classmethod
    def like(cls, model, store):
        """Return a world on a copy of another one's database, with everybody in it."""
        made = cls.__new__(cls)
        made._serve(store)
        made.__dict__ = model.__dict__ | made.__dict__
        made.trading.time_ms = model.trading.time_ms
        made.bank.paid = list(model.bank.paid)
        made.people = dict(model.people)
        made.owners = [replace(owner) for owner in model.owners]
        made.ann = made.owners[0]
        return made

    def _people(self):
        now = self.trading.time_ms
        old, zed, ann = SigningKey.generate(), SigningKey.generate(), self.ann
        with self.store.begin() as tx:
            retired = EnrolledDevice(key_id(old.public), ann.name, old.public, now, retired_ms=now)
            tx.put_device(EnrolledDevice(key_id(zed.public), "owner:zed", zed.public, now))
            # Its place was taken by the device that signs for this owner now.
            tx.put_device(replace(retired, retired_ms=None))
            tx.put_device(EnrolledDevice(key_id(ann.key.public), ann.name, ann.key.public, now))
            assert tx.device(retired.id).retired_ms is not None
        return {
            "stranger": Person(),
            "nobody's token": Person(token="fbt_" + "A" * 43),
            "owner's device": Person(ann.name, key=ann.key),
            "owner's token": self.holder(ann.name, "owner"),
            "another owner": Person("owner:zed", key=zed),
            "another owner's token": self.holder("owner:zed", "owner"),
            "buyer": self.holder(BUYER.party, "buyer"),
            "another buyer": self.holder("buyer:other", "buyer"),
            "buyer who only reads": self.holder(BUYER.party, "auditor"),
            "auditor": self.holder("auditor:kay", "auditor"),
            "operator": self.holder("operator:main", "operator"),
            "expired": self.holder(BUYER.party, "buyer", "operator", days=1e-9),
            "revoked": self.holder(BUYER.party, "buyer", "operator", revoke=True),
            "retired device": Person(ann.name, key=old),
            "unknown device": Person(ann.name, key=SigningKey.generate()),
        }

    def holder(self, party, *scopes, days=None, revoke=False):
        """Return somebody with a new token."""
        scopes = scopes if party.startswith("operator") else [s for s in scopes if s != "operator"]
        with self.store.begin() as tx:
            token, secret = access.issue_token(
                self.market, tx, None, holder=party, scopes=scopes, days=days
            )
            if revoke:
                tx.revoke_token(token.id, at_ms=self.market.now_ms())
        return Person(party, token=secret)

    def whole(self):
        """Make all that is otherwise made when it is first asked for."""
        assert [getattr(self, name).state.value for name in STATES] == list(STATES)
        assert len({self.second_draft.id, self.draft.id, self.unjudged.id, self.expected.id}) == 4
        assert self.judged.state is State.COMPLETED
        assert self.waiting.reference_ends_ms is not None
        assert self.enrolment != self.token_id
        assert len(self.sent) == 2
        return self

    @cached_property
    def draft(self):
        return self.trading.do(buyer_commands.create, BUYER, card())

    @cached_property
    def second_draft(self):
        return self.trading.do(buyer_commands.create, BUYER, card())

    @cached_property
    def open(self):
        """A task that all but one owner like."""
        task = self.trading.opened()
        for owner in self.owners[1:]:
            interest = {"value": owner.value, "previous": task.card.digest}
            self.trading.do(owner_commands.register_interest, owner.caller, task.id, **interest)
        return task

    @cached_property
    def announced(self):
        """A task for which all but one owner have planned."""
        task = self.trading.announced(self.owners, report=True)
        for owner in self.owners[1:]:
            self.trading.plan(owner, task)
        return task

    @cached_property
    def settled(self):
        """A task whose terms all but one owner have signed."""
        task = self.trading.settled(self.owners, report=True)
        for owner in self.owners[1:]:
            self.trading.decide(owner, task.id)
        return task

    @cached_property
    def reviewed(self):
        """A task that everybody has signed, and that its buyer may still cancel."""
        task = self.trading.settled(self.owners, report=True, deadlines=Deadlines(review_s=600))
        for owner in self.owners:
            self.trading.decide(owner, task.id)
        with self.store.begin() as tx:  # the clock would move other tasks as well
            return training_commands.review(self.market, tx, task.id)

    @cached_property
    def training(self):
        return self.trading.in_training(self.owners, report=True)

    @cached_property
    def completed(self):
        return self.trading.completed(self.owners, report=True, rounds=2)

    @cached_property
    def judged(self):
        """A task with evidence that has ended."""
        return self.trading.completed(self.owners, report=True, rounds=2, **EVIDENCE)

    @cached_property
    def waiting(self):
        """A task whose first round waits for the buyer's reference gradient."""
        spec = replace(EVIDENCE["evidence"], source="gradients")
        return self.trading.in_training(self.owners, report=True, evidence=spec)

    @cached_property
    def unjudged(self):
        """A draft with evidence, whose reference is still to come."""
        items = {name: item for name, item in EVIDENCE.items() if name != "reference"}
        return self.trading.do(buyer_commands.create, BUYER, card(**items))

    @cached_property
    def expected(self):
        """A draft with evidence that has its reference, but is not published."""
        task = self.trading.do(buyer_commands.create, BUYER, self.unjudged.card)
        content = EVIDENCE["reference"]
        return self.trading.do(buyer_commands.put_reference, BUYER, task.id, content=content)

    @cached_property
    def token_id(self):
        """The id of a token that may be revoked."""
        with self.store.begin() as tx:
            token, _ = access.issue_token(
                self.market, tx, None, holder="buyer:leaver", scopes=["buyer"]
            )
        return token.id

    @cached_property
    def sent(self):
        """The ids of two pay-outs that were sent."""
        asked = {"account": BUYER.party, "amount_micro": 3, "destination": "home"}
        made = [self.trading.do(payouts.request, BUYER, **asked).id for _ in range(2)]
        payouts.hand_over(self.market, self.store, self.bank)
        return made

    @cached_property
    def enrolment(self):
        """A one-time token."""
        with self.store.begin() as tx:
            _, id = access.issue_enrolment(self.market, tx, OPERATOR, owner="owner:new")
            secret = access.enrolment_secret(self.market, id)
        return secret

    def request(self, person, method, path, **options):
        """Return a request of somebody, by its name among the people or as a person."""
        who = self.people[person] if isinstance(person, str) else person
        return asked(who, method, path, now_ms=self.trading.time_ms, **options)

    def decision(self):
        """Return the owner's signed terms of the task that is settled."""
        terms = self.trading.participation(self.ann, self.settled.id)["terms"]
        signature = self.ann.key.sign(canonical(terms["terms"]))
        return {"accept": True, "digest": terms["digest"], "signature": signature}

    def update(self):
        """Return the owner's update for the open round."""
        allocation = self.trading.participation(self.ann, self.training.id)["allocation"]
        return noise(self.training, allocation["budget"], "an update")

    @lru_cache  # noqa: B019 - a world lives as long as its test
    def secrets_of(self, owner_name):
        """Return what owners said and were promised, of all but this one."""
        secrets = set()
        with self.store.read() as tx:
            for task in tx.tasks(limit=100):
                interests = tx.interests(task.id)
                replies = tx.replies(task.id, [each.owner for each in interests])
                ticks = [each for owner in replies.values() for each in owner]
                for each in interests + ticks + tx.allocations(task.id):
                    if each.owner == owner_name:
                        continue
                    secrets.add(each.salt)
                    for number in ("value", "budget"):
                        if getattr(each, number, None):
                            secrets.add(json.dumps(getattr(each, number)))
                    if hasattr(each, "payment"):
                        secrets.add(f":{each.payment},")
        return secrets


_MODELS = {}
"""One whole world for each kind of database, and the template that holds it."""


@contextmanager
def whole_world(kind, request, *, of=World):
    """Open a market with a task in every state: made once by each worker, and copied for each."""
    if kind not in _MODELS:
        url, template = new_template(kind, request, "fedbourse_whole")
        with SqlStore(url) as store:
            _MODELS[kind] = World(store).whole(), template
    model, template = _MODELS[kind]
    with fresh_url(kind, request, template=template) as url, SqlStore(url) as store:
        yield of.like(model, store)
