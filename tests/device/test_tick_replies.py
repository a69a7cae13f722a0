"""What a device replies to ticks: never a contradiction, and nothing where a zero stands."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from fedbourse.device import BiddingStrategy, Deal, Limits
from fedbourse.device.deal import SentReply
from fedbourse.device.tick_replies import Announcement, contradiction_of, reply_to
from fedbourse.encoding.canonical import digest
from fedbourse.errors import Refused
from fedbourse.game import activity
from fedbourse.protocol.bounds import TICKS_MAX
from fedbourse.protocol.keys import SigningKey
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.device.malicious_market import CARD, OWNER, TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KEY = SigningKey.generate().public
REWARD = 3_000_000


def deal_of(strategy: BiddingStrategy, card: TaskCard = CARD, *, left: float = 5.0) -> Deal:
    return Deal(
        market=KEY,
        task=TASK,
        owner=OWNER,
        buyer="buyer:b",
        card_document=card.document,
        strategy=strategy,
        cap=strategy.cap(card, left=left),
    )


def announced(tick: int, total: float, reward: int = REWARD) -> Announcement:
    return Announcement(digest([tick, total]), tick, total, reward)


@dataclass
class Device:
    """A device as far as it replies: what it sent, and whether it left."""

    deal: Deal
    value: float
    reward: int = REWARD
    can_draw: Callable[[float], bool] = lambda budget: True
    left: str | None = None

    def hears(self, totals: Iterable[float]) -> Device:
        for tick, total in enumerate(totals):
            reply = reply_to(
                announced(tick, total, self.reward),
                self.deal,
                value=self.value,
                can_draw=self.can_draw,
            )
            if reply is None:
                continue
            self.left = contradiction_of(reply, self.deal)
            if self.left is not None:
                break
            self.deal = replace(self.deal, replies=(*self.deal.replies, reply))
        return self

    def refused_by_the_market(self) -> str | None:
        """Return what the market's rule finds in all that was sent."""
        sent = [activity.Reply(r.tick, r.total_budget, r.budget) for r in self.deal.replies]
        card = self.deal.card
        for number, reply in enumerate(sent):
            reason = activity.contradiction(
                reply,
                sent[:number],
                reward=self.reward / 1e6,
                floor=card.min_budget,
                linear=card.cost == "linear",
            )
            if reason is not None:
                return reason
        return None


sizes = st.floats(-6, 6).map(lambda power: 10.0**power)
cards = st.builds(
    lambda max_rho, floor, cost: TaskCard.of(
        {**CARD.document, "max_rho": max_rho, "min_budget": max_rho * floor, "cost": cost}
    ),
    sizes,
    st.just(0.0) | st.floats(0, 1),
    st.sampled_from(["convex", "linear"]),
)
rewards = st.integers(1, 10**12)


@st.composite
def announcements(draw: st.DrawFn, *, dropout: float) -> list[float]:
    """Draw totals: any, close to the one at which the owner drops out, and close to each other."""
    close = st.builds(
        lambda part, power: dropout * (1 + part * 10.0**power),
        st.floats(-1, 1),
        st.integers(-15, 0),
    )
    some = draw(st.lists(sizes | close, min_size=1, max_size=8))
    beside = st.builds(math.nextafter, st.sampled_from(some), st.sampled_from([0.0, math.inf]))
    again = draw(st.lists(st.sampled_from(some) | beside, max_size=6))
    return [total for total in draw(st.permutations(some + again)) if total > 0]


@st.composite
def devices(draw: st.DrawFn, *, fixed: bool) -> tuple[Device, list[float]]:
    card, reward = draw(cards), draw(rewards)
    value, min_price = draw(sizes), draw(st.just(0.0) | sizes)
    limits = Limits(min_price=min_price)
    most = draw(st.none() | sizes)
    budget = draw(sizes) if fixed else None
    if budget is not None and most is not None:
        budget = min(budget, most)
    deal = deal_of(BiddingStrategy(budget=budget, most=most), card, left=draw(st.just(0.0) | sizes))
    bid = max(value, limits.min_price)
    return Device(deal, bid, reward), draw(announcements(dropout=reward / 1e6 / bid))


@pytest.mark.slow
@settings(max_examples=200)
@given(devices(fixed=False))
def test_replies_that_follow_a_value_never_contradict_each_other(drawn) -> None:
    device, totals = drawn
    device.hears(totals)
    assert device.left is None
    assert device.refused_by_the_market() is None
    if len({reply.budget > 0 for reply in device.deal.replies}) == 2:
        event("sold at some totals, and not at others")


