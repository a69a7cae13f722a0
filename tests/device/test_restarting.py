"""A price that is discovered again: terms are given up unspent, and one budget alone is spent."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from fedbourse.device import Agent, BiddingStrategy
from fedbourse.privacy.terms import Terms
from fedbourse.testing.device.malicious_market import ROUNDS, TASK, malicious_market, problem
from fedbourse.testing.device.owners import Data, delivered, followed, joined

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedbourse.testing.device.malicious_market import MaliciousMarket

ENOUGH = 3_000_000
"""A pay that every tick below is worth."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.protocol.transport._pause_s", lambda attempt: 0.0)
    monkeypatch.setattr("fedbourse.device.deal_worker._WAIT_S", 0.0)


@pytest.fixture
def market() -> Iterator[MaliciousMarket]:
    with malicious_market() as served:
        served.payment, served.totals = ENOUGH, [1.0, 0.8, 0.9, 0.85]
        yield served


def ended(event: dict[str, Any]) -> bool:
    return bool(event["event"] == "ended")


def accounts(folder: Path) -> list[tuple[float, int, bool]]:
    """Return the budget of each account, its rounds charged for, and whether it is closed."""
    with Agent(folder, read_only=True) as agent:
        return [(each.terms.rho, each.charged, each.closed) for each in agent.guard.accounts()]


@pytest.mark.parametrize("restarts", [1, 3])
def test_the_last_terms_are_sold_and_those_before_are_given_up(market, tmp_path, restarts) -> None:
    market.restarts = restarts
    folder = joined(tmp_path / "device", market)
    outcome = followed(folder, Data(), until=ended)
    assert [event["event"] for event in outcome.events].count("reopened") == restarts
    *given_up, sold = accounts(folder)
    assert [(charged, closed) for _, charged, closed in given_up] == [(0, True)] * restarts
    assert sold == (market.plans[-1], ROUNDS, True)
    (entry,) = outcome.ledger.entries
    assert entry.budget == market.plans[-1]
    assert entry.spent == outcome.ledger.spent <= Fraction(entry.budget)
    assert entry.earned_micro == ENOUGH
    assert not outcome.ledger.reserved
    assert not outcome.ledger.elsewhere
    assert not outcome.reasons


def test_a_cap_of_one_budget_is_enough_for_any_number_of_settlements(market, tmp_path) -> None:
    market.restarts = 2
    folder = joined(tmp_path / "device", market, lifetime_cap=0.25)
    outcome = followed(folder, Data(), until=ended)
    assert market.plans == [0.25] * 3
    assert outcome.ledger.entries[0].deal.outcome == "completed"
    assert 0.25 * (1 - 1e-9) <= outcome.ledger.spent <= Fraction(0.25)


def test_between_two_settlements_nothing_is_reserved(market, tmp_path) -> None:
    market.restarts = 1
    folder = joined(tmp_path / "device", market)
    outcome = followed(folder, Data(), until=lambda event: event["event"] == "reopened")
    (entry,) = outcome.ledger.entries
    assert (entry.deal.state, entry.deal.terms, entry.budget) == ("joined", None, 0.0)
    assert outcome.ledger.reserved == outcome.ledger.spent == 0
    assert followed(folder, Data(), until=ended).ledger.earned_micro == ENOUGH


def settled_anew(market: MaliciousMarket, **items: Any) -> None:
    """Settle once more without any tick, as where who declined had next to nothing."""
    market.state, market.signed = "settled", False
    market.events += 1
    for name, value in items.items():
        setattr(market, name, value)


def test_a_settlement_that_follows_at_once_is_signed_as_well(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)
    signatures = []

    def hear(event: dict[str, Any]) -> bool:
        if event["event"] == "signed":
            signatures.append(event["payment_micro"])
            if len(signatures) == 1:  # the same tick and budget, and a little more pay
                settled_anew(market, leaf="2" * 64, payment=ENOUGH + 1)
        return ended(event)

    outcome = followed(folder, Data(), until=hear)
    assert signatures == [ENOUGH, ENOUGH + 1]
    assert [(charged, closed) for _, charged, closed in accounts(folder)] == [
        (0, True),
        (ROUNDS, True),
    ]
    assert outcome.ledger.earned_micro == ENOUGH + 1


