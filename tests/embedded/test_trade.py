"""A trade in one process is a trade of the market: the same commands, books, log and devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedbourse.demos.local import DemoSettings, demo_trade
from fedbourse.embedded.market import embedded_market
from fedbourse.embedded.simulated_devices import SimulatedOwners
from fedbourse.embedded.trade import BUYER, EmbeddedTrade
from fedbourse.errors import InvalidGame, InvalidInput, Refused
from fedbourse.game import equilibrium
from fedbourse.learning.models import model_named
from fedbourse.learning.records import Scaling
from fedbourse.ledger import OUTSIDE
from fedbourse.market.report import trade_report
from fedbourse.market.service import escrow
from fedbourse.privacy.filter import RoundRequest
from fedbourse.privacy.noise import SimulatedNoise
from fedbourse.privacy.terms import Terms
from fedbourse.testing.trading import Trading, card
from learning.federations import federation

CARD = card(features=4, dimension=4, samples=7, rounds=4, reward=2.0)
MODEL = model_named("logistic", features=4, classes=2)
VALIDATION = federation(owners=1, samples=50, seed=9).records
VALUES = np.array([1.0, 1.1, 9.0, 1.3, 1.2, 1.1])
CHOSEN = [0, 1, 3, 4, 5]
"""All but the owner whose value is too high."""


def owners(*, cap: float = 8.0, available=None) -> SimulatedOwners:
    return SimulatedOwners(
        values=VALUES,
        lifetime_caps=np.full(len(VALUES), cap),
        records=lambda chosen: federation(owners=len(chosen)),
        noise=lambda terms: SimulatedNoise(terms, seed=0),
        available=available,
    )


@pytest.fixture
def embedded():
    with embedded_market() as opened:
        yield opened


def trade_on(embedded, *, on_step=lambda sentence: None, **options) -> EmbeddedTrade:
    return EmbeddedTrade(embedded, CARD, MODEL, VALIDATION, owners(**options), on_step=on_step)


def report_of(trade) -> dict:
    scaling = Scaling(np.zeros(3), np.ones(3))
    return trade_report(trade, validation_records=50, scaling=scaling, references={}, origin={})


def test_the_market_verifies_it_as_any_other_task(embedded) -> None:
    trade = trade_on(embedded).run()
    checks = Trading(embedded.store).verified(trade.task.id)
    assert len(checks) >= 14
    assert all(check.passed for check in checks), checks
    with embedded.store.read() as tx:
        assert tx.unbalanced() == []
        kinds = [event.kind for event in tx.events(trade.task.id, limit=1000)]
    assert kinds[0] == "created"
    assert kinds.count("round") == CARD.rounds
    assert kinds[-1] == "completed"


def test_devices_find_the_equilibrium_without_telling_a_value(embedded) -> None:
    trade = trade_on(embedded).run()
    exact = equilibrium(VALUES, reward=2.0)
    assert [each.owner for each in trade.participants] == CHOSEN == exact.participants.tolist()
    budgets = [each.terms.rho for each in trade.participants]
    assert budgets == pytest.approx(exact.budgets, rel=1e-6)
    with embedded.store.read() as tx:
        assert tx.count_reported(trade.task.id) == 0


def test_devices_are_closed_and_forget_their_last_update(embedded) -> None:
    trading = trade_on(embedded)
    trading.run()
    for owner in CHOSEN:
        guard = trading.devices.filters[owner]
        (account,) = guard.accounts()
        assert account.closed
        assert account.charged == CARD.rounds
        with guard._store.transaction() as books:
            assert books.update(account.terms.task) is None
        round_request = RoundRequest(
            account.terms.task, account.terms.digest, 3, account.last.model
        )
        with pytest.raises(Refused, match="has ended"):
            guard.charge(round_request, cost=0.0)
    assert trading.devices.filters[2].accounts() == []


def test_rounds_that_devices_miss_end_at_their_deadline(embedded) -> None:
    before_ms = embedded.market.now_ms()
    trade = trade_on(embedded, available=lambda round, n: np.arange(n) != round).run()
    assert embedded.market.now_ms() - before_ms == 4 * CARD.deadlines.round_s * 1000
    assert [seen.updates for seen in trade.rounds] == [4, 4, 4, 4]
    assert [each.delivered for each in trade.participants] == [3, 3, 3, 3, 4]
    for each in trade.participants:
        assert each.earned == each.payment * each.delivered // 4
        assert each.spent == pytest.approx(each.terms.rho * each.delivered / 4)
    money = report_of(trade)["money"]
    unearned = sum(each.payment - each.earned for each in trade.participants)
    assert money["refunded_micro"] + money["fund_micro"] == unearned > 0
    assert money["escrow_micro"] == 0


def test_time_stands_still_where_everybody_acts(embedded) -> None:
    before_ms = embedded.market.now_ms()
    trade_on(embedded).run()
    assert embedded.market.now_ms() == before_ms


def sell_elsewhere(trading: EmbeddedTrade, *sellers: int) -> None:
    """Let devices promise all that is left to another task."""
    for owner in sellers:
        guard = trading.devices.filters[owner]
        guard.agree(Terms(task="other", rho=guard.lifetime_cap, rounds=1, dimension=4, samples=7))


def test_who_cannot_reserve_its_budget_declines_and_the_others_train(embedded) -> None:
    def on_step(sentence: str) -> None:
        if sentence.startswith("settled") and not trading.devices.declined:
            sell_elsewhere(trading, 3)

    trading = trade_on(embedded, on_step=on_step)
    trade = trading.run()
    assert [each.owner for each in trade.participants] == [0, 1, 4, 5]
    (sentence,) = trade.declined
    assert sentence.startswith("owner 3: a budget of ")
    assert "does not fit under the lifetime cap of 8" in sentence
    money = report_of(trade)["money"]
    assert money["earned_micro"] == money["payments_micro"] == money["reward_micro"]


def test_a_task_that_the_market_cancels_raises_its_reason(embedded) -> None:
    def on_step(sentence: str) -> None:
        if sentence.startswith("settled") and not trading.devices.declined:
            sell_elsewhere(trading, 0, 1, 2, 3, 4)

    trading = trade_on(embedded, on_step=on_step)
    with pytest.raises(InvalidGame, match="cancelled the task: the card needs 2 participants, and"):
        trading.run()
    with embedded.store.read() as tx:
        assert tx.balance(BUYER.party) == 2_000_000


def test_money_is_reported_from_the_books_whatever_else_escrow_held(embedded) -> None:
    trade = trade_on(embedded, available=lambda round, n: np.arange(n) != 0).run()
    assert trade.transfers[0].debit == OUTSIDE
    plain = report_of(trade)["money"]
    account = escrow(trade.task.id)
    last = trade.transfers[-1]
    reserved = [
        replace(last, id="more", debit=BUYER.party, credit=account, amount=500),
        replace(last, id="back", debit=account, credit=BUYER.party, amount=500),
        replace(last, id="fund", debit=BUYER.party, credit=account, amount=7),
        replace(last, id="unearned", debit=account, credit="fund:research", amount=7),
    ]
    money = report_of(replace(trade, transfers=(*trade.transfers, *reserved)))["money"]
    assert money["fund_micro"] == plain["fund_micro"] + 7
    assert money["earned_micro"] == plain["earned_micro"]
    assert money["refunded_micro"] == plain["refunded_micro"] - 7
    assert money["escrow_micro"] == plain["escrow_micro"] == 0
    assert money["transfers"] == plain["transfers"] + 4


def test_samples_of_zero_are_refused_and_not_taken_for_the_default() -> None:
    with pytest.raises(InvalidInput, match="samples must be"):
        demo_trade(DemoSettings(data="synthetic:d=6,n=4000", samples=0))
