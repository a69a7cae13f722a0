"""A device signs only pay of at least floor((1 - 1e-6) r R/P), P of the tick that it replied to."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device.test_deals import DEAL
from fedbourse.device import KnownMarket
from fedbourse.device.deal import SentReply
from fedbourse.device.market_client import MarketClient
from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Refused
from fedbourse.protocol.keys import SigningKey
from fedbourse.protocol.messages import terms_message
from fedbourse.testing.device.adversary import items
from fedbourse.testing.device.malicious_market import CARD, REWARD, malicious_market
from fedbourse.testing.device.owners import Data, followed, joined

if TYPE_CHECKING:
    from pathlib import Path

MARKET, DEVICE = SigningKey.generate(), SigningKey.generate()
CLIENT = MarketClient(
    KnownMarket(key=MARKET.public, server="http://127.0.0.1:1", device="d", owner=DEAL.owner),
    DEVICE,
)


def offered(reply: SentReply, payment: int, **changed: Any) -> dict[str, Any]:
    """Return terms at a reply's tick, total and budget, as the market signs them."""
    terms = terms_message(
        CARD,
        task=DEAL.task,
        owner=DEAL.owner,
        tick=reply.tick,
        total_budget=reply.total_budget,
        budget=reply.budget,
        payment_micro=payment,
        allocation="1" * 64,
    )
    terms |= changed
    signature = MARKET.sign(canonical(terms))
    return {"terms": terms, "digest": digest(terms), "market_signature": signature}


def signs(replies: tuple[SentReply, ...], on_offer: dict[str, Any]) -> bool:
    try:
        CLIENT.checked_terms(replace(DEAL, replies=replies), on_offer)
    except Refused:
        return False
    return True


sizes = st.floats(-9, 9).map(lambda power: 10.0**power)


@given(sizes, st.floats(1e-9, 1), st.integers(1, 2**53 - 1), st.integers(-3, 3))
def test_the_least_pay_is_signed_and_one_micro_credit_less_is_not(
    total, share, reward, more
) -> None:
    reply = SentReply("0" * 64, 4, total, reward, total * share)
    exact = Fraction(reply.budget) * reward / Fraction(total)
    least = math.floor((1 - Fraction(1, 10**6)) * exact)
    assert signs((reply,), offered(reply, least))
    assert signs((reply,), offered(reply, least + abs(more)))
    if least:
        assert not signs((reply,), offered(reply, least - 1))


def replies(*pairs: tuple[float, float]) -> tuple[SentReply, ...]:
    return tuple(
        SentReply(digest(tick), tick, total, REWARD, budget)
        for tick, (total, budget) in enumerate(pairs)
    )


REPLIES = replies((1.0, 0.5), (2.0, 0.6), (4.0, 0.0))


@pytest.mark.parametrize("tick", [0, 1])
def test_any_tick_that_was_replied_to_can_be_settled_at_its_own_price(tick: int) -> None:
    reply = REPLIES[tick]
    due = math.floor(Fraction(reply.budget) * REWARD / Fraction(reply.total_budget))
    assert signs(REPLIES, offered(reply, due))
    assert not signs(REPLIES, offered(reply, due - due // 10**5))


@pytest.mark.parametrize(
    "changed",
    [
        {"tick": 1},  # tick 0's budget and total
        {"total_budget": 2.0},
        {"budget": 0.6},
        {"tick": 1, "total_budget": 2.0},
        {"tick": 1, "budget": 0.6},
        {"total_budget": 1.5},  # a total that was never announced
        {"tick": 3, "total_budget": 1.5},
        {"tick": 2, "total_budget": 4.0, "budget": 0.0},  # where nothing was sold
        {"tick": 2, "total_budget": 4.0},
        {"tick": "0"},
        {"tick": False},
        {"tick": 0.0},
        {"total_budget": 1},
        {"total_budget": True},
        {"total_budget": None},
    ],
    ids=str,
)
def test_terms_of_another_tick_or_total_are_not_signed_for_any_pay(changed) -> None:
    assert signs(REPLIES, offered(REPLIES[0], REWARD))
    assert not signs(REPLIES, offered(REPLIES[0], REWARD, **changed))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.protocol.transport._pause_s", lambda attempt: 0.0)
    monkeypatch.setattr("fedbourse.device.deal_worker._WAIT_S", 0.0)


TOTALS = [1.0, 0.8, 0.9]
"""The device replies with 2/3, 0.5867 and 0.63: at R/P these are 2, 2.2 and 2.1 credits."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settled", "payment", "reason"),
    [
        (1, 2_200_000, None),
        (1, 2_199_997, None),  # floor((1 - 1e-6) 2.2 credits)
        (1, 2_199_996, "price"),
        (1, 2_100_000, "price"),  # tick 2's pay
        (0, 2_000_000, None),  # an earlier tick, at its own price
        (0, 1_999_997, "price"),
        (2, 2_099_997, None),
        (2, 2_000_000, "price"),
    ],
)
def test_the_price_is_that_of_the_tick_settled_at(
    settled: int, payment: int, reason: str | None, tmp_path: Path
) -> None:
    with malicious_market() as market:
        market.totals, market.ticks, market.payment = TOTALS, 3, payment
        settle = market.settle
        market.settle = lambda: settle(settled)  # type: ignore[method-assign]
        folder = joined(tmp_path / "device", market)
        outcome = followed(folder, Data(), until=lambda event: event["event"] == "ended")
        assert outcome.reasons == ([] if reason is None else [reason])
        assert market.signed is (reason is None)
        assert bool(market.left) is (reason is None)


@pytest.mark.parametrize("total", [0.7, 1.2])
def test_a_total_that_was_announced_to_others_is_not_settled_at(total, tmp_path: Path) -> None:
    with malicious_market() as market:
        market.totals, market.ticks = TOTALS, 3
        folder = joined(tmp_path / "device", market)
        market.cheats["terms"] = items(total_budget=total, payment_micro=REWARD)
        outcome = followed(folder, Data(forbidden=True))
        assert outcome.reasons == ["changed-terms"]
        assert f"total_budget {total}" in outcome.sentences
        assert not market.signed
        assert outcome.ledger.reserved == 0