@pytest.mark.slow
@settings(max_examples=200)
@given(devices(fixed=True))
@example((Device(deal_of(BiddingStrategy(budget=0.5)), 1.0), [4.0, 2.5, 2.0, 0.9]))
def test_a_fixed_budget_leaves_the_task_before_it_contradicts_itself(drawn) -> None:
    device, totals = drawn
    device.hears(totals)
    assert device.refused_by_the_market() is None
    if device.left is not None:
        event("left")
        assert "contradicts" in device.left


@pytest.mark.slow
@settings(max_examples=100)
@given(devices(fixed=False), sizes)
def test_budgets_that_no_noise_can_be_drawn_for_are_never_sent(drawn, least) -> None:
    device, totals = drawn
    device.can_draw = lambda budget: budget >= least
    device.hears(totals)
    assert device.refused_by_the_market() is None
    assert all(not reply.budget or reply.budget >= least for reply in device.deal.replies)


def test_a_fixed_budget_that_drops_out_cannot_come_back_at_any_smaller_total() -> None:
    device = Device(deal_of(BiddingStrategy(budget=0.5)), value=1.0).hears([2.0, 3.0])
    assert [reply.budget for reply in device.deal.replies] == [0.5, 0.0]
    # 0.5 at 2.9 says less than 0 at 3 does; a value's reply, 0.097, does not.
    assert (
        Device(deal_of(BiddingStrategy(budget=0.5)), value=1.0).hears([3.0, 2.9]).left is not None
    )
    assert Device(deal_of(BiddingStrategy()), value=1.0).hears([3.0, 2.9]).left is None


@pytest.mark.parametrize(
    ("totals", "ticks"),
    [
        ([3.0, 4.0, 3.0, 100.0], [0]),  # it stands for larger totals, and for the same
        ([4.0, 3.5, 3.0, 3.2], [0, 1, 2]),  # at smaller ones it is replied anew
        ([4.0, 2.0, 4.0, 1.0], [0, 1, 3]),
        ([2.0, 4.0, 2.0, 5.0, 3.9], [0, 1, 2, 4]),
    ],
)
def test_a_zero_stands_at_larger_totals_without_a_message(totals, ticks) -> None:
    device = Device(deal_of(BiddingStrategy()), value=1.0).hears(
        totals
    )  # it sells below a total of 3
    assert [reply.tick for reply in device.deal.replies] == ticks
    for reply in device.deal.replies:
        assert (reply.budget == 0) == (reply.total_budget >= 3)


def test_a_stored_reply_is_sent_again_also_where_it_is_a_zero() -> None:
    deal = Device(deal_of(BiddingStrategy()), value=1.0).hears([3.0]).deal
    again = reply_to(announced(0, 3.0), deal, value=0.1, can_draw=lambda budget: True)
    assert again == deal.replies[0]
    assert reply_to(announced(1, 3.0), deal, value=0.1, can_draw=lambda budget: True) is None


LAST = SentReply(digest([3, 1.0]), 3, 1.0, REWARD, 0.5)
TASK_NOW = {"offer": LAST.offer, "tick": 3, "total_budget": 1.0, "reward_micro": REWARD}


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ({"reward_micro": REWARD - 1}, "the reward is 2.999999 credits now"),
        ({"total_budget": 0.9}, "a tick has one total"),
        ({"tick": 4}, "a tick has one total"),
        ({"offer": "0" * 64}, "a tick has one total"),
        ({"offer": "0" * 64, "tick": 3, "total_budget": 0.9}, "a tick has one total"),
        ({"offer": "0" * 64, "tick": 2, "total_budget": 0.9}, "ticks rise"),
        ({"offer": "0" * 63}, "without an offer"),
        ({"total_budget": math.inf}, "the market's offer is not valid"),
    ],
    ids=str,
)
def test_an_announcement_that_takes_back_another_is_refused(items, sentence) -> None:
    deal = replace(deal_of(BiddingStrategy()), replies=(LAST,))
    assert Announcement.of(TASK_NOW, deal).tick == 3
    after = {"offer": "0" * 64, "tick": 4, "total_budget": 0.9}
    assert Announcement.of(TASK_NOW | after, deal).total_budget == 0.9
    with pytest.raises(Refused, match=sentence) as refused:
        Announcement.of(TASK_NOW | items, deal)
    assert refused.value.reason == "offer"


def test_a_thousand_totals_are_replied_to_and_no_more() -> None:
    deal = deal_of(BiddingStrategy())
    replies = tuple(replace(LAST, tick=tick) for tick in range(TICKS_MAX - 1))
    for count, refused in ((TICKS_MAX - 1, False), (TICKS_MAX, True)):
        deal = replace(deal, replies=replies + (LAST,) * (count - len(replies)))
        if refused:
            with pytest.raises(Refused, match="more than 1000 totals"):
                reply_to(announced(2000, 0.5), deal, value=1.0, can_draw=bool)
        else:
            assert reply_to(announced(2000, 0.5), deal, value=1.0, can_draw=bool)
