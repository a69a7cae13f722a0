"""A whole trade over a real connection, by people with tokens and devices that sign."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager

import httpx2
import pytest

from fedbourse.app.scheduler import WakeUp, running_scheduler
from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import NotAllowed, NotFound, Unauthenticated
from fedbourse.game import share_at
from fedbourse.market.audit import verify_task
from fedbourse.market.commands import access
from fedbourse.market.log import Event, is_intact
from fedbourse.market.service import Market
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey, key_id, verified
from fedbourse.protocol.messages import enrolment_message, round_request_message
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.trading import card, noise
from fedbourse.web.app import create_app
from web.clients import TestClient
from web.fixtures import CREDITS, UNHURRIED, Bank, World, asked, dump, send
from web.servers import served

VALUES = (1.0, 1.1, 1.2, 9.0)


class Device:
    """An owner's device, as far as the market can see."""

    def __init__(self, url, owner, value, market_key):
        self.owner, self.value, self.key = owner, value, SigningKey.generate()
        self.http = Connection(url, key=self.key, market_key=market_key)

    def plan(self, task):
        """Reply to an offer, but where a zero of before stands: nobody waits for it."""
        participation = self.http.get(f"/v1/tasks/{task['task']}/participation")
        zero_from = participation["interest"]["zero_from"]
        if zero_from is not None and zero_from <= task["total_budget"]:
            # Not the plan: the task may be settled by now, at a tick that nobody asked it about.
            return participation["replies"][-1] | {"tick": task["tick"]}
        share = share_at(self.value, task["total_budget"], reward=task["reward_micro"] / CREDITS)
        reply = {"tick": task["tick"], "previous": task["offer"]}
        budget = share * task["total_budget"]
        return self.http.put(f"/v1/tasks/{task['task']}/plan", {**reply, "budget": budget})

    def sign(self, path):
        offered = self.http.get(f"{path}/participation")["terms"]
        self.http.check_signed(offered["terms"], offered["market_signature"])
        signature = self.key.sign(canonical(offered["terms"]))
        decision = {"accept": True, "digest": offered["digest"], "signature": signature}
        return self.http.post(f"{path}/terms", decision)

    def update(self, path, published):
        response = self.http.fetch(f"{path}/round-request", {"after": -1})
        said = {name.removeprefix("fedbourse-"): each for name, each in response.headers.items()}
        number = int(said["round"])
        assert hashlib.sha256(response.content).hexdigest() == said["model-hash"]
        participation = self.http.get(f"{path}/participation")
        asked = round_request_message(
            task=participation["task"],
            card=published.digest,
            round=number,
            model_hash=said["model-hash"],
            deadline_ms=int(said["deadline"]),
            previous=said["previous"],
        )
        assert digest(asked) == said["request"]
        self.http.check_signed(asked, said["signature"])
        task = _Asked(participation["task"], published)
        content = noise(task, participation["allocation"]["budget"], f"{self.owner} {number}")
        done = self.http.put_bytes(f"{path}/rounds/{number}/update", content)
        self.http.check_signed(done["receipt"], done["market_signature"])
        return done["receipt"]


class _Asked:
    def __init__(self, id, published):
        self.id, self.card = id, published


class Followed:
    """A task's stream, broken and taken up again after every few events."""

    def __init__(self, connection, path):
        self.connection, self.path, self.seen = connection, path, []
        self._events = None

    def until(self, *kinds):
        """Read on until an event of one of these kinds has come."""
        while True:
            if self._events is None or len(self.seen) % 3 == 0:
                self.close()
                after = self.seen[-1]["sequence"] if self.seen else -1
                self._events = self.connection.events(f"{self.path}/stream", after)
            event = next(self._events)
            self.seen.append(event)
            if event["kind"] in kinds:
                return event

    def rest(self):
        self.seen.extend(self._events)

    def close(self):
        if self._events is not None:
            self._events.close()


