"""An agent that was ended anywhere, or is asked twice, goes on as if nothing had happened."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fedbourse.device import Agent, BiddingStrategy, DeviceSettings, FileData
from fedbourse.device.deal_worker import Progress, Statement
from fedbourse.device.round_responder import RoundResponder
from fedbourse.errors import Conflict, Refused, Unreachable
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.device.malicious_market import (
    CARD,
    PAYMENT,
    ROUNDS,
    TASK,
    malicious_market,
    problem,
)
from fedbourse.testing.device.owners import Data, delivered, followed, joined

SETTINGS = DeviceSettings(value=1.0, lifetime_cap=5.0)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.protocol.transport._pause_s", lambda attempt: 0.0)
    monkeypatch.setattr("fedbourse.device.deal_worker._WAIT_S", 0.0)


def test_a_deal_from_before_is_looked_up_again(tmp_path: Path) -> None:
    with malicious_market() as market:
        with Agent.create(tmp_path / "device", SETTINGS, data=Data()) as agent:
            agent.enrol(market.url, "fbe_token")
            deal = agent.join(TASK)
            agent.follow(deal, until="signed")
            assert deal.state == "joined"  # the caller's own copy
            ended = agent.follow(deal)
        assert (ended.state, ended.outcome) == ("ended", "completed")
        assert sorted(market.left) == list(range(ROUNDS))


def test_an_interest_that_never_came_is_said_again(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.state = "open"  # as if the device had ended before it could register
        outcome = followed(folder, Data(), until=lambda told: told["event"] == "ended")
        assert outcome.ledger.earned_micro == PAYMENT


def test_an_enrolment_whose_response_was_lost_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    with malicious_market() as market:
        keys: list[Any] = []
        market.cheats["enrol"] = lambda said: keys.append(1) or problem("Unreachable", 503)
        with Agent.create(tmp_path / "device", SETTINGS, data=Data()) as agent:
            with pytest.raises(Unreachable):
                agent.enrol(market.url, "fbe_token")
            assert not agent.deals.markets()
            del market.cheats["enrol"]
            agent.enrol(market.url, "fbe_token")
            agent.enrol(market.url, "fbe_token")
            assert len(agent.deals.markets()) == 1
        assert len(set(market.keys["enrolments"])) == 1
        assert len(keys) > 1


def test_what_an_applications_data_source_raises_comes_out_of_run(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 1)

        def broken(card: object) -> Any:
            raise ZeroDivisionError("their own mistake")

        with (
            Agent(folder, data=broken) as agent,
            pytest.raises(ZeroDivisionError, match="their own"),
        ):
            agent.run()
        assert len(market.left) == 1


def test_one_task_that_does_not_fit_hides_no_other(tmp_path: Path) -> None:
    layout = {"columns": [{"name": "income"}], "label": "label"}
    other = TaskCard.of({**CARD.document, "layout": layout})
    table = tmp_path / "own.csv"
    table.write_text("x,label\n" + "0.5,1\n-0.5,0\n" * 20)
    with malicious_market(card=other) as first, malicious_market() as second:
        told: list[dict[str, Any]] = []

        def hear(event: dict[str, Any]) -> None:
            told.append(event)
            if {"ended", "not-joined"} <= {each["event"] for each in told}:
                agent.stop.set()

        source = FileData(str(table))
        with Agent.create(tmp_path / "device", SETTINGS, data=source, on_event=hear) as agent:
            agent.enrol(first.url, "fbe_token")
            agent.enrol(second.url, "fbe_token")
            timer = threading.Timer(20, agent.stop.set)
            timer.start()
            agent.run(join_open=True)
            timer.cancel()
            (deal,) = agent.deals.deals()
        assert deal.market == second.key.public
        assert deal.outcome == "completed"
        assert [event["event"] for event in told].count("not-joined") == 1


def test_a_task_is_joined_once_it_is_open_and_only_then(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.state = "announced"
        with Agent(folder, data=Data()) as agent:
            with pytest.raises(Conflict):
                agent.join(TASK)
            market.state = "open"
            assert agent.join(TASK, BiddingStrategy(most=0.1)).strategy.most == 0.1
        delivered(folder, 0)
        assert market.plans == [0.1]
        with Agent(folder, data=Data()) as agent, pytest.raises(Conflict, match="signed"):
            agent.join(TASK)


@pytest.mark.parametrize(
    "strategy", [BiddingStrategy(budget=6.0), BiddingStrategy(budget=5.0000001)]
)
def test_a_budget_over_the_cap_is_refused_at_once(
    strategy: BiddingStrategy, tmp_path: Path
) -> None:
    with malicious_market() as market:
        with Agent.create(tmp_path / "device", SETTINGS, data=Data(forbidden=True)) as agent:
            agent.enrol(market.url, "fbe_token")
            with pytest.raises(Refused) as refused:
                agent.join(TASK, strategy)
            assert [each.reason for each in agent.ledger().refusals] == ["over-cap"]
        assert refused.value.reason == "over-cap"
        assert market.state == "open"


def test_updates_may_be_sent_as_floats(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market, update_format="float32")
        outcome = followed(folder, Data(), until=lambda told: told["event"] == "ended")
        assert outcome.ledger.earned_micro == PAYMENT
        assert {len(body) for _, body in market.updates} == {4 * CARD.dimension}


def test_a_device_that_ignores_what_it_risks_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RoundResponder, "unpaid", lambda *_, **__: [])
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.cheats["signed receipt"] = lambda _: problem("Conflict", 409)
        outcome = followed(folder, Data(), until=lambda told: told["event"] == "ended")
        assert len(market.left) == ROUNDS  # where a right device stops after one
        assert "unpaid" not in outcome.reasons


def test_joining_looks_at_no_record(tmp_path: Path) -> None:
    with malicious_market() as market:
        data = Data(forbidden=True)
        with Agent.create(tmp_path / "device", SETTINGS, data=data) as agent:
            agent.enrol(market.url, "fbe_token")
            assert agent.join(TASK).state == "joined"


def test_a_round_that_was_begun_in_time_gets_its_update_however_long_reading_takes(
    tmp_path: Path,
) -> None:
    class Slow(Data):
        def __call__(self, card: object) -> tuple[Any, Any]:
            time.sleep(0.3)
            return super().__call__(card)

    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.cheats["headers"] = lambda headers: headers | {"Fedbourse-Left-Ms": "200"}
        outcome = followed(folder, Slow(), until=lambda told: told["event"] == "ended")
        assert sorted(market.left) == list(range(ROUNDS))
        assert not outcome.reasons


@pytest.mark.parametrize(
    ("state", "heard", "due"),
    [
        ("open", Progress(), Statement.INTEREST),
        ("open", Progress(Statement.INTEREST), None),
        ("announced", Progress(Statement.REPLY, offer="a"), Statement.REPLY),
        ("settled", Progress(Statement.REPLY, offer="a"), Statement.DECISION),
        ("settled", Progress(Statement.DECISION, events=6), Statement.DECISION),
        ("settled", Progress(Statement.DECISION, events=7), None),
        ("training", Progress(), Statement.DECISION),
        ("training", Progress(Statement.DECISION, events=6), None),
    ],
)
def test_what_the_market_must_hear_follows_from_the_task_and_what_it_heard(state, heard, due):
    assert heard.due({"state": state, "events": 7}) is due
