"""What a device plans: the best reply, and never more than anybody allows."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.device import BiddingStrategy
from fedbourse.errors import InvalidInput
from fedbourse.privacy.filter import Account, left_of, reserve
from fedbourse.privacy.terms import Terms
from fedbourse.tasks.card import TaskCard
from fedbourse.testing.device.malicious_market import CARD

positive = st.floats(1e-6, 1e6)
limits = st.none() | positive


offers = st.fixed_dictionaries({"value": positive, "reward": positive, "total": positive})


cards = st.tuples(st.floats(1e-3, 1e3), st.floats(0, 1)).map(
    lambda drawn: TaskCard.of(
        {**CARD.document, "max_rho": drawn[0], "min_budget": drawn[0] * drawn[1]}
    )
)


@given(offers, limits, limits, cards, st.floats(0, 1e6))
def test_no_plan_is_above_card_cap_or_wish_or_below_the_minimum(
    offer, budget, most, card, left
) -> None:
    if budget is not None and most is not None and budget > most:
        budget = most
    strategy = BiddingStrategy(budget=budget, most=most)
    planned = strategy.plan(card, **offer, cap=strategy.cap(card, left=left))
    assert 0 <= planned <= min(left, card.max_rho)
    assert most is None or planned <= most
    assert budget is None or planned <= budget
    assert planned == 0 or planned >= card.min_budget


@pytest.mark.parametrize(("total", "planned"), [(2.0, 0.5), (2.9, 0.5), (3.0, 0.0)])
def test_the_minimum_is_sold_where_its_pay_is_worth_it(total, planned) -> None:
    card = TaskCard.of({**CARD.document, "min_budget": 0.5})
    best = BiddingStrategy().plan(CARD, value=1.0, reward=3.0, total=total, cap=5.0)
    assert best < 0.5 or total == 2.0  # 2/3 at a total of 2
    found = BiddingStrategy(most=0.5).plan(card, value=1.0, reward=3.0, total=total, cap=0.5)
    assert found == planned
    assert BiddingStrategy().plan(card, value=1.0, reward=3.0, total=total, cap=0.49) == 0
    assert BiddingStrategy(budget=0.4).plan(card, value=1.0, reward=3.0, total=total, cap=5.0) == 0


@given(positive, positive, positive)
def test_the_plan_is_the_best_reply_to_the_others(value, reward, total) -> None:
    card = TaskCard.of({**CARD.document, "max_rho": 1e100})
    planned = BiddingStrategy().plan(card, value=value, reward=reward, total=total, cap=1e100)
    others = total - planned
    if planned == 0:
        assert value * total >= reward * (1 - 1e-12)
        return

    def utility(budget: float) -> float:
        return reward * budget / (budget + others) - value * budget

    # v P = R (1 - r/P): the first-order condition at the announced total.
    assert value * total == pytest.approx(reward * others / total, rel=1e-6, abs=1e-9 * reward)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert utility(planned) >= utility(planned * factor) - 1e-9 * reward


@pytest.mark.parametrize(
    "items",
    [{"budget": 0}, {"budget": -1}, {"budget": float("nan")}, {"budget": "1"}, {"most": 0},
     {"most": float("inf")}, {"most": True}, {"budget": 2, "most": 1}],
    ids=str,
)  # fmt: skip
def test_a_wish_that_makes_no_sense_is_refused(items) -> None:
    with pytest.raises(InvalidInput):
        BiddingStrategy(**items)


@given(st.floats(1e-6, 1e6), st.lists(st.floats(1e-9, 1e3), max_size=6))
def test_what_is_left_of_the_cap_does_fit(cap: float, budgets: list[float]) -> None:
    accounts = [
        Account(Terms(task=str(i), rho=rho, rounds=3, dimension=1, samples=1), closed=i % 2 == 1)
        for i, rho in enumerate(budgets)
    ]
    left = left_of(cap, accounts)
    committed = sum((each.committed for each in accounts), Fraction(0))
    assert left == 0 or committed + Fraction(left) <= Fraction(cap)
    assert left >= float(Fraction(cap) - committed) * (1 - 1e-15)
    if left > 0:
        reserve(Terms(task="new", rho=left, rounds=3, dimension=1, samples=1), accounts, cap)
