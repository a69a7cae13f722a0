"""A device's own records against the market's: every difference is shown."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedbourse.device import Agent, DeviceCheck
from fedbourse.encoding.canonical import digest
from fedbourse.testing.device.malicious_market import (
    CARD,
    PAYMENT,
    TASK,
    MaliciousMarket,
    malicious_market,
    problem,
)
from fedbourse.testing.device.owners import Data, delivered, followed, joined


def verify(folder: Path) -> dict[str, DeviceCheck]:
    with Agent(folder, data=Data(forbidden=True)) as agent:
        return {check.name: check for check in agent.verify(TASK)}


@pytest.fixture
def traded(tmp_path: Path):
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 2)
        yield market, folder


def test_both_sides_agree(traded: tuple[MaliciousMarket, Path]) -> None:
    _, folder = traded
    assert {check.passed for check in verify(folder).values()} == {True}


def test_before_terms_there_is_nothing_to_compare(tmp_path: Path) -> None:
    with malicious_market() as market:
        found = verify(joined(tmp_path / "device", market))
        assert found.pop("own card").passed
        assert {check.passed for check in found.values()} == {None}


def line(**changed: Any):
    return lambda participation: {
        **participation,
        "allocation": {**participation["allocation"], **changed},
    }


DIFFERENCES = {
    "own replies": (
        "participation",
        lambda participation: {**participation, "replies": [{"tick": 0, "budget": 0.5}]},
    ),
    "own price": ("events", lambda found: {**found, "events": found["events"][:-1]}),
    "own card": ("card", lambda found: {**found, "digest": "0" * 64}),
    "own terms": ("participation", line(payment_micro=PAYMENT - 1)),
    "own updates": ("participation", line(delivered=1)),
    "own earnings": ("participation", line(earned_micro=1)),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_shown_where_it_is(name: str, traded) -> None:
    market, folder = traded
    place, bend = DIFFERENCES[name]
    market.cheats[place] = bend
    found = verify(folder)
    assert [check.name for check in found.values() if check.passed is False] == [name]


@pytest.mark.parametrize("place", ["allocation", "leaf", "signature"])
def test_a_line_that_is_not_the_devices_is_shown(place: str, traded) -> None:
    market, folder = traded
    bend = (
        (lambda participation: {**participation, "allocation": None})
        if place == "allocation"
        else line(**{place: "x"})
    )
    market.cheats["participation"] = bend
    assert verify(folder)["own terms"].passed is False


def test_a_market_that_forgets_an_update_is_shown(traded) -> None:
    market, folder = traded
    market.paid.pop(1)
    found = verify(folder)
    assert found["own updates"].passed is False
    assert found["own earnings"].passed is False
    assert found["own receipts"].passed  # the device holds both, signed


@pytest.mark.parametrize("rounds", [None, 0, 1])
def test_an_old_copy_of_a_folder_is_shown_and_updates_nothing(rounds, tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        if rounds is not None:
            delivered(folder, rounds)
        shutil.copytree(folder, tmp_path / "copy")
        delivered(folder, 2)
        found = verify(tmp_path / "copy")
        wrong = [check for check in found.values() if check.passed is False]
        assert any("old copy" in check.detail for check in wrong)
        outcome = followed(tmp_path / "copy", Data(forbidden=True))
        assert outcome.reasons == ["forgotten"]
        assert {number: len(bodies) for number, bodies in market.left.items()} == {0: 1, 1: 1}


def test_a_receipt_that_the_market_never_signed_is_shown(traded) -> None:
    _, folder = traded
    with closing(sqlite3.connect(folder / "spend.db")) as connection:
        connection.execute("DROP TRIGGER receipt_is_never_lost")
        connection.execute(
            "UPDATE delivered SET receipt = json_set(receipt, '$.receipt.earned_micro', 1) "
            "WHERE round = 1"
        )
        connection.commit()
    assert verify(folder)["own receipts"].passed is False


def replied(*pairs: tuple[int, float | None], gone: dict[str, str] | None = None):
    replies = [{"tick": tick, "budget": budget} for tick, budget in pairs]
    return lambda participation: {**participation, "replies": replies, "exit": gone}


@pytest.mark.parametrize(
    ("bend", "passed", "says"),
    [
        (replied((0, None)), True, "1 replies"),  # erased
        (replied((0, 0.5)), False, "the reply to tick 0: the market says 0.5"),
        (replied(), False, "does not hold the reply to tick 0"),
        (replied(gone={"reason": "left"}), True, "0 replies"),
        (replied((0, 0.5), gone={"reason": "left"}), False, "the reply to tick 0"),
        (replied((0, None), (1, 0.1)), False, "somebody else uses its key"),
    ],
)
def test_replies_are_compared_tick_by_tick(bend, passed, says, traded) -> None:
    market, folder = traded
    market.cheats["participation"] = bend
    check = verify(folder)["own replies"]
    assert (check.passed, says in check.detail) == (passed, True), check


def test_a_reply_to_the_tick_that_is_open_may_be_on_its_way(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.cheats["plan"] = lambda _: problem("Unreachable", 503)
        followed(folder, Data(), until=lambda told: told["event"] == "unreachable")
        assert verify(folder)["own replies"].passed
        market.tick += 1
        assert verify(folder)["own replies"].passed is False


def offers(**changed: Any):
    """Write another offer into the log, with its own hash."""

    def bend(found: dict[str, Any]) -> dict[str, Any]:
        first, *rest = found["events"]
        offer = first["body"]["offer"] | changed
        return {
            **found,
            "events": [{**first, "body": {"offer": offer, "hash": digest(offer)}}, *rest],
        }

    return bend


def settled(**changed: Any):
    def bend(found: dict[str, Any]) -> dict[str, Any]:
        *rest, last = found["events"]
        return {**found, "events": [*rest, {**last, "body": last["body"] | changed}]}

    return bend


@pytest.mark.parametrize(
    ("bend", "says"),
    [
        (offers(total_budget=0.9), "no offer at tick 0"),
        (offers(reward_micro=1), "no offer at tick 0"),
        (settled(tick=1), "the tick settled at"),
        (settled(announced_total=0.9), "the total settled at"),
        (lambda found: {**found, "events": []}, "no offer at tick 0"),
        (lambda found: {**found, "events": [1]}, "lists 1 among its events"),
        (lambda found: {**found, "next": 5}, "has no end"),
    ],
)
def test_a_market_that_told_others_another_price_is_shown(bend, says, traded) -> None:
    market, folder = traded
    assert verify(folder)["own price"].passed
    market.cheats["events"] = bend
    check = verify(folder)["own price"]
    assert (check.passed, says in check.detail) == (False, True), check


def test_pay_below_the_price_is_shown(traded) -> None:
    _, folder = traded
    with Agent(folder, data=Data(forbidden=True)) as agent:
        deal = agent.deal_of(TASK)
        terms = {**(deal.terms or {})["terms"], "payment_micro": 1_999_997}
        agent.deals.change(deal, terms={**(deal.terms or {}), "terms": terms})
    check = verify(folder)["own price"]
    assert check.passed is False
    assert "it is at least 1.999998 credits" in check.detail


def test_terms_that_are_given_up_are_nothing_to_compare(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 0)
        assert verify(folder)["own terms"].passed
        market.restart()
        assert verify(folder)["own terms"].passed is None
        assert {check.passed for check in verify(folder).values()} == {True, None}


def test_pay_that_others_left_is_no_difference(tmp_path: Path) -> None:
    card = replace(CARD, unearned="share")
    with malicious_market(card=card) as market:
        folder = joined(tmp_path / "device", market)
        followed(folder, Data(), until=lambda told: told["event"] == "ended")
        market.cheats["participation"] = line(earned_micro=PAYMENT + 5)
        assert verify(folder)["own earnings"].passed
        market.cheats["participation"] = line(earned_micro=PAYMENT - 1)
        assert verify(folder)["own earnings"].passed is False
        market.state, market.cheats["participation"] = "training", line(earned_micro=PAYMENT + 5)
        assert verify(folder)["own earnings"].passed is False
