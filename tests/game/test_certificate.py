"""Regret of any profile, and the best reply behind it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse import InvalidGame, best_response, equilibrium, regret
from fedbourse.testing.oracles import COSTS, brute_force_regret

profiles = st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.0, 3.0)), min_size=2, max_size=8)


@given(profiles, st.floats(0.1, 10.0))
def test_linear_regret_is_exact_for_any_profile(profile, reward) -> None:
    values, budgets = zip(*profile, strict=True)
    if sum(b > 1e-6 for b in budgets) < 2:
        return
    result = regret(values, budgets, reward=reward)
    assert result == pytest.approx(
        brute_force_regret(values, budgets, reward, COSTS["linear"]), rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize("cost", ["quadratic", "exponential"])
@given(profile=profiles, reward=st.floats(0.1, 10.0))
def test_convex_regret_is_never_too_small(cost, profile, reward) -> None:
    values, budgets = zip(*profile, strict=True)
    if sum(b > 1e-6 for b in budgets) < 2:
        return
    result = regret(values, budgets, reward=reward, cost=cost)
    gain = brute_force_regret(values, budgets, reward, COSTS[cost])
    assert gain - 1e-9 <= result <= gain * (1 + 1e-6) + 1e-9


def test_silence_leaves_the_whole_reward_to_gain() -> None:
    assert regret([1.0, 2.0], [0.0, 0.0], reward=3.0) == 3.0
    assert regret([1.0, 2.0], [0.0, 0.0], reward=3.0, entry_cost=1.0) == 2.0


def test_one_owner_alone_could_save_all_of_its_cost() -> None:
    assert regret([1.0, 50.0], [1.0, 0.0], reward=3.0) == pytest.approx(1.0)
    assert regret([1.0, 50.0], [1.0, 0.0], reward=3.0, cost="quadratic") >= 1.0


def test_a_dominating_owner_does_not_cancel() -> None:
    values = [1.0, 1e17]
    budgets = equilibrium(values, reward=1.0).dense()
    assert regret(values, budgets, reward=1.0) < 1e-30
    assert regret(values, budgets * [1, 0.5], reward=1.0) > 1e-19


def test_whoever_does_not_earn_its_entry_cost_gains_by_leaving() -> None:
    assert regret([1.0, 1.0], [0.25, 0.25], reward=1.0, entry_cost=0.3) == pytest.approx(0.05)
    assert regret([1.0, 1.0], [0.25, 0.25], reward=1.0, entry_cost=0.2) == 0


def test_tiny_and_huge_profiles_have_a_regret_or_an_error() -> None:
    assert regret([1.0, 2.0], [5e-324, 0.0], reward=1.0) <= 1.0
    assert regret([1.0, 2.0], [1e300, 1e-300], reward=1.0, cost="paper-exponential") == math.inf
    with pytest.raises(InvalidGame, match="finite number; found inf"):
        regret([1.0, 2.0], [1e308, 1e308], reward=1.0)


def test_a_reply_to_the_smallest_total() -> None:
    # r (Q + r)^2 = R Q / (2 v), and Q is nothing beside r.
    assert best_response(1.0, 1e-300, reward=1.0, cost="quadratic") == pytest.approx(
        7.937e-101, rel=1e-3
    )


def test_a_spoilt_profile_is_noticed() -> None:
    values = np.random.default_rng(0).uniform(1, 5, 300)
    for cost in ("linear", "quadratic", "exponential"):
        result = equilibrium(values, reward=7.0, cost=cost)
        spoilt = result.dense()
        spoilt[result.participants[0]] *= 1.01
        assert regret(values, spoilt, reward=7.0, cost=cost) > 1e6 * max(result.regret, 1e-25)


@given(st.floats(0.1, 10), st.floats(1e-3, 10), st.floats(0.1, 10))
def test_the_best_reply_is_the_papers(value, others, reward) -> None:
    reply = best_response(value, others, reward=reward)
    expected = max(0.0, math.sqrt(reward * others / value) - others)
    assert reply == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("cost", ["linear", "quadratic", "exponential"])
@given(value=st.floats(0.1, 10), others=st.floats(1e-3, 10), reward=st.floats(0.1, 10))
def test_no_other_reply_is_better(cost, value, others, reward) -> None:
    reply = best_response(value, others, reward=reward, cost=cost)
    tried = np.concatenate([[0.0, reply], np.geomspace(1e-9, 100, 400)])
    utility = [reward * r / (r + others) - COSTS[cost](value, r) for r in tried]
    assert max(utility) <= utility[1] + 1e-12 * reward


def test_a_reply_respects_cap_and_entry_cost() -> None:
    assert best_response(1.0, 1.0, reward=4.0, cap=0.3) == 0.3
    assert best_response(1.0, 1.0, reward=4.0, entry_cost=0.9) == 1.0
    assert best_response(1.0, 1.0, reward=4.0, entry_cost=1.1) == 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.0, 0.0), "with no competitor"),
        ((0.0, 1.0), "value must be a finite number above 0; found 0"),
        ((1.0, -1.0), "others_total must be a finite number of at least 0; found -1"),
        ((1.0, math.nan), "others_total must be .* found nan"),
        (("a", 1.0), "value must be a number; found 'a'"),
    ],
)
def test_bad_arguments_are_refused(arguments, words) -> None:
    with pytest.raises(InvalidGame, match=words):
        best_response(*arguments, reward=1.0)


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        ([1.0], "one number for each of 2 owners; found 1"),
        ([1.0, -1.0], r"budgets\[1\] must be a finite number of at least 0; found -1"),
        ([1.0, math.nan], r"budgets\[1\] must be .* found nan"),
        ([1.0, 3.0], r"budgets\[1\] must be at most its cap 2; found 3"),
    ],
)
def test_a_bad_profile_is_refused(budgets, words) -> None:
    with pytest.raises(InvalidGame, match=words):
        regret([1.0, 1.0], budgets, reward=1.0, caps=2.0)


def test_lying_pays_where_plans_follow_reports() -> None:
    # The oracle of the theory page: the second of three owners reports 0.8 for its 1.2.
    honest = equilibrium([1.0, 1.2, 1.4], reward=10.0)
    lied = equilibrium([1.0, 0.8, 1.4], reward=10.0)
    true_utility = lied.payments[1] - 1.2 * lied.dense()[1]
    assert honest.utilities[1] == pytest.approx(1.11, abs=0.005)
    assert true_utility == pytest.approx(1.25, abs=0.005)


@pytest.mark.parametrize("n", [3, 4, 6])
def test_splitting_into_identities_pays_where_plans_follow_reports(n: int) -> None:
    alone = equilibrium([1.0] * n, reward=1.0).utilities[0]
    split = [sum(equilibrium([1.0] * (n - 1 + k), reward=1.0).utilities[:k]) for k in range(1, 9)]
    best = max(split)
    assert best > alone
    assert split.index(best) + 1 == n - 1
    assert best == pytest.approx(1 / (4 * (n - 1)))
