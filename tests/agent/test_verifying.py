"""A device's own records against the market's: every difference is shown."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent.malicious_market import PAYMENT, TASK, MaliciousMarket, malicious_market
from agent.owners import Data, answered, followed, joined
from fedbourse.agent import Agent, Check


def verify(folder: Path) -> dict[str, Check]:
    with Agent(folder, data=Data(forbidden=True)) as agent:
        return {check.name: check for check in agent.verify(TASK)}


@pytest.fixture
def traded(tmp_path: Path):
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        answered(folder, 2)
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
    return lambda mine: {**mine, "line": {**mine["line"], **changed}}


DIFFERENCES = {
    "own replies": ("mine", lambda mine: {**mine, "replies": [{"tick": 0, "budget": 0.5}]}),
    "own price": ("events", lambda found: {**found, "events": found["events"][:-1]}),
    "own card": ("card", lambda found: {**found, "digest": "0" * 64}),
    "own terms": ("mine", line(payment_micro=PAYMENT - 1)),
    "own answers": ("mine", line(answered=1)),
    "own earnings": ("mine", line(earned_micro=1)),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_shown_where_it_is(name: str, traded) -> None:
    market, folder = traded
    place, bend = DIFFERENCES[name]
    market.cheats[place] = bend
    found = verify(folder)
    assert [check.name for check in found.values() if check.passed is False] == [name]


@pytest.mark.parametrize("place", ["line", "leaf", "signature"])
def test_a_line_that_is_not_the_devices_is_shown(place: str, traded) -> None:
    market, folder = traded
    bend = (lambda mine: {**mine, "line": None}) if place == "line" else line(**{place: "x"})
    market.cheats["mine"] = bend
    assert verify(folder)["own terms"].passed is False


def test_a_market_that_forgets_an_answer_is_shown(traded) -> None:
    market, folder = traded
    market.paid.pop(1)
    found = verify(folder)
    assert found["own answers"].passed is False
    assert found["own earnings"].passed is False
    assert found["own receipts"].passed  # the device holds both, signed


@pytest.mark.parametrize("rounds", [None, 0, 1])
def test_an_old_copy_of_a_folder_is_shown_and_answers_nothing(rounds, tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        if rounds is not None:
            answered(folder, rounds)
        shutil.copytree(folder, tmp_path / "copy")
        answered(folder, 2)
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
            "UPDATE answered SET receipt = json_set(receipt, '$.receipt.earned_micro', 1) "
            "WHERE round = 1"
        )
        connection.commit()
    assert verify(folder)["own receipts"].passed is False
