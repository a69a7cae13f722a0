"""Every cheat of a market is refused before the owner's data is touched, and the reason is kept.

``cheats`` is the table of them. The data of the device that meets a cheat raises when it is read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fedbourse.device import Agent, DeviceSettings, market_client
from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Conflict, FedbourseError, Refused, Unauthenticated
from fedbourse.privacy import ExactNoise
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import SigningKey
from fedbourse.testing.device.adversary import (
    CARDS,
    ENROLMENTS,
    FORGED_OFFERS,
    FORGED_STATES,
    OFFERS,
    QUERIES,
    RECEIPTS,
    TERMS,
    TRANSPORT,
    Case,
    announced,
    another_key,
    asks,
    items,
)
from fedbourse.testing.device.malicious_market import (
    CARD,
    PAYMENT,
    ROUNDS,
    TASK,
    Asked,
    Raw,
    malicious_market,
    model_of,
    problem,
)
from fedbourse.testing.device.owners import Data, delivered, followed, joined

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a device wait as short as the test can."""
    monkeypatch.setattr("fedbourse.protocol.transport._pause_s", lambda attempt: 0.0)
    monkeypatch.setattr("fedbourse.device.deal_worker._WAIT_S", 0.0)
    monkeypatch.setattr(market_client, "Connection", partial(Connection, timeout_s=1.0))


def check(case: Case, outcome: Any) -> None:
    """Compare what a device did with what it should have done."""
    assert outcome.in_time, outcome.events
    assert case.says in outcome.sentences
    assert "\x1b" not in outcome.sentences
    assert outcome.reasons == ([case.reason] if case.reason else [])
    assert outcome.error is not None or outcome.events[-1]["event"] != "delivered"