@contextmanager
def running(store, bank):
    """Serve a market whose scheduler runs; the operator's token is all there is in it."""
    wake_up = WakeUp()
    market = Market(SigningKey.generate(), on_due=wake_up.wake)
    app = create_app(market, store, bank, UNHURRIED)

    with store.begin() as tx:
        _, token = access.issue_token(market, tx, None, holder="operator:main", scopes=["operator"])
    with (
        running_scheduler(app.state.service.market, store, bank, wake_up=wake_up),
        served(app) as url,
        Connection(url, token=token, market_key=market.key.public) as operator,
    ):
        yield url, operator


def enrolled(url, operator, market_key):
    """Let devices enrol, each with a one-time token."""
    devices = []
    for number, value in enumerate(VALUES):
        device = Device(url, f"owner:o{number}", value, market_key)
        once = operator.post("/v1/enrolment-tokens", {"owner": device.owner})["token"]
        body = {"token": once, "public_key": device.key.public}
        done = device.http.post("/v1/enrolments", body)
        host = url.removeprefix("http://")
        message = enrolment_message(device=done["device"], owner=device.owner, host=host)
        assert verified(market_key, canonical(message), done.pop("signature"))
        assert done == {
            "device": key_id(device.key.public),
            "owner": device.owner,
            "market_public_key": market_key,
        }
        other = Device(url, device.owner, value, market_key)
        with pytest.raises(Unauthenticated, match="used"), other.http:
            other.http.post("/v1/enrolments", body | {"public_key": other.key.public})
        devices.append(device)
    return devices


def with_token(url, operator, party, scope):
    made = operator.post("/v1/tokens", {"party": party, "scopes": [scope], "days": 1})
    return Connection(url, token=made["token"])


def test_a_whole_trade(store):
    bank = Bank(bank_1=("buyer:acme", 12 * CREDITS))
    with running(store, bank) as (url, operator):
        market_key = operator.check_market()["public_key"]
        devices = enrolled(url, operator, market_key)
        buyer = with_token(url, operator, "buyer:acme", "buyer")
        auditor = with_token(url, operator, "auditor:kay", "auditor")
        try:
            erased = trade(url, buyer, auditor, devices, bank)
        finally:
            for each in (buyer, auditor, *(device.http for device in devices)):
                each.close()
    left = repr(dump(store))
    assert erased
    assert not [secret for secret in erased if secret in left]


def trade(url, buyer, auditor, devices, bank):
    assert buyer.post("/v1/deposits", {"reference": "bank-1"})["balance_micro"] == 12 * CREDITS
    assert buyer.post("/v1/deposits", {"reference": "bank-1"})["balance_micro"] == 12 * CREDITS
    draft = buyer.post("/v1/tasks", card(rounds=3).document)
    path = f"/v1/tasks/{draft['task']}"
    with Connection(url) as stranger, pytest.raises(NotFound):
        stranger.get(path)
    assert buyer.post(f"{path}/open")["state"] == "open"
    with Connection(url) as stranger:
        followed = Followed(stranger, path)
        try:
            published = agree(stranger, buyer, devices, path, followed)
            train(devices, path, published, followed)
            followed.rest()
        finally:
            followed.close()
        check_log(stranger, path, followed.seen)
    return check_end(buyer, auditor, devices, path, bank)


def agree(stranger, buyer, devices, path, followed):
    """Go from an open task to one in training."""
    document = stranger.get(f"{path}/card")
    published = TaskCard.of(document["card"])
    assert published.digest == document["digest"]
    for device in devices:
        device.http.put(f"{path}/interest", {"value": None, "previous": document["digest"]})
    assert buyer.post(f"{path}/announce", {})["reward_micro"] == 10 * CREDITS
    event = followed.until("announced")
    while event["kind"] != "settled":
        task = stranger.get(path)
        for device in devices:
            assert device.plan(task)["tick"] == task["tick"]
        event = followed.until("ticked", "settled")
    chosen = [
        device for device in devices if device.http.get(f"{path}/participation")["allocation"]
    ]
    assert chosen == devices[:3]
    with pytest.raises(NotFound):
        devices[3].http.get(f"{path}/proof")
    for device in chosen:
        assert device.sign(path)["state"] == "signed"
    followed.until("training")
    return published


