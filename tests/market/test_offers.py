"""Where R comes from, and the first total."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.errors import InvalidInput
from fedbourse.game import equilibrium
from fedbourse.market.offers import choose_reward, first_total
from fedbourse.wire.card import Assumptions
from market.trading import Trading, card


@given(st.integers(1, 2**51))  # beyond it credits in doubles are coarser than a micro-credit
def test_a_sum_is_the_reward_to_the_micro_credit(micro) -> None:
    assert choose_reward(card(reward=micro / 1e6), interested=5) == (micro, "as the card says")


def test_the_best_reward_knows_how_many_are_interested_and_no_value() -> None:
    wanted = card(reward="best", max_reward=1000.0)
    few, method = choose_reward(wanted, interested=3)
    many, _ = choose_reward(wanted, interested=30)
    assert 0 < few != many
    assert "3 values spread evenly over 1 to 5" in method
    reported = np.array([2.0, 2.0, 2.0])
    assert choose_reward(wanted, interested=3, reported=reported)[0] == few


def test_the_best_reward_for_reported_values_says_that_it_can_be_manipulated() -> None:
    wanted = card(reward="best-reported", max_reward=1000.0)
    low, method = choose_reward(wanted, interested=3, reported=np.array([1.0, 1.0, 1.0]))
    high, _ = choose_reward(wanted, interested=3, reported=np.array([2.0, 2.0, 2.0]))
    assert low != high
    assert "manipulate" in method
    for told in (None, np.array([]), np.array([1.0])):
        with pytest.raises(InvalidInput, match="needs two of them"):
            choose_reward(wanted, interested=3, reported=told)


@given(
    st.sampled_from(["best", "best-reported"]),
    st.floats(1e-6, 1e4),
    st.lists(st.floats(0.01, 100), min_size=2, max_size=20),
    st.floats(1, 1e6),
)
def test_no_best_reward_is_above_the_cards_most(reward, most, values, weight) -> None:
    wanted = card(reward=reward, max_reward=most, assumptions=Assumptions(weight=weight))
    try:
        chosen, _method = choose_reward(wanted, interested=len(values), reported=np.array(values))
    except InvalidInput:  # no reward pays, or none that is a whole micro-credit
        return
    assert 0 < chosen <= round(most * 1e6)


def test_a_reward_that_the_card_limits_says_so() -> None:
    reward, method = choose_reward(card(reward="best", max_reward=0.5), interested=30)
    assert reward == 500_000
    assert "not above the card's max_reward" in method


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=20), st.floats(0.01, 1e6))
def test_where_all_values_are_told_the_first_total_is_the_equilibriums(values, reward) -> None:
    total = first_total(card(), np.array(values), reward=reward, interested=len(values))
    assert total == equilibrium(values, reward=reward).total_budget


def test_where_a_value_is_withheld_the_first_total_uses_none() -> None:
    totals = {
        first_total(card(), np.array([np.nan, value, 1.0]), reward=10.0, interested=3)
        for value in (1.0, 2.0, np.nan)
    }
    assert len(totals) == 1
    assert totals.pop() > 0


@pytest.mark.parametrize("reward", [10.0, "best", "best-reported"])
@pytest.mark.parametrize("max_reward", [10.0, 500.0])
def test_every_source_of_the_reward_leads_to_a_trade(store, reward, max_reward) -> None:
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1, 1.2)
    trading.fund(1_000_000_000)
    task = trading.completed(owners, report=True, reward=reward, max_reward=max_reward)
    assert 0 < task.reward <= max_reward * 1e6
    assert sum(line.payment for line in trading.lines(task.id)) == task.reward
    assert all(check.passed for check in trading.verified(task.id)), trading.verified(task.id)
