"""Advice: what budgets earn and cost, and the best one marked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse.device.advice import advise
from fedbourse.errors import InvalidInput
from fedbourse.privacy.loss import PrivacyLoss
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.device.malicious_market import CARD

ANNOUNCED = {"total_budget": 1.0, "reward_micro": 3_000_000, "tick": 2, "interested": 4}
OPEN = {"total_budget": None, "reward_micro": None, "tick": 0, "interested": 4}


def asked(task=ANNOUNCED, *, card=CARD, value=1.0, cap=5.0, left=5.0, budgets=None):
    return advise(card, task, value=value, lifetime_cap=cap, left=left, budgets=budgets)


@settings(max_examples=60)
@given(st.floats(0.05, 20), st.floats(0.05, 20), st.integers(1, 10**8), st.floats(0.01, 100))
def test_no_budget_on_a_fine_grid_beats_the_best(value, total, reward, left) -> None:
    task = {**ANNOUNCED, "total_budget": total, "reward_micro": reward}
    advice = asked(task, value=value, left=left, cap=200.0)
    most = min(CARD.max_rho, left)
    assert 0 <= advice.best.budget <= most
    grid = np.linspace(0, most, 500)
    with np.errstate(invalid="ignore"):
        shares = np.where(grid > 0, grid / (grid + advice.others), 0.0)
    # At a total that nobody else holds up any small budget would win all: a limit, not a budget.
    if advice.others > 1e-12:
        best = (advice.reward * shares - value * grid).max()
        assert advice.best.utility >= best - 1e-9 * advice.reward


@settings(max_examples=25)
@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_pay_epsilon_and_share_rise_with_the_budget(value, total) -> None:
    advice = asked({**ANNOUNCED, "total_budget": total}, value=value)
    assert advice.best in advice.choices
    for name in ("budget", "pay", "epsilon_one_record", "epsilon_whole_owner", "cap_share"):
        column = [getattr(choice, name) for choice in advice.choices]
        assert column == sorted(column), name
    for choice in advice.choices:
        assert choice.pay <= advice.reward
        assert choice.cap_share == choice.budget / 5.0
        loss = PrivacyLoss.of(choice.budget, samples=CARD.samples)
        assert choice.epsilon_one_record == loss.epsilon_one_record
        assert choice.epsilon_whole_owner == loss.epsilon_whole_owner
        assert choice.utility == pytest.approx(choice.pay - value * choice.budget)


LOTS = TaskCard.of(
    CARD.document
    | {"compensation": "clock", "min_budget": 0.5, "max_rho": 0.5, "reward": 3.0}
    | {"vesting": "by-round", "unearned": "fund"}
)


def test_by_the_clock_a_lot_is_sold_or_nothing() -> None:
    advice = asked(card=LOTS, value=2.0)  # at a total of 1 a lot is paid 1.5
    assert [choice.budget for choice in advice.choices] == [0.5]
    assert (advice.best.budget, advice.best.pay) == (0.5, pytest.approx(1.5))
    assert "1.5 credits, which the price of a lot is at tick 2" in advice.basis
    assert advice.incentive.startswith("everybody sells the same lot or nothing")
    dear = asked(card=LOTS, value=4.0)
    assert dear.best.budget == 0
    assert dear.reason == "the lot is worth 0.5 credits more to you than its price"
    first = asked(OPEN, card=LOTS, value=2.0)
    assert "1.5 credits, which the price of a lot starts at" in first.basis


def test_the_reply_at_an_announced_total_is_the_plan() -> None:
    from fedbourse.device import BiddingStrategy

    planned = BiddingStrategy().plan(CARD, value=1.0, reward=3.0, total=1.0, cap=5.0)
    assert asked().best.budget == pytest.approx(planned)
    assert "total of 1 at tick 2" in asked().basis


def test_before_an_announcement_others_are_assumed() -> None:
    advice = asked(OPEN)
    assert "3 others with a value like yours" in advice.basis
    assert advice.reward == 3.0
    assert advice.best.budget == pytest.approx(advice.others / 3)  # a game of equals
    assumed = TaskCard.of({**CARD.document, "assumptions": {"accuracy_value": 9.0}})
    assert "spread evenly over 1 to 5, as the buyer assumes" in asked(OPEN, card=assumed).basis


def test_others_sell_all_that_they_would_where_the_asking_owner_is_priced_out() -> None:
    assumptions = {
        "accuracy_value": 9.0,
        "values_low": 1.0,
        "values_high": 5.0,
    }  # rivals of 2 and 4
    card = TaskCard.of({**CARD.document, "reward": 12.5, "assumptions": assumptions})
    advice = asked({**OPEN, "interested": 3}, card=card, value=8.0)
    assert advice.others == pytest.approx(12.5 / 6)  # R / (2 + 4), and not 25/18
    assert advice.best.budget == 0


def test_a_reward_that_is_not_known_yet_is_said() -> None:
    best = {
        **CARD.document,
        "reward": "best",
        "max_reward": 9.0,
        "assumptions": {"accuracy_value": 9.0},
    }
    with pytest.raises(InvalidInput, match="not announced yet"):
        asked(OPEN, card=TaskCard.of(best))


def test_a_used_up_cap_leaves_nothing_to_choose() -> None:
    advice = asked(left=0.0)
    assert advice.best.budget == advice.best.pay == advice.best.utility == 0
    assert advice.choices == (advice.best,)


def test_own_budgets_are_shown_beside_the_best() -> None:
    advice = asked(budgets=[0.0, 0.1, 40.0])
    assert [c.budget for c in advice.choices] == sorted({0.0, 0.1, 40.0, advice.best.budget})
    for wrong in (-1.0, float("nan"), "1", None):
        with pytest.raises(InvalidInput):
            asked(budgets=[wrong])
    for task in ({**ANNOUNCED, "total_budget": 0}, {**ANNOUNCED, "total_budget": "x"},
                 {**ANNOUNCED, "reward_micro": 0}, {**ANNOUNCED, "reward_micro": None},
                 {**ANNOUNCED, "reward_micro": -3}):  # fmt: skip
        with pytest.raises(InvalidInput):
            asked(task)


def minimum(least, **card):
    return TaskCard.of({**CARD.document, "min_budget": least, **card})


@settings(max_examples=100)
@given(
    st.floats(0.05, 20),
    st.floats(0.05, 20),
    st.floats(0, 1),
    st.floats(0.01, 10),
    st.floats(0.1, 9),
)
def test_no_budget_that_the_card_buys_beats_the_best(value, total, floor, left, max_rho) -> None:
    card = minimum(floor * max_rho, max_rho=max_rho)
    advice = asked({**ANNOUNCED, "total_budget": total}, card=card, value=value, left=left)
    most = min(max_rho, left)
    assert advice.best.budget == 0 or card.min_budget <= advice.best.budget <= most
    assert bool(advice.reason) == (advice.best.budget == 0)
    assert all(not each.budget or card.min_budget <= each.budget for each in advice.choices)
    if card.min_budget <= most and advice.others > 1e-12:
        grid = np.linspace(card.min_budget, most, 300)
        utility = advice.reward * grid / (grid + advice.others) - value * grid
        assert advice.best.utility >= max(0.0, utility.max()) - 1e-9 * advice.reward


def test_a_minimum_that_is_not_worth_it_is_said() -> None:
    # Of a total of 1 the owner would sell 2/3; three rho bring 2.7 credits and are worth 3.
    assert asked(card=minimum(0.9)).best.budget == pytest.approx(0.9)
    advice = asked(card=minimum(3.0))
    assert advice.best.budget == 0
    assert advice.reason == (
        "the card buys at least 3 rho from an owner, which is worth 0.3 credits more to you than "
        "its pay"
    )
    assert min(each.budget for each in advice.choices if each.budget) >= 3.0
    assert "can sell at most 2.5" in asked(card=minimum(3.0), left=2.5).reason
    assert "nothing is left" in asked(left=0.0).reason
    assert "worth to you" in asked(value=4.0).reason
    assert asked().reason == ""


def evidence(**items):
    spec = {"reference": "0" * 64, "records": 80, "hold_rounds": 2, **items}
    return TaskCard.of({**CARD.document, "evidence": spec})


def test_advice_says_which_budgets_evidence_cannot_judge() -> None:
    card = evidence()
    least = asked(card=card).evidence.least_budget
    # Every gradient as long as the clipping bound, in each of the two rounds of a block.
    noise = card.privacy_terms(task="t", budget=least).scale
    variance = 2 * card.clip**2 / noise**2
    assert variance == pytest.approx(card.evidence.rule(card.rounds).least_variance, rel=1e-6)
    advice = asked(card=card, budgets=[least * 0.99, least * 1.01])
    assert [each.too_small for each in advice.choices if each != advice.best] == [True, False]
    assert "cannot be judged" in advice.evidence.judging(least * 0.99)
    assert "may be judged" in advice.evidence.judging(least * 1.01)
    plain = asked()
    assert plain.evidence is None
    assert not any(each.too_small for each in plain.choices)
