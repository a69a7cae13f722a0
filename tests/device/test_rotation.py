"""A market with a new key is followed where the old one vouches for it, and nowhere else."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fedbourse.device import Agent, market_client
from fedbourse.errors import Unauthenticated
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey
from fedbourse.protocol.rotation import rotate
from fedbourse.testing.device.malicious_market import PAYMENT, ROUNDS, TASK, malicious_market
from fedbourse.testing.device.owners import Data, delivered, followed, joined

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fedbourse.testing.device.malicious_market import MaliciousMarket


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.protocol.transport._pause_s", lambda attempt: 0.0)
    monkeypatch.setattr("fedbourse.device.deal_worker._WAIT_S", 0.0)
    monkeypatch.setattr(market_client, "Connection", partial(Connection, timeout_s=1.0))


def is_end(told: dict[str, Any]) -> bool:
    return bool(told["event"] == "ended")


@pytest.mark.parametrize("times", [1, 3])
def test_a_deal_goes_on_under_a_new_key(tmp_path: Path, times: int) -> None:
    with malicious_market() as market:
        folder, first = joined(tmp_path / "device", market), market.key.public
        spent = delivered(folder, 1).spent
        for _ in range(times):
            market.rotate()
        outcome = followed(folder, Data(), until=is_end)
        assert outcome.ledger.earned_micro == PAYMENT
        assert outcome.spent == spent * ROUNDS
        (entry,) = outcome.ledger.entries  # under the key that the account is named after
        assert entry.deal.market == first
        with Agent(folder, data=Data()) as agent:
            known = agent.market()
            assert (known.key, known.signing_key) == (first, market.key.public)
            assert len(known.keys_since) == times
            # Terms and the first receipt were signed with the old key.
            checks = {check.name: check.passed for check in agent.verify(TASK)}
            assert checks["own terms"] is checks["own receipts"] is True


def test_a_key_that_changes_between_two_requests_is_followed(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)

        def restarted(receipt: dict[str, Any]) -> dict[str, Any]:
            if receipt["round"] == 1:
                market.rotate()
            return receipt

        market.cheats["receipt"] = restarted
        outcome = followed(folder, Data(), until=is_end)
        assert outcome.ledger.earned_micro == PAYMENT
        assert not outcome.reasons


def test_the_old_key_says_nothing_any_more(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder, old = joined(tmp_path / "device", market), market.key
        delivered(folder, 1)
        market.rotate()
        delivered(folder, 2)
        new, market.key = market.key, old
        outcome = followed(folder, Data(forbidden=True))
        assert "has the key" in str(outcome.error)
        # Nor about a round alone, with the market itself there.
        market.key = new
        market.cheats["round-request key"] = lambda _: old
        outcome = followed(folder, Data(forbidden=True))
        assert outcome.reasons == ["unsigned"]
        assert len(market.left) == 2


def unsigned(market: MaliciousMarket, new: SigningKey) -> list[dict[str, Any]]:
    return [asdict(rotate(market.key, new, at_ms=1)) | {"old_signature": ""}]


def signed_by_another(market: MaliciousMarket, new: SigningKey) -> list[dict[str, Any]]:
    honest, other = rotate(market.key, new, at_ms=1), rotate(SigningKey.generate(), new, at_ms=1)
    return [asdict(honest) | {"old_signature": other.old_signature}]


def signed_by_the_new_alone(market: MaliciousMarket, new: SigningKey) -> list[dict[str, Any]]:
    made = asdict(rotate(market.key, new, at_ms=1))
    return [made | {"old_signature": made["new_signature"]}]


def another_time(market: MaliciousMarket, new: SigningKey) -> list[dict[str, Any]]:
    return [asdict(rotate(market.key, new, at_ms=1)) | {"at_ms": 2}]


def not_signed_by_the_new(market: MaliciousMarket, new: SigningKey) -> list[dict[str, Any]]:
    return [asdict(rotate(market.key, new, at_ms=1)) | {"new_signature": "A" * 86}]


def of_another_market(market: MaliciousMarket, new: SigningKey) -> list[dict[str, Any]]:
    return [asdict(rotate(SigningKey.generate(), new, at_ms=1))]


def to_another_key(market: MaliciousMarket, new: SigningKey) -> list[dict[str, Any]]:
    return [asdict(rotate(market.key, SigningKey.generate(), at_ms=1))]


def text(market: MaliciousMarket, new: SigningKey) -> list[Any]:
    return ["rotate", 7, None, {"old": market.key.public}, {"old": 1, "new": new.public}]


@pytest.mark.parametrize(
    "forged",
    [
        unsigned,
        signed_by_another,
        signed_by_the_new_alone,
        another_time,
        not_signed_by_the_new,
        of_another_market,
        to_another_key,
        text,
    ],
)
def test_a_key_that_the_old_one_does_not_vouch_for_is_refused(
    tmp_path: Path, forged: Callable[[MaliciousMarket, SigningKey], list[Any]]
) -> None:
    with malicious_market() as market:
        folder, first = joined(tmp_path / "device", market), market.key
        spent = delivered(folder, 1).spent
        new = SigningKey.generate()
        market.rotations, market.key = forged(market, new), new
        outcome = followed(folder, Data(forbidden=True))
        assert isinstance(outcome.error, Unauthenticated)
        assert "is not signed with" in str(outcome.error) or "has the key" in str(outcome.error)
        assert (outcome.spent, len(market.left)) == (spent, 1)
        with Agent(folder, data=Data()) as agent:
            assert agent.market().signing_key == first.public
        market.rotations, market.key = [], first  # the market itself is still believed
        assert followed(folder, Data(), until=is_end).ledger.earned_micro == PAYMENT


def test_who_enrols_anew_still_knows_the_market(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder, first = joined(tmp_path / "device", market), market.key.public
        market.rotate()
        with Agent(folder, data=Data()) as agent:
            agent.enrol(market.url, "fbe_token")
            (known,) = agent.deals.markets()
            assert known.keys == (first, market.key.public)


def test_a_rotated_market_that_moves_is_followed(tmp_path: Path) -> None:
    with malicious_market() as market, malicious_market() as moved:
        folder, first = joined(tmp_path / "device", market), market.key.public
        market.rotate()
        moved.key, moved.rotations = market.key, market.rotations
        with Agent(folder, data=Data()) as agent:
            agent.move_market(market.url, moved.url)
            assert agent.market().server == moved.url
            assert agent.market().keys == (first, market.key.public)


def test_somebody_who_only_looks_on_writes_no_key_down(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder, first = joined(tmp_path / "device", market), market.key.public
        market.rotate()
        for _ in range(2):
            with Agent(folder, read_only=True) as agent:
                assert agent.tasks(None)
                assert agent.market().signing_key == first