def test_a_settlement_that_followed_while_the_device_was_away_is_signed(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)
    delivered(folder, 0)
    settled_anew(market, leaf="2" * 64)
    assert followed(folder, Data(), until=ended).ledger.earned_micro == ENOUGH
    assert len(market.decisions) == 2


def test_a_restart_between_two_looks_is_not_taken_for_the_end(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)

    def gone_meanwhile(participation: dict[str, Any]) -> dict[str, Any]:
        del market.cheats["participation"]
        market.restart()
        return {**participation, "allocation": None, "terms": None, "sequence": market.events - 1}

    market.cheats["participation"] = gone_meanwhile
    outcome = followed(folder, Data(), until=ended)
    assert len(market.plans) == 2
    assert outcome.ledger.earned_micro == ENOUGH


@pytest.mark.parametrize("error", ["Conflict", "NotFound"])
def test_a_restart_that_comes_before_the_signature_is_followed(market, tmp_path, error) -> None:
    folder = joined(tmp_path / "device", market)

    def too_late(update: Any) -> Any:
        del market.cheats["decide"]
        market.restart()
        return problem(error, 409 if error == "Conflict" else 404)

    market.cheats["decide"] = too_late
    outcome = followed(folder, Data(), until=ended)
    assert [(charged, closed) for _, charged, closed in accounts(folder)] == [
        (0, True),
        (ROUNDS, True),
    ]
    assert outcome.ledger.earned_micro == ENOUGH


def test_terms_that_were_given_up_are_never_signed_again(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)
    delivered(folder, 0)
    settled_anew(market, leaf="2" * 64)
    delivered(folder, 0)
    settled_anew(market, leaf="1" * 64)
    outcome = followed(folder, Data(forbidden=True))
    assert outcome.reasons == ["changed-terms"]
    assert "other terms took their place" in outcome.sentences
    assert not market.signed
    assert outcome.ledger.reserved == outcome.ledger.spent == 0


@pytest.mark.parametrize("how", ["announced", "settled"])
def test_a_market_that_starts_again_after_training_began_is_refused(market, tmp_path, how) -> None:
    folder = joined(tmp_path / "device", market)
    spent = delivered(folder, 1).spent
    if how == "announced":
        market.restart()
    else:
        market.paid.clear()
        settled_anew(market, leaf="2" * 64)
    outcome = followed(folder, Data(forbidden=True))
    assert outcome.reasons == ["changed-terms"]
    assert "after training has begun" in outcome.sentences
    assert outcome.spent == spent
    assert len(market.plans) == len(accounts(folder)) == 1
    assert sum(decision["accept"] for decision in market.decisions) == 1


