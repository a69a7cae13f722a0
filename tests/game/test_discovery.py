"""Discovery reaches the equilibrium from two sums; best replies do not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse import (
    Discovery,
    InvalidGame,
    NoEquilibrium,
    best_reply_rounds,
    discover,
    equilibrium,
    share_at,
)
from strategies import plain_values


@pytest.mark.parametrize("cost", ["linear", "quadratic", "exponential"])
@given(values=plain_values, reward=st.floats(0.01, 100.0), start=st.floats(1e-3, 1e3))
@settings(max_examples=60)
def test_discovery_ends_in_the_equilibrium(cost, values, reward, start) -> None:
    found = discover(values, reward=reward, cost=cost, start=start)
    known = equilibrium(values, reward=reward, cost=cost)
    assert found.total_budget == pytest.approx(known.total_budget, rel=1e-11)
    assert found.budgets == pytest.approx(known.dense(), rel=1e-6, abs=1e-11 * found.total_budget)
    assert len(found.totals) == found.rounds + 1


@pytest.mark.parametrize("n", [2, 10, 100, 1000, 10_000, 100_000])
def test_a_handful_of_rounds_is_enough(n: int) -> None:
    values = np.random.default_rng(n).uniform(1, 5, n)
    assert 3 <= discover(values, reward=10.0).rounds <= 18
    assert discover(values, reward=10.0, cost="quadratic").rounds <= 18
    assert discover(values, reward=10.0, cost="exponential").rounds <= 18


@pytest.mark.parametrize("start", [1e-30, 1e-20, 1e20])
def test_any_first_announcement_will_do(start) -> None:
    assert discover([1.0, 1.0], reward=1.0, start=start).total_budget == pytest.approx(0.5)


def test_the_market_needs_two_sums_and_no_value() -> None:
    values, reward = [1.0, 1.2, 1.4, 3.0], 10.0
    market = Discovery.start(total_budget=1.0)
    while not market.settled:
        answers = [share_at(v, market.total_budget, reward=reward) for v in values]
        market = market.move(positive=sum(s > 0 for s in answers), share_sum=sum(answers))
    assert market.total_budget == pytest.approx(equilibrium(values, reward=reward).total_budget)


def test_six_equal_owners_who_reply_to_each_other_swing_ever_wider() -> None:
    start = np.full(6, 5 / 36) * (1 + 1e-3 * np.arange(6))
    history = best_reply_rounds(np.ones(6), start, reward=1.0, rounds=12)
    distance = np.abs(history - 5 / 36).max(axis=1)
    assert distance[6] > 10 * distance[0]
    assert distance.max() > 0.1


def test_three_equal_owners_settle_even_so() -> None:
    history = best_reply_rounds(np.ones(3), [0.3, 0.2, 0.1], reward=1.0, rounds=200)
    assert history[-1] == pytest.approx(np.full(3, 2 / 9), rel=1e-6)


@pytest.mark.parametrize(("ratio", "settles"), [(5.0, True), (6.7, False)])
def test_two_owners_settle_up_to_a_ratio_of_5_83(ratio, settles) -> None:
    # 3 + 2 sqrt(2) = 5.83
    known = equilibrium([1.0, ratio], reward=1.0).dense()
    history = best_reply_rounds([1.0, ratio], known * [1.001, 1.0], reward=1.0, rounds=400)
    assert (np.abs(history[-1] - known).max() < 1e-9) == settles


def test_damping_by_two_over_n_settles_slowly() -> None:
    start = np.full(6, 5 / 36) * (1 + 1e-2 * np.arange(6))
    history = best_reply_rounds(np.ones(6), start, reward=1.0, rounds=600, damping=2 / 6)
    assert history[-1] == pytest.approx(np.full(6, 5 / 36), rel=1e-6)


def test_a_discovery_that_may_not_end_says_so() -> None:
    with pytest.raises(NoEquilibrium, match="not settled after 2 rounds"):
        discover([1.0, 2.0, 3.0], reward=1.0, rounds_max=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: discover([1, 1], reward=9, cost="paper-exponential"), "without an entry cost"),
        (lambda: Discovery.start(total_budget=0), "total_budget must be .* above 0; found 0"),
        (lambda: Discovery.start(total_budget=1).move(positive=2, share_sum=3), "at most 2"),
        (lambda: Discovery.start(total_budget=1).move(positive=-1, share_sum=0), "positive"),
        (lambda: share_at(0, 1, reward=1), "value must be"),
        (lambda: best_reply_rounds([1, 1], [1], reward=1), "each of 2 owners; found 1"),
        (lambda: best_reply_rounds([1, 1], [1, -1], reward=1), r"budgets\[1\]"),
        (lambda: best_reply_rounds([1, 1], 1.0, reward=1, damping=2), "damping must be"),
    ],
)
def test_bad_answers_are_refused(call, words) -> None:
    with pytest.raises(InvalidGame, match=words):
        call()


@given(st.lists(st.floats(0.5, 20.0), min_size=2, max_size=12), st.floats(0.01, 5.0))
def test_capped_owners_are_led_to_the_capped_equilibrium(values, cap) -> None:
    caps = np.full(len(values), cap)
    found = discover(values, reward=10.0, caps=caps)
    known = equilibrium(values, reward=10.0, caps=caps)
    expected = np.zeros(len(values))
    expected[known.participants] = known.budgets
    assert found.budgets == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert (found.budgets <= cap * (1 + 1e-12)).all()


def test_a_bracket_that_was_lied_shut_does_not_count_as_standing_still() -> None:
    values, reward = [1.0, 1.0, 1.0], 10.0
    market = Discovery.start(total_budget=9.0)
    for share_sum in (0.9, 1.2, 0.999, 1.001, 0.9999, 1.0001, 0.99999, 1.00001) * 4:
        market = market.move(positive=3, share_sum=share_sum)
    market = market.move(positive=3, share_sum=0.002)
    assert not market.settled
    for _ in range(60):  # everybody is honest from here on
        if market.settled:
            break
        answers = [share_at(v, market.total_budget, reward=reward) for v in values]
        market = market.move(positive=sum(s > 0 for s in answers), share_sum=sum(answers))
    assert market.total_budget == pytest.approx(equilibrium(values, reward=reward).total_budget)
