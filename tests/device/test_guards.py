"""What a device keeps to beyond one request: its market's record, its file, its own promises."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from fedbourse.device import Agent, BiddingStrategy, DeviceSettings, Limits
from fedbourse.device.deal_worker import backoff_s
from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Conflict, FedbourseError, InvalidFile, InvalidInput, Refused
from fedbourse.testing.device.malicious_market import CARD, ROUNDS, TASK, malicious_market, problem
from fedbourse.testing.device.owners import Data, delivered, followed, joined


@pytest.fixture
def market():
    with malicious_market() as found:
        yield found


def test_a_market_that_did_not_pay_gets_no_other_task(market, tmp_path, monkeypatch) -> None:
    folder = joined(tmp_path / "device", market)

    def never_paid(signed):
        market.paid.clear()
        return problem("Conflict", 409)

    market.cheats["signed receipt"] = never_paid
    followed(folder, Data(), until=lambda event: event["event"] == "unpaid")
    assert len(market.left) == 1
    market.state = "cancelled"
    followed(folder, Data())
    market.state, another = "open", "f" * 24
    monkeypatch.setattr("fedbourse.testing.device.malicious_market.TASK", another)
    with Agent(folder, data=Data()) as agent:
        assert [deal.state for deal in agent.deals.deals()] == ["ended"]
        with pytest.raises(Refused, match="no receipt for 1 updates") as caught:
            agent.join(another)
        assert caught.value.reason == "unpaid"
        assert len(agent.deals.deals()) == 1


def test_one_thread_alone_follows_a_deal(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)
    begun, go_on = threading.Event(), threading.Event()

    def data(card):
        begun.set()
        assert go_on.wait(20)
        return Data()(card)

    delivered(folder, 0)
    with Agent(folder, data=data) as agent:
        (deal,) = agent.deals.deals()
        first = threading.Thread(target=agent.follow, args=(deal,))
        first.start()
        try:
            assert begun.wait(20)
            with pytest.raises(Conflict, match="already followed in this process"):
                agent.follow(deal)
        finally:
            agent.stop.set()
            go_on.set()
            first.join()
        agent.stop.clear()
        assert agent.follow(deal).state == "ended"


def test_a_late_receipt_must_be_for_the_update_that_left(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)

    def for_another(signed):
        fake = signed["receipt"] | {"previous": "f" * 64}
        market.paid[0] = {
            "receipt": fake,
            "market_signature": market.key.sign(canonical(fake)),
        }
        return problem("Conflict", 409)

    market.cheats["signed receipt"] = for_another
    outcome = followed(folder, Data(), until=lambda event: event["event"] == "refused")
    assert outcome.reasons == ["receipt"]
    assert len(market.left) == 1
    with Agent(folder, data=Data()) as agent:
        (deal,) = agent.deals.deals()
        assert [each.receipt for each in agent.deals.delivered(deal)] == [None]


@pytest.mark.parametrize("offer", ["x" * 900_000, "A" * 64, ""])
def test_an_offer_is_named_by_a_hash(market, tmp_path, offer) -> None:
    folder = joined(tmp_path / "device", market)
    market.cheats["task"] = lambda task: task | {"offer": offer}
    outcome = followed(folder, Data())
    assert outcome.reasons == ["offer"]
    assert not market.plans


def test_offers_without_end_are_refused(market, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fedbourse.device.tick_replies.TICKS_MAX", 3)
    folder = joined(tmp_path / "device", market)
    market.ticks = 10**9
    outcome = followed(folder, Data())
    assert outcome.reasons == ["offer"]
    assert len(market.plans) == 3


@pytest.mark.parametrize("harm", ["deleted", "emptied"])
def test_a_device_that_lost_its_spend_is_not_begun_anew(market, tmp_path, harm) -> None:
    folder = joined(tmp_path / "device", market)
    delivered(folder, 1)
    for file in folder.glob("spend.db*"):
        file.unlink()
    if harm == "emptied":
        (folder / "spend.db").touch()
    for read_only in (True, False):
        with pytest.raises(InvalidFile, match="missing or empty"):
            Agent(folder, read_only=read_only)


def test_what_was_wished_holds_where_joining_again_fails(market, tmp_path) -> None:
    settings = DeviceSettings(value=1.0, lifetime_cap=5.0)
    with Agent.create(tmp_path / "device", settings, data=Data()) as agent:
        agent.enrol(market.url, "fbe_token")
        agent.join(TASK, BiddingStrategy(most=0.1))
        market.state = "open"
        market._interest = lambda *_: problem("Conflict", 409)
        with pytest.raises(FedbourseError):
            agent.join(TASK, BiddingStrategy(most=0.2))
        (deal,) = agent.deals.deals()
        assert deal.strategy.most == 0.1
        assert deal.state == "joined"


def test_a_first_join_that_fails_leaves_nothing_to_follow(market, tmp_path) -> None:
    settings = DeviceSettings(value=1.0, lifetime_cap=5.0)
    with Agent.create(tmp_path / "device", settings, data=Data()) as agent:
        agent.enrol(market.url, "fbe_token")
        honest = market._interest
        market._interest = lambda *_: problem("Conflict", 409)
        with pytest.raises(FedbourseError):
            agent.join(TASK)
        assert [deal.state for deal in agent.deals.deals()] == ["declined"]
        market._interest = honest
        assert agent.join(TASK).state == "joined"  # it may be tried again


def test_without_data_nothing_is_signed(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)
    with Agent(folder) as agent, pytest.raises(InvalidInput, match="the device has no data"):
        agent.run()
    assert not market.plans
    assert not market.decisions


def test_a_policy_has_both_rules(market, tmp_path) -> None:
    class Half:
        def check_card(self, card, *, buyer) -> None: ...

    folder = joined(tmp_path / "device", market)
    with pytest.raises(InvalidInput, match="no check_terms"):
        Agent(folder, data=Data(), policy=Half())


def test_what_no_noise_can_be_drawn_for_is_not_sold(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)
    with Agent(folder, data=Data()) as agent:
        (deal,) = agent.deals.deals()
        floor = 2.0**-40 * ROUNDS  # below it noise on a grid is refused
        agent.deals.change(deal, strategy=BiddingStrategy(budget=0.9 * floor))
    followed(folder, Data(), until=lambda event: event["event"] == "planned")
    assert market.plans == [0.0]


@pytest.mark.parametrize("changed", ["before the reply", "after the reply"])
def test_updates_that_do_not_fit_single_precision_are_not_sold(tmp_path, changed) -> None:
    # With this much privacy sold the noise is far below the clip's last bit.
    card = replace(CARD, clip=1e6, max_rho=1e30)
    with malicious_market(card=card) as market:
        market.totals = [2e25]
        folder = joined(tmp_path / "device", market, value=1e-40, lifetime_cap=1e30)
        with Agent(folder, data=Data()) as agent:
            agent.deals.change(agent.deal_of(TASK), strategy=BiddingStrategy(budget=1e25))
        if changed == "after the reply":
            followed(folder, Data(), until=lambda event: event["event"] == "planned")
        file = folder / "device.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"update_format": "float32"}))
        outcome = followed(folder, Data())
    assert market.plans == [1e25 if changed == "after the reply" else 0.0]
    assert outcome.reasons == (["float32"] if changed == "after the reply" else [])
    assert not market.signed
    assert outcome.ledger.reserved == 0


def test_a_long_outage_ends_no_thread() -> None:
    assert backoff_s(0.25, 1) == 0.5
    assert backoff_s(0.25, 10**6) == 30.0


def test_only_who_has_joined_is_told_to_go_on(market, tmp_path) -> None:
    folder = joined(tmp_path / "device", market)
    with Agent(folder, data=Data()) as agent:
        with pytest.raises(Conflict, match="you have joined it"):
            agent.join(TASK)
        agent.deals.change(agent.deal_of(TASK), state="declined")
        with pytest.raises(Conflict, match=r"is announced$"):
            agent.join(TASK)


def test_few_rounds_can_be_refused(market, tmp_path) -> None:
    limits = Limits(min_rounds=ROUNDS + 1)
    settings = DeviceSettings(value=1.0, lifetime_cap=5.0, limits=limits)
    with Agent.create(tmp_path / "device", settings, data=Data()) as agent:
        agent.enrol(market.url, "fbe_token")
        with pytest.raises(Refused, match=f"the card has {ROUNDS}"):
            agent.join(TASK)


def test_another_kind_of_token_is_named(market, tmp_path) -> None:
    settings = DeviceSettings(value=1.0, lifetime_cap=5.0)
    with (
        Agent.create(tmp_path / "device", settings, data=Data()) as agent,
        pytest.raises(InvalidInput, match="begins with fbe_"),
    ):
        agent.enrol(market.url, "fbt_" + "x" * 43)


@pytest.mark.parametrize("accepted", [False, True])
def test_a_task_that_pays_upfront_is_joined_only_by_who_accepts_that(tmp_path, accepted) -> None:
    upfront = replace(CARD, vesting="upfront")
    with malicious_market(card=upfront) as market:
        limits = Limits(accept_upfront=accepted)
        settings = DeviceSettings(value=1.0, lifetime_cap=5.0, limits=limits)
        with Agent.create(tmp_path / "device", settings, data=Data()) as agent:
            agent.enrol(market.url, "fbe_token")
            if accepted:
                assert agent.join(TASK).card.vesting == "upfront"
                return
            with pytest.raises(Refused, match="pays everything before round 0"):
                agent.join(TASK)
            assert [each.reason for each in agent.ledger().refusals] == ["upfront"]
            assert not agent.deals.deals()
        assert market.state == "open"


@pytest.mark.parametrize(
    ("strategy", "cap"),
    [
        (BiddingStrategy(), 0.2),
        (BiddingStrategy(most=0.2), 5.0),
        (BiddingStrategy(budget=0.2), 5.0),
    ],
)
def test_a_task_that_buys_more_than_is_for_sale_is_not_joined(tmp_path, strategy, cap) -> None:
    with malicious_market(card=replace(CARD, min_budget=0.25)) as market:
        settings = DeviceSettings(value=1.0, lifetime_cap=cap)
        with Agent.create(tmp_path / "device", settings, data=Data(forbidden=True)) as agent:
            agent.enrol(market.url, "fbe_token")
            with pytest.raises(Refused, match=r"at least 0\.25 rho from an owner") as refused:
                agent.join(TASK, strategy)
        assert refused.value.reason == "min-budget"
        assert market.state == "open"