def test_a_market_that_starts_again_for_ever_is_refused(market, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fedbourse.device.tick_replies.TICKS_MAX", 5)
    market.restarts = 10**9
    folder = joined(tmp_path / "device", market)
    outcome = followed(folder, Data(forbidden=True))
    assert outcome.in_time
    assert outcome.reasons == ["offer"]
    assert len(market.plans) == 5
    assert outcome.ledger.reserved == outcome.ledger.spent == 0


def test_a_market_that_settles_for_ever_is_refused(market, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fedbourse.device.reservations.TICKS_MAX", 5)
    folder = joined(tmp_path / "device", market)

    def hear(event: dict[str, Any]) -> bool:
        if event["event"] == "signed":
            settled_anew(market, payment=market.payment + 1)
        return ended(event)

    outcome = followed(folder, Data(forbidden=True), until=hear)
    assert outcome.in_time
    assert outcome.reasons == ["changed-terms"]
    assert "more than 5 times" in outcome.sentences
    assert len(accounts(folder)) == 5
    assert outcome.ledger.reserved == outcome.ledger.spent == 0


def test_what_a_kill_left_reserved_is_free_once_other_terms_are_signed(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market, lifetime_cap=0.25)
    followed(folder, Data(), until=lambda event: event["event"] == "planned")
    with Agent(folder, data=Data()) as agent:  # killed before the signed terms were stored
        deal = agent.deal_of(TASK)
        agent.guard.agree(deal.privacy(market.terms()))
        assert agent.ledger().entries[0].reserved > 0
        assert agent.left == pytest.approx(0, abs=1e-15)
    market.restart()
    outcome = followed(folder, Data(), until=ended)
    assert outcome.ledger.entries[0].deal.outcome == "completed"
    assert [charged for _, charged, _ in accounts(folder)] == [0, ROUNDS]


def test_what_a_kill_left_reserved_is_free_once_the_owner_is_out(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)
    followed(folder, Data(), until=lambda event: event["event"] == "planned")
    with Agent(folder, data=Data()) as agent:
        agent.guard.agree(agent.deal_of(TASK).privacy(market.terms()))
    market.exit = {"reason": "unsigned"}
    outcome = followed(folder, Data(forbidden=True))
    assert outcome.ledger.reserved == 0


def test_the_cap_of_a_task_is_fixed_when_it_is_joined(market, tmp_path) -> None:
    market.ticks = 2
    folder = joined(tmp_path / "device", market, lifetime_cap=0.25)
    followed(folder, Data(), until=lambda event: event["event"] == "planned")
    other = Terms(task="another", rho=0.2, rounds=1, dimension=1, samples=1)
    with Agent(folder, data=Data()) as agent:
        agent.guard.agree(other)
        assert agent.left < 0.06
    outcome = followed(folder, Data(forbidden=True))
    assert market.plans == [0.25, 0.25]  # another cap would contradict the first reply
    assert outcome.reasons == ["over-cap"]  # and what no longer fits is not signed
    assert [decision["accept"] for decision in market.decisions] == [False]
    assert float(outcome.ledger.reserved) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("reason", "words"),
    [("missed", "a tick was missed"), ("declined", "the terms were declined"),
     ("unsigned", "were not signed in time"), ("left", "the owner left the task"),
     ("unknown", "not chosen")],
)  # fmt: skip
@pytest.mark.parametrize("was", ["joined", "signed"])
def test_why_an_owner_is_out_is_said(market, tmp_path, reason, words, was) -> None:
    folder = joined(tmp_path / "device", market)
    if was == "signed":
        delivered(folder, 0)
        settled_anew(market)
    else:
        followed(folder, Data(), until=lambda event: event["event"] == "planned")
    market.exit = {"reason": reason}
    outcome = followed(folder, Data(forbidden=True))
    (entry,) = outcome.ledger.entries
    assert words in entry.deal.outcome
    assert entry.deal.state == "declined"
    assert outcome.ledger.reserved == 0
    with Agent(folder, read_only=True) as agent:
        assert {check.passed for check in agent.verify(TASK)} <= {True, None}


def test_a_fixed_budget_that_would_contradict_itself_leaves_the_task(market, tmp_path) -> None:
    market.totals, market.ticks = [3.0, 2.9, 2.0], 3
    folder = joined(tmp_path / "device", market)
    with Agent(folder, data=Data()) as agent:
        agent.deals.change(agent.deal_of(TASK), strategy=BiddingStrategy(budget=0.5))
    outcome = followed(folder, Data(forbidden=True), until=lambda event: False)
    assert market.plans == [0.0]
    assert market.withdrawals == 1
    (entry,) = outcome.ledger.entries
    assert entry.deal.state == "declined"
    assert "contradicts 0 rho at a total of 3 (tick 0)" in entry.deal.outcome


def test_a_zero_that_stands_is_not_said_again(market, tmp_path) -> None:
    market.totals, market.ticks = [3.0, 4.0, 2.0], 3
    folder = joined(tmp_path / "device", market)

    def hear(event: dict[str, Any]) -> bool:
        if event["event"] == "planned" and event["tick"] == 0:
            assert not event["budget"]
        return ended(event)

    def ticks_by_itself(task: dict[str, Any]) -> dict[str, Any]:
        if market.state == "announced" and market.tick == 1:  # it does not wait for this device
            market.tick, market.events = 2, market.events + 1
        return task

    market.cheats["task"] = ticks_by_itself
    outcome = followed(folder, Data(), until=hear)
    assert [tick for tick, _ in sorted(market.replies.items())] == [0, 2]
    assert outcome.ledger.earned_micro == ENOUGH


def test_a_zero_that_never_came_is_sent_again_after_a_kill(market, tmp_path) -> None:
    market.totals = [3.0]
    folder = joined(tmp_path / "device", market)
    market.cheats["plan"] = lambda _: problem("Unreachable", 503)
    followed(folder, Data(), until=lambda event: event["event"] == "unreachable")
    assert not market.plans
    del market.cheats["plan"]
    outcome = followed(folder, Data(forbidden=True), until=lambda event: False)
    assert market.plans == [0.0]
    assert outcome.ledger.entries[0].deal.outcome == "not chosen: no budget was sold"
