"""Equal lots at a falling price, on the market: from the card to the last transfer."""

import secrets
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse.errors import InvalidInput
from fedbourse.game.mechanisms import exit_order
from fedbourse.market import what_if
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.lot_clock import LotDiscovery
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.testing.trading import BUYER, EVIDENCE, Trading, card
from market.life_invariants import sqlite_stores

R = 10_000_000
LOT = 2.0
CLOCK = {"compensation": "clock", "min_budget": LOT, "max_rho": LOT}


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


def body_of(trading, task, kind) -> dict:
    return [event.body for event in trading.events(task.id) if event.kind == kind][-1]


def assert_verified(trading, task, owners) -> None:
    for viewer in (None, *owners):
        checks = trading.verified(task.id, owner=viewer)
        assert [check for check in checks if check.passed is False] == []


def sale(trading, task) -> dict[str, int]:
    """Who sells, each for what."""
    allocations = trading.allocations(task.id)
    assert {allocation.budget for allocation in allocations} == {LOT}
    return {allocation.owner: int(allocation.payment) for allocation in allocations}


def test_a_whole_trade_at_one_price_whose_rest_goes_to_the_fund(trading) -> None:
    owners = trading.owners(0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
    task = trading.settled(owners, **CLOCK)
    paid = sale(trading, task)
    # k = max{k : v_(k) lot <= R/k} in the limit: a fourth lot would cost 2.8, above 10/4.
    assert set(paid) == {owner.name for owner in owners[:3]}
    assert min(paid.values()) >= 0.95 * 1.4 * LOT * 1e6
    assert sum(paid.values()) <= R
    assert body_of(trading, task, "settled")["converged"]
    task = trading.trained(owners, trading.signed(owners, task))
    assert task.state is State.COMPLETED
    assert {name: trading.balance(name) for name in paid} == paid
    assert trading.balance(FUND) == R - sum(paid.values()) > 0
    assert trading.balance(escrow(task.id)) == trading.balance(BUYER.party) == 0
    assert_verified(trading, task, owners)


def test_of_equal_owners_as_many_sell_as_the_reward_pays_in_an_order_fixed_before(trading) -> None:
    owners = trading.owners(*[1.0] * 7)
    task = trading.settled(owners, **CLOCK)
    paid = sale(trading, task)
    (price,) = set(paid.values())
    assert len(paid) == R // price == 4  # all leave at one tick; three replies count
    assert price > 1.0 * LOT * 1e6
    first = body_of(trading, task, "announced")["hash"]
    counted = exit_order(bytes.fromhex(first), [owner.name for owner in owners])[:3]
    assert set(paid) == {owner.name for owner in owners} - set(counted)
    assert_verified(trading, task, owners)


def test_a_decliner_is_struck_out_and_the_clock_goes_on_without_it(trading) -> None:
    owners = trading.owners(0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
    task = trading.settled(owners, **CLOCK)
    trading.decide(owners[0], task.id, accept=False)
    task = trading.play(owners[1:], trading.signed(owners[1:], task))
    paid = sale(trading, task)
    assert owners[0].name not in paid
    assert sum(paid.values()) <= R
    assert_verified(trading, task, owners)


def test_a_task_cancelled_in_training_returns_what_was_not_trained(trading) -> None:
    owners = trading.owners(0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
    task = trading.settled(owners, **CLOCK)
    spent = sum(sale(trading, task).values())
    trading.trained(owners, trading.signed(owners, task), until=1)
    trading.do(buyer_commands.cancel, BUYER, task.id)
    assert trading.balance(FUND) == (R - spent) // 4  # one round of four
    assert trading.balance(escrow(task.id)) == 0
    assert_verified(trading, trading.task(task.id), owners)


def test_evidence_holds_the_pay_of_lots_too(trading) -> None:
    owners = trading.owners(0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
    task = trading.settled(
        owners, reference=EVIDENCE["reference"], evidence=EVIDENCE["evidence"], **CLOCK
    )
    paid = sale(trading, task)
    task = trading.trained(owners, trading.signed(owners, task))
    assert task.state is State.COMPLETED
    earned = {name: trading.balance(name) for name in paid}
    assert all(earned[name] in (0, payment) for name, payment in paid.items())
    assert trading.balance(FUND) == R - sum(earned.values())
    assert_verified(trading, task, owners)


def test_too_few_who_stay_cancel_the_task(trading) -> None:
    owners = trading.owners(1.0, 90.0, 95.0)
    task = trading.announced(owners, **CLOCK)
    trading.play(owners, task)
    assert trading.task(task.id).state is State.CANCELLED
    assert trading.balance(BUYER.party) == R


def test_a_price_that_can_fall_no_more_cancels_the_task(trading) -> None:
    owners = trading.owners(*[1e-9] * 4)
    task = trading.announced(owners, **CLOCK, reward=2e-6)  # two micro-credits for four lots
    trading.play(owners, task)
    assert trading.task(task.id).state is State.CANCELLED
    assert "the price can fall no more" in body_of(trading, task, "cancelled")["reason"]
    assert trading.balance(BUYER.party) == R


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"min_budget": 1.0}, "min_budget and max_rho must both be the lot; found min_budget 1.0"),
        ({"vesting": "upfront"}, "with the clock vesting must be by-round.* found 'upfront'"),
        ({"unearned": "refund"}, "with the clock unearned must be fund.* found 'refund'"),
        ({"reward": "best", "max_reward": 3.0}, "the clock needs a reward in credits.*'best'"),
    ],
)
def test_cards_under_which_lies_could_pay_are_refused(changes, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        card(**(CLOCK | changes))


def test_a_preview_of_proportional_pay_says_that_it_is_one(trading) -> None:
    task = trading.opened(**CLOCK)
    with pytest.raises(InvalidInput, match="the card sells equal lots by the clock"):
        trading.see(what_if.of_task, BUYER, task.id, rewards=[1.0])


def test_nobody_tells_its_value(trading) -> None:
    owners = trading.owners(1.0, 2.0)
    with pytest.raises(InvalidInput, match=r"no owner tells its value.*found value 1.0"):
        trading.announced(owners, report=True, **CLOCK)


VALUES = st.lists(
    st.sampled_from([0.1, 0.5, 0.9, 1.0, 1.3, 2.0, 2.4, 3.7, 5.0]), min_size=2, max_size=9
)


@settings(max_examples=12)
@given(values=VALUES, liar=st.integers(0, 8), claim=st.floats(0.05, 6.0))
def test_no_owner_gains_by_acting_as_if_its_value_were_another(
    sqlite_template, values, liar, claim
) -> None:
    """Whole sales on a database, which differ in nothing but how one owner acts."""
    liar %= len(values)
    utilities = []
    for acted in (values[liar], claim):
        # The task's id is in the hash that orders replies.
        same_id = mock.patch.object(secrets, "token_hex", lambda size: "0" * 2 * size)
        with same_id, sqlite_stores(sqlite_template)() as store:
            trading = Trading(store)
            trading.fund(R)
            owners = trading.owners(*values)
            owners[liar] = replace(owners[liar], value=acted)
            task = trading.play(owners, trading.announced(owners, **CLOCK))
            paid = {}
            if task.state is State.SETTLED:
                paid = {each.owner: each.payment / 1e6 for each in trading.allocations(task.id)}
                assert sum(paid.values()) <= R / 1e6 + 1e-9
            pay = paid.get(owners[liar].name)
            utilities.append(0.0 if pay is None else pay - values[liar] * LOT)
    honest, lying = utilities
    assert honest >= 0
    assert lying <= honest + 1e-6


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["price", "sellers"])
def test_a_market_that_sells_otherwise_is_caught(trading, monkeypatch, fault) -> None:
    owners, payments = trading.owners(*[1.0] * 7), vars(LotDiscovery)["payments"].func

    def otherwise(discovery):
        paid = payments(discovery)
        if fault == "price":  # it keeps a part of what sellers accepted
            return {owner: payment * 99 // 100 for owner, payment in paid.items()}
        # It chooses itself who sells.
        names = sorted(discovery.ticks[0].stayed - set(paid)) + sorted(paid)
        return dict(zip(names, paid.values(), strict=False))

    monkeypatch.setattr(LotDiscovery, "payments", property(otherwise))
    task = trading.settled(owners, **CLOCK)
    monkeypatch.undo()
    failed = {check.name for check in trading.verified(task.id) if check.passed is False}
    assert failed & {"payments", "plans"}