@pytest.mark.parametrize("case", [*OFFERS, *FORGED_OFFERS, *TERMS], ids=lambda case: case.id)
def test_a_cheat_before_the_signature_is_refused(case: Case, tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.cheats[case.place] = case.bend
        outcome = followed(folder, Data(forbidden=True))
        check(case, outcome)
        assert not market.signed
        assert not market.left
        assert outcome.ledger.spent == outcome.ledger.reserved == 0


@pytest.mark.parametrize("case", [*QUERIES, *TRANSPORT], ids=lambda case: case.id)
def test_a_cheat_in_training_is_refused_and_costs_nothing(case: Case, tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        spent = delivered(folder, 2).spent
        market.cheats[case.place] = case.bend
        outcome = followed(folder, Data(forbidden=True))
        check(case, outcome)
        assert outcome.spent == spent
        assert {number: len(bodies) for number, bodies in market.left.items()} == {0: 1, 1: 1}


def test_the_table_would_catch_a_device_that_sends_updates(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 2)
        with pytest.raises(AssertionError, match="the data was touched"):
            followed(folder, Data(forbidden=True))


def test_an_honest_market_gets_every_update_and_pays_it(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        outcome = followed(folder, Data(), until=lambda told: told["event"] == "ended")
        assert outcome.events[-1]["event"] == "ended"
        assert outcome.ledger.entries[0].deal.outcome == "completed"
        assert outcome.ledger.earned_micro == PAYMENT
        assert outcome.spent <= outcome.ledger.entries[0].budget
        assert sorted(market.left) == list(range(ROUNDS))


@pytest.mark.parametrize("case", FORGED_STATES, ids=lambda case: case.id)
def test_a_deal_ends_on_the_markets_signature_alone(case: Case, tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        before = delivered(folder, 2)
        market.cheats[case.place] = case.bend
        if "another market" in case.id:
            market.cheats["state key"] = another_key
        outcome = followed(folder, Data(forbidden=True))
        check(case, outcome)
        assert outcome.spent == before.spent
        assert outcome.ledger.reserved == before.ledger.reserved > 0
        (entry,) = outcome.ledger.entries
        assert entry.deal.state == "signed"
        # Where the market itself is heard again, nothing is lost.
        market.cheats.clear()
        ended = followed(folder, Data(), until=lambda told: told["event"] == "ended")
        assert ended.ledger.earned_micro == PAYMENT


@pytest.mark.parametrize("back_to", ["announced", "open"])
def test_a_state_of_before_is_refused(back_to: str, tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        states: dict[str, Any] = {}
        market.cheats["signed task"] = lambda said: states.setdefault(said["state"], said) and said
        market.state = "open"
        with Agent(folder, data=Data()) as agent:
            agent.card(TASK)
        market.state, market.events = "announced", market.events + 1
        before = delivered(folder, 0)
        # All of it was signed by the market, once.
        market.cheats["signed task"] = lambda _: states[back_to]
        outcome = followed(folder, Data(forbidden=True))
        assert outcome.reasons == ["state"]
        assert "a log only grows" in outcome.sentences
        assert outcome.ledger.reserved == before.ledger.reserved > 0
        assert outcome.ledger.entries[0].deal.state == "signed"


def test_two_histories_of_one_task_are_refused(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        before = delivered(folder, 2)
        market.events -= 1  # as it was when the terms were signed, with another event in its place
        market.state = "cancelled"
        market.cheats["task"] = items(last_hash="e" * 64)
        outcome = followed(folder, Data(forbidden=True))
        assert outcome.reasons == ["state"]
        assert "it was" in outcome.sentences
        assert outcome.ledger.reserved == before.ledger.reserved > 0


# An update has left: one round is at risk, and never a second.


def unpaid_at_the_market(document: dict[str, Any]) -> dict[str, Any]:
    """Show no receipt afterwards either."""
    return {**document, "receipt": None}


@pytest.mark.slow
@pytest.mark.parametrize("risked", [1, 2])
@pytest.mark.parametrize("case", RECEIPTS, ids=lambda case: case.id)
def test_without_a_receipt_no_more_rounds_are_risked(
    case: Case, risked: int, tmp_path: Path
) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market, max_unpaid_rounds=risked)
        spent = delivered(folder, 1).spent
        market.cheats[case.place] = case.bend
        market.cheats["participation"] = unpaid_at_the_market
        outcome = followed(
            folder,
            Data(),
            until=lambda told: told.get("reason") == "unpaid" or told["event"] == "ended",
        )
        assert outcome.in_time
        assert outcome.spent == spent * (1 + risked)
        assert len(market.left) == 1 + risked
        assert case.reason in outcome.reasons
        if risked < ROUNDS - 1:
            assert "unpaid" in outcome.reasons
        # Nor after a restart: what was risked is remembered.
        again = followed(folder, Data(forbidden=True))
        assert again.spent == outcome.spent
        assert len(market.left) == 1 + risked


def test_a_receipt_that_comes_later_counts_only_if_it_says_what_is_due(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 1)
        market.cheats["signed receipt"] = lambda _: problem("Conflict", 409)
        stop = lambda told: told["event"] == "unpaid"  # noqa: E731
        followed(folder, Data(), until=stop)
        honest = dict(market.paid[1]["receipt"])
        low = {**honest, "delivered": 1, "earned_micro": PAYMENT // ROUNDS}
        for receipt, taken in (({}, False), (low, False), (honest, True)):
            signed = {"receipt": receipt, "market_signature": market.key.sign(canonical(receipt))}
            market.cheats["participation"] = items(receipt=signed)
            outcome = followed(
                folder, Data(), until=lambda told: told["event"] in ("unpaid", "refused")
            )
            assert (len(market.left) == 3) is taken
            if not taken:
                assert outcome.reasons[-1] == ("receipt" if receipt else "unpaid")


# The same round again, other markets, and what is over.


def test_a_repeated_request_gets_the_same_bytes_whatever_happens(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        market.cheats["signed receipt"] = lambda _: problem("Unreachable", 503)
        market.cheats["round-request"] = asks(0)  # after each restart too, as if no update had come
        for _ in range(3):
            before = len(market.updates)
            followed(folder, Data())
            assert len(market.updates) > before
            assert {number: len(bodies) for number, bodies in market.left.items()} == {0: 1}
        market.cheats.clear()
        outcome = followed(folder, Data())
        assert outcome.ledger.earned_micro == PAYMENT


def test_a_request_of_another_market_is_refused(tmp_path: Path) -> None:
    with malicious_market() as market, malicious_market() as stranger:
        folder = joined(tmp_path / "device", market)
        spent = delivered(folder, 2).spent
        # Somebody between the two passes on what another market asks about a task of this name.
        stranger.state, stranger.paid = "training", dict(market.paid)
        request = f"/v1/tasks/{TASK}/round-request", {"after": "1"}, b""
        market.cheats["response"] = lambda _: stranger.respond("GET", *request)
        outcome = followed(folder, Data(forbidden=True))
        assert outcome.reasons == ["unsigned"]
        assert "the request of round 2" in outcome.sentences
        assert outcome.spent == spent
        assert len(market.left) == 2


def test_rounds_out_of_order_are_refused(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 1)
        asked = iter([3, 2, 1])
        market.cheats["round-request"] = lambda _: Asked(number := next(asked, 1), model_of(number))
        outcome = followed(folder, Data(), until=lambda told: told["event"] == "refused")
        outcome = followed(
            folder, Data(forbidden=True), until=lambda told: told["event"] == "refused"
        )
        assert outcome.reasons == ["past-round"]
        assert sorted(market.left) == [0, 3]


def test_noise_is_of_the_devices_own_scale(tmp_path: Path) -> None:
    drawn = []

    def noise(terms: Any) -> ExactNoise:
        drawn.extend(terms)
        return ExactNoise(terms)

    with malicious_market(cheats={"headers": items(**{"Fedbourse-Sigma": "1e-9"})}) as market:
        outcome = followed(joined(tmp_path / "device", market), Data(), noise=noise)
        (entry,) = outcome.ledger.entries
        due = CARD.privacy_terms(task=entry.deal.account, budget=market.plans[-1])
        assert {terms.scale for terms in drawn} == {due.scale}
        assert drawn[-1].digest == due.digest


def test_a_task_that_is_over_stays_over(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        spent = delivered(folder, 2).spent
        market.state = "completed"
        assert followed(folder, Data(forbidden=True)).events[-1]["event"] == "ended"
        market.state = "training"
        outcome = followed(folder, Data(forbidden=True))
        assert not outcome.events
        assert outcome.spent == spent
        assert outcome.ledger.reserved == 0


def test_other_terms_after_training_began_are_refused(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        spent = delivered(folder, 1).spent
        # As if the signature had never come, and for less pay that the price rule would accept.
        market.paid.clear()
        market.signed, market.state = False, "settled"
        market.cheats["terms"] = items(payment_micro=PAYMENT - 1)
        outcome = followed(folder, Data(forbidden=True))
        assert outcome.reasons == ["changed-terms"]
        assert not market.signed
        assert outcome.ledger.reserved == 0
        assert outcome.spent == spent


def test_a_reward_that_changes_between_ticks_is_refused(tmp_path: Path) -> None:
    with malicious_market() as market:
        market.ticks = 3
        folder = joined(tmp_path / "device", market)
        market.cheats["task"] = announced(
            lambda task: {**task, "reward_micro": 3_000_000 + task["tick"]}
        )
        outcome = followed(folder, Data(forbidden=True))
        assert outcome.reasons == ["offer"]
        assert len(market.plans) == 1


@pytest.mark.parametrize("proved", [False, True])
def test_a_market_with_another_key_is_refused(proved: bool, tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 2)
        other = SigningKey.generate()
        market.key_shown = other.public
        if proved:  # it holds that key, and signs everything with it
            market.key = other
        outcome = followed(folder, Data(forbidden=True))
        assert "has the key" in str(outcome.error)
        assert len(market.left) == 2


def test_a_market_that_comes_back_with_another_key_is_refused(tmp_path: Path) -> None:
    with malicious_market() as market:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 2)

        def away(_: Any) -> Raw:
            market.key_shown = SigningKey.generate().public
            del market.cheats["round-request"]
            return Raw(b"", 299, {"Content-Encoding": "gzip"})

        market.cheats["round-request"] = away
        outcome = followed(folder, Data(forbidden=True), until=lambda told: False)
        assert "has the key" in str(outcome.error)
        assert len(market.left) == 2


def test_one_task_name_at_two_markets_is_two_accounts_under_one_cap(tmp_path: Path) -> None:
    with malicious_market() as first, malicious_market() as second:
        folder = joined(tmp_path / "device", first, lifetime_cap=1.0)
        delivered(folder, 1)
        with Agent(folder, data=Data()) as agent:
            agent.enrol(second.url, "fbe_token")
            agent.join(agent.tasks("open", server=second.url)[0]["task"], server=second.url)
        outcome = followed(folder, Data())
        one, two = outcome.ledger.entries
        assert one.deal.task == two.deal.task
        assert one.deal.name != two.deal.name
        assert (one.delivered, two.delivered) == (1, ROUNDS)
        assert two.budget == second.plans[-1] == pytest.approx(1.0 - first.plans[-1])
        assert outcome.ledger.spent + outcome.ledger.reserved <= 1


def _enrol_and_join(agent: Agent, url: str) -> None:
    agent.enrol(url, "fbe_token")
    agent.join(agent.tasks("open")[0]["task"])


@pytest.mark.parametrize("case", [*ENROLMENTS, *CARDS], ids=lambda case: case.id)
def test_a_cheat_before_joining_leaves_no_deal(case: Case, tmp_path: Path) -> None:
    settings = DeviceSettings(value=1.0, lifetime_cap=5.0)
    with (
        malicious_market(cheats={case.place: case.bend}) as market,
        Agent.create(tmp_path / "device", settings, data=Data(forbidden=True)) as agent,
    ):
        with pytest.raises(FedbourseError) as refused:
            _enrol_and_join(agent, market.url)
        assert isinstance(refused.value, Refused) is bool(case.reason)
        assert not case.reason or refused.value.reason == case.reason  # type: ignore[attr-defined]
        assert not agent.deals.deals()
        assert market.state == "open"


def test_a_stranger_with_a_markets_name_gets_nothing(tmp_path: Path) -> None:
    with malicious_market() as market, malicious_market() as stranger:
        folder = joined(tmp_path / "device", market)
        delivered(folder, 1)
        # It shows the market's key, which everybody knows, and cannot sign with it.
        stranger.key_shown = market.key.public
        stranger.cheats["enrol"] = items(market_public_key=market.key.public)
        with Agent(folder, data=Data()) as agent:
            with pytest.raises(Unauthenticated, match="is not signed with"):
                agent.enrol(stranger.url, "fbe_token")
            with pytest.raises(Unauthenticated, match="does not prove that it holds it"):
                agent.move_market(market.url, stranger.url)
            assert [each.server for each in agent.deals.markets()] == [market.url]
        assert not stranger.left


def test_a_signature_of_another_enrolment_proves_nothing(tmp_path: Path) -> None:
    with malicious_market() as market, malicious_market() as stranger:
        seen: list[dict[str, Any]] = []
        market.cheats["enrol"] = lambda said: seen.append(said) or said
        joined(tmp_path / "first", market)
        # What the market said to one device, and what it said to this device under its own name.
        for enrolled in ("second", "first"):
            stranger.key_shown = market.key.public
            stranger.cheats["enrol"] = lambda _: seen[0]
            folder = tmp_path / enrolled
            settings = DeviceSettings(value=1.0, lifetime_cap=5.0)
            agent = Agent(folder) if folder.exists() else Agent.create(folder, settings)
            with agent, pytest.raises(Unauthenticated, match="is not signed with"):
                agent.enrol(stranger.url, "fbe_token")


def test_a_market_that_moves_is_followed_on_its_owners_word_alone(tmp_path: Path) -> None:
    with malicious_market() as market, malicious_market() as moved:
        folder = joined(tmp_path / "device", market)
        moved.key = market.key
        with Agent(folder, data=Data()) as agent:
            with pytest.raises(Conflict, match=f"is pinned at {market.url}.*device move-market"):
                agent.enrol(moved.url, "fbe_token")
            assert agent.market().server == market.url
            assert agent.move_market(market.url, moved.url).server == moved.url
            assert agent.market().server == moved.url
            assert [deal.market for deal in agent.deals.deals()] == [market.key.public]