def train(devices, path, published, followed):
    for number in range(published.rounds):
        receipts = [device.update(path, published) for device in devices[:3]]
        assert {each["round"] for each in receipts} == {number}
        followed.until("round")


def check_log(stranger, path, seen):
    """Every event came once and in order, though the stream was broken again and again."""
    listed = []
    after = -1
    while after is not None:
        page = stranger.get(f"{path}/events", {"after": after, "limit": 4})
        listed += page["events"]
        after = page["next"]
    assert seen == listed
    assert [event["sequence"] for event in seen] == list(range(len(seen)))
    assert all(is_intact(Event(**event)) for event in seen)
    assert seen[-1]["kind"] == "completed"


def check_end(buyer, auditor, devices, path, bank):
    task = buyer.get(path)
    name, escrow = task["task"], f"/v1/accounts/escrow:{task['task']}"
    content = buyer.get_bytes(f"{path}/model")
    last = buyer.get(f"{path}/events", {"after": task["events"] - 2})["events"][0]
    assert hashlib.sha256(content).hexdigest() == last["body"]["model_hash"]
    money = buyer.get(f"{path}/report")["money_micro"]
    nothing = dict.fromkeys(("released", "refunded", "fund", "escrow"), 0)
    assert money == nothing | {"held": 10**7, "earned": 10**7}
    assert buyer.get("/v1/accounts/buyer:acme")["balance_micro"] == 2 * CREDITS
    records = {"task": task, "card": buyer.get(f"{path}/card")["card"]}
    records["events"] = buyer.get(f"{path}/events", {"limit": 1000})["events"]
    audited = verify_task(
        **records,
        owners=auditor.get(f"{path}/allocations")["owners"],
        own=None,
        entries=auditor.get(f"{escrow}/statement")["entries"],
    )
    assert not [check for check in audited if check.passed is False]
    for device in devices[:3]:
        own = device.http.get(f"{path}/participation")
        own["proof"] = device.http.get(f"{path}/proof")
        checks = verify_task(**records, owners=None, own=own, entries=None)
        assert all(check.passed for check in checks if check.name.startswith("own"))
        balance = device.http.get(f"/v1/accounts/{device.owner}")["balance_micro"]
        assert balance == own["allocation"]["payment_micro"] == own["allocation"]["earned_micro"]
    with pytest.raises(NotAllowed):
        auditor.post("/v1/withdrawals", {"amount_micro": 1, "destination": "home"})
    return leave(devices[0], path, name, bank)


def leave(device, path, name, bank):
    """Take the money out, be forgotten, and return what was."""
    said = device.http.get(f"{path}/participation")
    balance = device.http.get(f"/v1/accounts/{device.owner}")["balance_micro"]
    done = device.http.post("/v1/withdrawals", {"amount_micro": balance, "destination": "home"})
    assert done["balance_micro"] == 0
    until = time.monotonic() + 20
    while not bank.paid and time.monotonic() < until:
        time.sleep(0.01)
    assert [(each.party, each.amount) for each in bank.paid] == [(device.owner, balance)]
    assert device.http.post(f"{path}/erasure") == {"task": name, "owner": device.owner}
    participation = device.http.get(f"{path}/participation")
    assert (
        participation["plan"]["budget"],
        participation["allocation"]["budget"],
        participation["terms"],
    ) == (None, None, None)
    assert participation["allocation"]["payment_micro"] == balance
    salts = [said[part]["salt"] for part in ("interest", "allocation")]
    salts += [reply["salt"] for reply in said["replies"]]
    return [*salts, *(repr(reply["budget"]) for reply in said["replies"])]


