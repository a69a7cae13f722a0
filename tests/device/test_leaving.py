"""A device whose owner has left the task stops: nothing is reserved, planned or signed any more."""

import threading
from pathlib import Path
from typing import Any

import pytest

from fedbourse.device import Agent, BiddingStrategy
from fedbourse.device.live_deal import LEFT_TASK
from fedbourse.errors import Conflict, LeftTask, NotFound, Unreachable
from fedbourse.testing.device.malicious_market import TASK, malicious_market, problem
from fedbourse.testing.device.owners import Data, delivered, followed, joined

GONE = {"event": "not-taking-part", "task": TASK, "sentence": LEFT_TASK}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.protocol.transport._pause_s", lambda attempt: 0.0)
    monkeypatch.setattr("fedbourse.device.deal_worker._WAIT_S", 0.0)


def refuse(code: str, status: int = 409) -> Any:
    return lambda _: problem(code, status)


def test_an_owner_withdraws_through_its_device(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        with Agent(folder, data=Data()) as agent:
            for _ in range(2):
                deal = agent.leave_task(TASK)
                assert (deal.state, deal.outcome) == ("declined", LEFT_TASK)
            assert agent.deal_of(TASK) == deal
            assert agent.left == 5.0
            assert agent.run() == []
        assert market.withdrawals == 1
        assert market.plans == market.decisions == []


@pytest.mark.parametrize("place", ["plan", "interest"])
def test_who_withdrew_elsewhere_is_told_and_nothing_is_tried_again(
    place: str, tmp_path: Path
) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.state = "announced" if place == "plan" else "open"
        market.cheats[place] = refuse("LeftTask")
        market.exit = {"reason": "left"}
        told: list[dict[str, Any]] = []
        with Agent(folder, data=Data(), on_event=told.append) as agent:
            (deal,) = agent.run()
            assert (deal.state, deal.outcome) == ("declined", LEFT_TASK)
            assert agent.run() == []
            assert not agent.guard.accounts()
        assert told.count(GONE) == 1
        assert not [event for event in told if event["event"] == "moved"]
        assert len(market.keys[place]) == (1 if place == "plan" else 2)  # the first was heard


@pytest.mark.parametrize("place", ["plan", "interest"])
def test_a_deal_does_not_end_on_a_word_that_the_markets_record_does_not_bear_out(
    place: str, tmp_path: Path
) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.state = "announced" if place == "plan" else "open"
        market.cheats[place] = refuse("LeftTask")
        outcome = followed(folder, Data())
        assert outcome.reasons == ["state"]
        assert "has no record of an exit" in outcome.sentences
        assert outcome.ledger.entries[0].deal.state == "joined"


def test_who_withdrew_and_heard_of_it_late_is_told_so(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.state = "settled"
        market.exit = {"reason": "left"}
        assert GONE in followed(folder, Data(), until=lambda told: False).events


def test_a_task_that_was_left_is_not_joined_again(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        with Agent(folder, data=Data()) as agent:
            agent.leave_task(TASK)
            market.state = "open"
            market.cheats["interest"] = refuse("LeftTask")
            with pytest.raises(LeftTask):
                agent.join(TASK, BiddingStrategy(budget=0.1))
            assert agent.deal_of(TASK).outcome == LEFT_TASK


@pytest.mark.parametrize(
    ("cheat", "error"), [(refuse("Conflict"), Conflict), (refuse("Unreachable", 503), Unreachable)]
)
def test_a_refused_withdrawal_changes_nothing(cheat: Any, error: Any, tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.cheats["leave"] = cheat
        with Agent(folder, data=Data()) as agent:
            before = agent.deal_of(TASK)
            with pytest.raises(error):
                agent.leave_task(TASK)
            assert agent.deal_of(TASK) == before
        assert len(set(market.keys["interest"][1:])) == 1  # asked again with the same key


def test_an_interest_that_never_came_needs_no_market_to_forget_it(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.cheats["leave"] = refuse("NotFound", 404)
        with Agent(folder, data=Data()) as agent:
            assert agent.leave_task(TASK).outcome == LEFT_TASK
            with pytest.raises(NotFound, match="no deal about task"):
                agent.leave_task("f" * 24)


def test_signed_terms_do_not_end_on_the_market_s_word(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 1)
        market.cheats["round-request"] = refuse("LeftTask")
        outcome = followed(folder, Data())
        assert outcome.events[-1]["event"] == "moved"
        with Agent(folder, data=Data()) as agent:
            assert agent.deal_of(TASK).state == "signed"


def test_a_thread_that_follows_the_deal_ends_as_well(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.state, market.ticks = "announced", 1000
        planned, go_on = threading.Event(), threading.Event()

        def hear(event: dict[str, Any]) -> None:
            if event["event"] == "planned":
                planned.set()
                go_on.wait(10)

        with Agent(folder, data=Data(), on_event=hear) as agent:
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.extend(agent.run()))
            thread.start()
            assert planned.wait(10)
            agent.leave_task(TASK)
            go_on.set()
            thread.join(10)
            assert [(deal.state, deal.outcome) for deal in found] == [("declined", LEFT_TASK)]
            assert agent.deal_of(TASK).state == "declined"
        assert len(market.plans) == 1


def test_a_device_that_goes_on_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedbourse.device.deal_worker.LeftTask", ZeroDivisionError)
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.cheats["plan"] = refuse("LeftTask")
        outcome = followed(folder, Data())
        assert outcome.events[-1]["event"] == "moved"
        assert GONE not in outcome.events
