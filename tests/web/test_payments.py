"""Money in and out over HTTP: the bank is asked while nothing is locked, and says it all once."""

from __future__ import annotations

import pytest

from fedbourse.market.commands import accounts, payouts
from fedbourse.market.service import Market, PayoutLimits
from fedbourse.web.app import create_app
from market.payout_fixtures import Store
from web.clients import TestClient
from web.fixtures import UNHURRIED, World, send

BUYER = "buyer:acme"


class Asker:
    """A market over a store that counts its open transactions, and a bank that looks at them."""

    def __init__(self, store) -> None:
        self.world = World(Store(store))
        self.bank = self.world.bank
        self.calls: list[str] = []
        for name in ("received", "pay", "has_paid"):
            setattr(self.bank, name, self._watched(name, getattr(self.bank, name)))
        self.client = TestClient(self.world.app)

    def _watched(self, name, call):
        def watched(*what):
            self.calls.append(name + (" within a transaction" if self.world.store.open else ""))
            return call(*what)

        return watched

    def __call__(self, who, method, path, body=None, status=None, **options):
        reply = send(self.client, self.world.request(who, method, path, body=body, **options))
        if status is not None:
            assert reply.status_code == status, reply.text
        return reply.json()

    def hand_over(self):
        return payouts.hand_over(self.world.market, self.world.store, self.bank)

    def withdraw(self, amount=7, status=201):
        body = {"amount_micro": amount, "destination": "home"}
        return self("buyer", "POST", "/v1/withdrawals", body, status)


@pytest.fixture
def ask(store):
    asker = Asker(store)
    with asker.client:
        yield asker


def test_the_bank_is_never_asked_within_a_transaction(ask) -> None:
    ask("buyer", "POST", "/v1/deposits", {"reference": "bank-1"}, 201)
    first, second = ask.withdraw()["id"], ask.withdraw()["id"]
    assert ask.hand_over().sent == 2
    ask("operator", "POST", f"/v1/payouts/{first}/confirm", {}, 200)
    ask("operator", "POST", f"/v1/payouts/{second}/return", {}, 200)
    assert ask.calls == ["received", "pay", "pay", "has_paid"]


def test_a_bank_that_is_asked_within_a_transaction_would_be_seen(ask, monkeypatch) -> None:
    deposit = accounts.deposit

    def late(market, tx, caller, received):
        return deposit(market, tx, caller, accounts.look_up(caller, ask.bank, "bank-1"))

    monkeypatch.setattr(accounts, "deposit", late)
    ask("buyer", "POST", "/v1/deposits", {"reference": "bank-1"}, 201)
    assert ask.calls == ["received", "received within a transaction"]


def test_a_repeated_deposit_says_that_it_was_claimed_before(ask) -> None:
    world = ask.world
    held, claimed_ms = world.trading.balance(BUYER), world.trading.time_ms
    for number, who in enumerate(("buyer", "buyer", "operator")):
        done = ask(who, "POST", "/v1/deposits", {"reference": "bank-1"}, 201)
        assert done["claimed_before"] is (number > 0)
        assert done["claimed_ms"] == claimed_ms
        assert done["balance_micro"] == held + done["amount_micro"]
        world.trading.time_ms += 60_000


def test_the_same_request_again_is_answered_alike_also_when_the_bank_has_forgotten(ask) -> None:
    body = {"reference": "bank-1"}
    first = ask("buyer", "POST", "/v1/deposits", body, 201, key="same-key-1")
    ask.bank.known.clear()
    assert ask("buyer", "POST", "/v1/deposits", body, 201, key="same-key-1") == first
    assert ask("buyer", "POST", "/v1/deposits", body, 404)["detail"].endswith("bank-1")


def test_an_owner_sees_where_its_money_is(ask) -> None:
    made = [ask.withdraw(amount)["id"] for amount in (5, 6, 7)]
    path = f"/v1/accounts/{BUYER}"
    assert ask("buyer", "GET", path)["leaving_micro"] == 18
    ask.bank.pay = lambda payout: (_ for _ in ()).throw(OSError("the line is dead"))
    assert isinstance(ask.hand_over().failure, OSError)
    page = ask("buyer", "GET", f"{path}/payouts", query="limit=2")
    rest = ask("buyer", "GET", f"{path}/payouts", query=f"limit=2&before={page['next']}")
    everything = page["payouts"] + rest["payouts"]
    assert sorted(each["id"] for each in everything) == sorted(made)
    assert {(each["state"], each["note"]) for each in everything} == {
        ("failed", "the line is dead")
    }
    done = ask("operator", "POST", f"/v1/payouts/{made[0]}/return", {"reason": "no IBAN"}, 200)
    assert (done["state"], done["note"], done["party"]) == ("returned", "no IBAN", BUYER)
    assert ask("buyer", "GET", path)["leaving_micro"] == 13
    queue = ask("operator", "GET", "/v1/payouts")["payouts"]
    assert sorted(each["id"] for each in queue) == sorted(made[1:])


def test_what_may_not_follow_is_refused_with_a_sentence(ask) -> None:
    id = ask.withdraw()["id"]
    refused = ask("operator", "POST", f"/v1/payouts/{id}/confirm", {}, 409)
    assert refused["detail"].startswith(f"pay-out {id} is requested, which sent, failed, returned")
    missing = "0" * 24
    for step in ("confirm", "return"):
        ask("operator", "POST", f"/v1/payouts/{missing}/{step}", {}, 404)
    bad = ask("operator", "POST", "/v1/payouts/abc/confirm", {}, 422)
    assert "a pay-out's id has 24 hexadecimal digits" in bad["detail"]


def test_the_operators_limits_speak_credits(ask) -> None:
    world = ask.world
    limits = PayoutLimits(min_micro=10_000, per_day=2)
    market = Market(world.market.key, now_ms=world.market.now_ms, payout_limits=limits)
    with TestClient(create_app(market, world.store, ask.bank, UNHURRIED)) as ask.client:
        refused = ask.withdraw(9_999, status=422)["detail"]
        assert refused == "a withdrawal must be of at least 0.010000 credits; found 0.009999"
        ask.withdraw(10_000)
        ask.withdraw(10_000)
        assert "may withdraw 2 times within 24 hours" in ask.withdraw(10_000, status=409)["detail"]
    assert world.trading.balance("payouts") == 20_000