def test_the_fund_is_published_pinned_and_nobodys_to_take(store):
    world = World(store)
    task = world.trading.in_training(world.owners, rounds=1)
    for owner in world.owners[1:]:
        world.trading.update(owner, task)
    world.trading.wait(task.card.deadlines.round_s)
    left = world.trading.participation(world.ann, task.id)["allocation"]["payment_micro"]
    words = {"account": "fund", "pays_to": world.market.fund_pays_to}
    with TestClient(world.app) as client:

        def ask(who, path, method="GET", **options):
            return send(client, world.request(who, method, path, **options))

        assert ask("stranger", "/v1/market").json()["fund"] == words | {"balance_micro": left}
        for shown, who in ((task, "stranger"), (world.draft, "buyer")):
            assert ask(who, f"/v1/tasks/{shown.id}/card").json()["fund"] == words
        assert ask("stranger", "/v1/accounts/fund").status_code == 401
        for who in ("another owner", "another buyer", "auditor"):
            assert ask(who, "/v1/accounts/fund").json()["balance_micro"] == left
            (entry,) = ask(who, "/v1/accounts/fund/statement").json()["entries"]
            assert (entry["id"], entry["amount"]) == (f"{task.id}/fund", left)
        body = {"party": "fund", "amount_micro": 1, "destination": "home"}
        for who in ("owner's device", "buyer", "operator"):
            assert ask(who, "/v1/withdrawals", "POST", body=body).status_code in (403, 422)
        token = {"party": "fund", "scopes": ["operator"]}
        assert ask("operator", "/v1/tokens", "POST", body=token).status_code == 422
    assert world.trading.balance("fund") == left


def test_lists_come_page_by_page(store):
    with running(store, Bank(bank_1=("buyer:acme", 30 * CREDITS))) as (url, operator):
        with with_token(url, operator, "buyer:acme", "buyer") as buyer:
            buyer.post("/v1/deposits", {"reference": "bank-1"})
            made = [buyer.post("/v1/tasks", card().document)["task"] for _ in range(5)]
            for task in made[:3]:
                buyer.post(f"/v1/tasks/{task}/open", {})
            assert pages(buyer, "/v1/tasks", "before", "tasks", "task") == made[::-1]
            with Connection(url) as stranger:
                assert pages(stranger, "/v1/tasks", "before", "tasks", "task") == made[2::-1]
                drafts = stranger.get("/v1/tasks", {"state": "draft"})
                assert drafts == {"tasks": [], "next": None}
        ids = pages(operator, "/v1/tokens", "after", "tokens", "id")
        assert ids == sorted(ids)
        assert len(ids) == 2


def pages(connection, path, cursor, items, name):
    found, asked = [], {"limit": 2}
    while True:
        page = connection.get(path, asked)
        found += [item[name] for item in page[items]]
        if page["next"] is None:
            return found
        asked[cursor] = page["next"]


def test_a_model_comes_with_its_hash_and_a_stream_of_a_task_that_ended_is_over(store):
    world = World(store)
    path = f"/v1/tasks/{world.completed.id}"
    with served(world.app) as url:
        request = asked(world.people["buyer"], "GET", f"{path}/model", now_ms=0)
        answer = httpx2.get(url + request.path, headers=dict(request.headers), trust_env=False)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert len(answer.content) == 8 * world.completed.card.dimension
        digest_of_body = hashlib.sha256(answer.content).hexdigest()
        assert answer.headers["fedbourse-model-hash"] == digest_of_body
        last = str(world.completed.last_sequence)
        headers = {"Last-Event-ID": last}
        seen = httpx2.get(f"{url}{path}/stream", headers=headers, trust_env=False)
        assert seen.status_code == 204
        whole = httpx2.get(f"{url}{path}/stream", trust_env=False)
        assert whole.headers["content-type"].startswith("text/event-stream")
        assert f"id: {last}\nevent: completed\ndata: " in whole.text


def test_a_new_token_is_answered_twice_alike_and_lies_nowhere_in_the_database(store):
    world = World(store)
    body = {"party": "buyer:new", "scopes": ["buyer"]}
    with TestClient(world.app) as client:
        first, again = (
            send(client, world.request("operator", "POST", "/v1/tokens", body=body, key="token-01"))
            for _ in range(2)
        )
    assert first.status_code == 201
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json()["token"] not in str(dump(store))
