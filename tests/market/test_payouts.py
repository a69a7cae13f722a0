"""Money out: conserved, sent once, never lost, and no pay-out in the way of another."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse.errors import Conflict, InvalidInput, InvalidTransfer, NotAllowed, NotFound
from fedbourse.ledger import OUTSIDE
from fedbourse.market.commands import payouts
from fedbourse.market.commands.payouts import PAYOUTS, PayoutState
from fedbourse.market.service import Market, PayoutLimits, escrow
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, caller
from market.life_invariants import sqlite_stores
from market.payout_fixtures import ACTS, Store, World, live

ANN = caller("owner:ann")


@pytest.fixture
def sqlite_store(sqlite_template):
    """A store that is cheap to make; the stories below are told on both databases."""
    with sqlite_stores(sqlite_template)() as store:
        yield store


@pytest.fixture
def trading(sqlite_store) -> Trading:
    return Trading(Store(sqlite_store))


@pytest.fixture
def world(sqlite_store) -> World:
    return World(sqlite_store)


def take(trading, who, amount, *, account=None, destination="DE00"):
    return trading.do(
        payouts.request,
        who,
        account=account or who.party,
        amount_micro=amount,
        destination=destination,
    )


# -- any sequence ------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(ACTS), st.integers(0, 11), st.integers(1, 6)),
        min_size=8,
        max_size=25,
    )
)
def test_whatever_happens_money_is_conserved_and_every_payout_arrives_once(
    sqlite_template, acts
) -> None:
    with sqlite_stores(sqlite_template)() as store:
        live(store, [(World.ask, number, 7 + number) for number in range(3)] + acts)


STORIES = {
    "all is well": [(World.hand_over, 0, 0), (World.confirm, 0, 0), (World.confirm, 1, 0)],
    "one bank is down": [(World.fail, 0, 0), (World.hand_over, 0, 0), (World.wait, 0, 2)],
    "a failed one is returned": [
        (World.fail, 0, 0),
        (World.hand_over, 0, 0),
        (World.give_back, 0, 0),
    ],
    "a bank says that it failed, and paid": [
        (World.fail, 0, 1),
        (World.hand_over, 0, 0),
        (World.give_back, 0, 0),
        (World.wait, 0, 2),
        (World.hand_over, 0, 0),
        (World.give_back, 0, 0),
    ],
    "killed before the bank paid": [(World.kill, 1, 0), (World.give_back, 0, 0)],
    "killed after the bank paid": [(World.kill, 1, 1), (World.hand_over, 0, 0)],
    **{
        f"killed at write {write}, {place}": [
            (World.kill, 2 * write, place),
            (World.give_back, 0, 0),
        ]
        for write in range(4)
        for place in (0, 1)
    },
    "returned while it is handed over": [(World.race, 0, 0)],
    "sent and came back": [(World.hand_over, 0, 0), (World.give_back, 0, 0)],
    "returned before anybody tried": [(World.give_back, 1, 0), (World.hand_over, 0, 0)],
}
ASKED = [(World.ask, number, 7 + number) for number in range(3)]


@pytest.mark.parametrize("story", STORIES)
def test_each_way_to_go_wrong_is_survived_on_both_databases(store, story) -> None:
    live(store, ASKED + STORIES[story])


# -- and what would be seen if it were not so --------------------------------------------------


def stops_at_a_failure(patch) -> None:
    def hand_over(market, store, payments):
        with store.read() as tx:
            due = tx.due_payouts(now_ms=market.now_ms(), limit=100)
        for payout in due:
            with store.begin() as tx:
                attempt = payouts._begin(market, tx, payout)
            try:
                payments.pay(attempt)
            except OSError:
                return
            with store.begin() as tx:
                payouts._end(market, tx, attempt, PayoutState.SENT)

    patch.setattr(payouts, "hand_over", hand_over)


def says_sent_before_it_pays(patch) -> None:
    def begin(market, tx, seen):
        payout = tx.payout(seen.id, lock="change")
        return payouts._move(market, tx, payout, PayoutState.SENT) if payout.waits else None

    patch.setattr(payouts, "_begin", begin)


def pays_under_a_new_id(patch) -> None:
    pay = World.__init__

    def init(self, store):
        pay(self, store)
        bank, honest = self.bank, self.bank.pay
        bank.pay = lambda payout: honest(replace(payout, id=f"{payout.id}/{payout.attempts}"))

    patch.setattr(World, "__init__", init)


def never_tries_again(patch) -> None:
    patch.setattr(payouts, "_HOLD_MS", 2**50)
    patch.setattr(payouts, "take_up", lambda market, store: None)


def gives_back_unasked(patch) -> None:
    inquire = payouts.inquire
    patch.setattr(payouts, "inquire", lambda *who: replace(inquire(*who), paid=False))


def begins_in_secret(patch) -> None:
    patch.setattr(payouts, "_begin", lambda market, tx, seen: seen)


def makes_the_money_that_it_returns(patch) -> None:
    def leave(market, tx, payout, account):
        if account != OUTSIDE:
            market.pay(tx, f"payout/{payout.id}", (OUTSIDE, account), payout.amount, "")

    patch.setattr(payouts, "_leave", leave)


def pays_within_a_transaction(patch) -> None:
    def hand_over(market, store, payments):
        with store.begin() as tx:
            for payout in tx.due_payouts(now_ms=market.now_ms(), limit=100):
                payments.pay(payout)
                payouts._move(market, tx, payout, PayoutState.SENT)

    patch.setattr(payouts, "hand_over", hand_over)


FAULTS = {
    stops_at_a_failure: ("one bank is down", "one blocks a later one"),
    says_sent_before_it_pays: ("killed before the bank paid", "is lost"),
    pays_under_a_new_id: ("killed after the bank paid", "paid twice|is lost"),
    never_tries_again: ("killed before the bank paid", "is lost|blocks"),
    gives_back_unasked: ("a bank says that it failed, and paid", "paid and returned"),
    begins_in_secret: ("returned while it is handed over", "paid and returned"),
    makes_the_money_that_it_returns: ("a failed one is returned", "not conserved"),
    pays_within_a_transaction: ("all is well", "while a transaction was open"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_queue_that_works_otherwise_is_caught(sqlite_store, fault, monkeypatch) -> None:
    story, law = FAULTS[fault]
    fault(monkeypatch)
    with pytest.raises(AssertionError, match=law):
        live(sqlite_store, ASKED + STORIES[story])


# -- one by one --------------------------------------------------------------------------------


def test_a_failed_payout_waits_longer_each_time_up_to_an_hour(world) -> None:
    world.ask(0, 5)
    world.bank.down.add(ANN.party)
    waited = []
    for _ in range(15):
        world.hand_over()
        (payout,) = world.everything()
        waited.append((payout.due_ms - world.trading.time_ms) // 1000)
        world.trading.time_ms = payout.due_ms - 1
        world.hand_over()
        assert world.everything() == [payout]  # not before its time
        world.trading.time_ms += 1
    assert waited == [2**n for n in range(12)] + [3600] * 3
    assert (payout.state, payout.note) == ("failed", "the line is dead")
    world.bank.down.clear()
    world.hand_over()
    assert world.everything()[0].state == "sent"


def test_the_first_to_ask_is_the_first_to_be_paid(world) -> None:
    for number in range(5):
        world.ask(number, 10 - number)
    world.hand_over()
    assert [amount for _, amount in world.bank.paid.values()] == [10, 9, 8, 7, 6]


def test_a_payout_ends_once(world) -> None:
    world.ask(0, 5)
    world.hand_over()
    (payout,) = world.everything()
    inquiry = payouts.inquire(world.store, world.bank, OPERATOR, payout.id)
    world.trading.do(payouts.confirm, OPERATOR, payout.id)
    with pytest.raises(Conflict, match="is confirmed, which nothing may follow; found confirmed"):
        world.trading.do(payouts.confirm, OPERATOR, payout.id)
    with pytest.raises(Conflict, match="is confirmed, which nothing may follow; found returned"):
        world.trading.do(payouts.give_back, OPERATOR, payout.id, inquiry=inquiry, reason="")
    assert world.trading.balance(PAYOUTS) == 0
    world.check()


def test_one_that_was_not_sent_cannot_have_arrived(world) -> None:
    world.ask(0, 5)
    (payout,) = world.everything()
    with pytest.raises(Conflict, match="is requested, which sent, failed, returned may follow"):
        world.trading.do(payouts.confirm, OPERATOR, payout.id)


@pytest.mark.parametrize("who", [ANN, AUDITOR, BUYER], ids=lambda who: who.party)
def test_only_the_operator_says_how_a_payout_ended(world, who) -> None:
    world.ask(0, 5)
    (payout,) = world.everything()
    inquiry = payouts.Inquiry(0, paid=False)
    with pytest.raises(NotAllowed):
        world.trading.do(payouts.confirm, who, payout.id)
    with pytest.raises(NotAllowed):
        world.trading.do(payouts.give_back, who, payout.id, inquiry=inquiry, reason="")
    with pytest.raises(NotAllowed):
        payouts.inquire(world.store, world.bank, who, payout.id)
    with pytest.raises(NotAllowed), world.store.read() as tx:
        payouts.queue(tx, who, limit=9)


def test_payouts_are_seen_by_their_party_and_the_operator(world) -> None:
    world.ask(0, 5)
    with world.store.read() as tx:
        for who in (ANN, OPERATOR):
            assert len(payouts.payouts_of(tx, who, ANN.party, limit=9)) == 1
        for who in (AUDITOR, BUYER):
            with pytest.raises(NotAllowed):
                payouts.payouts_of(tx, who, ANN.party, limit=9)


def test_a_payout_that_is_none_is_not_found(world) -> None:
    with pytest.raises(NotFound, match="there is no pay-out"):
        payouts.inquire(world.store, world.bank, OPERATOR, "0" * 24)
    with pytest.raises(NotFound, match="there is no pay-out"):
        world.trading.do(payouts.confirm, OPERATOR, "0" * 24)


# -- what is asked for -------------------------------------------------------------------------


def test_a_withdrawal_moves_money_aside(trading) -> None:
    trading.fund(500)
    payout = take(trading, BUYER, 200)
    assert (trading.balance(BUYER.party), trading.balance(PAYOUTS)) == (300, 200)
    assert trading.balance(OUTSIDE) == -500
    assert payout.state == "requested"


@pytest.mark.parametrize("bad", ["\0", "\x1b", "\udc00"])
def test_a_destination_holds_nothing_that_clients_cannot_read(trading, bad) -> None:
    trading.fund(500)
    with pytest.raises(InvalidInput, match="destination must hold no control characters"):
        take(trading, BUYER, 200, destination=f"DE{bad}00")
    assert trading.balance(BUYER.party) == 500


@pytest.mark.parametrize("amount", [0, -1, 1.5, True, "1", None, 2**53, 10**400])
def test_what_is_no_amount_is_refused(trading, amount) -> None:
    trading.fund(500)
    with pytest.raises(InvalidInput, match="amount_micro must be"):
        take(trading, BUYER, amount)
    assert trading.balance(BUYER.party) == 500


def test_nobody_takes_out_more_than_it_has(trading) -> None:
    trading.fund(500)
    with pytest.raises(InvalidTransfer, match=r"holds 0\.000500 credits, less than the 0\.000501"):
        take(trading, BUYER, 501)
    take(trading, BUYER, 500)
    with pytest.raises(InvalidTransfer, match=r"holds 0\.000000 credits"):
        take(trading, BUYER, 1)
    with trading.store.read() as tx:
        assert len(tx.payouts(BUYER.party, limit=9)) == 1


@pytest.mark.parametrize("who", [OPERATOR, AUDITOR, ANN], ids=str)
def test_nobody_takes_money_out_of_anothers_account(trading, who) -> None:
    trading.fund(500)
    with pytest.raises(NotAllowed):
        take(trading, who, 1, account=BUYER.party)


@pytest.mark.parametrize("account", [OUTSIDE, PAYOUTS, escrow("0" * 24), "market", ""])
def test_only_parties_have_money_to_take_out(trading, account) -> None:
    with pytest.raises(InvalidInput, match="a party is"):
        trading.do(payouts.request, OPERATOR, account=account, amount_micro=1, destination="DE00")


@pytest.mark.parametrize("destination", ["", "  ", "x" * 201, None, 5])
def test_money_goes_somewhere(trading, destination) -> None:
    trading.fund(500)
    with pytest.raises(InvalidInput, match="destination must say"):
        take(trading, BUYER, 1, destination=destination)


def limited(trading, **limits) -> Trading:
    key = trading.market.key
    trading.market = Market(
        key, now_ms=lambda: trading.time_ms, payout_limits=PayoutLimits(**limits)
    )
    return trading


def test_a_withdrawal_below_the_least_is_refused_in_credits(trading) -> None:
    limited(trading, min_micro=250_000).fund(500_000)
    with pytest.raises(InvalidInput, match=r"at least 0\.250000 credits; found 0\.249999"):
        take(trading, BUYER, 249_999)
    assert trading.balance(BUYER.party) == 500_000
    take(trading, BUYER, 250_000)


def test_an_account_withdraws_so_often_within_24_hours(trading) -> None:
    limited(trading, per_day=2).fund(500)
    trading.fund(500, party=ANN.party, reference="ann")
    take(trading, BUYER, 1)
    trading.time_ms += 3_600_000
    take(trading, BUYER, 1)
    with pytest.raises(Conflict, match="may withdraw 2 times within 24 hours"):
        take(trading, BUYER, 1)
    assert trading.balance(BUYER.party) == 498
    take(trading, ANN, 1)  # others may
    trading.time_ms += 23 * 3_600_000 - 1
    with pytest.raises(Conflict):
        take(trading, BUYER, 1)
    trading.time_ms += 2  # the first one was a day ago
    take(trading, BUYER, 1)
    with pytest.raises(Conflict):
        take(trading, BUYER, 1)
