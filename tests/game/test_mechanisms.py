"""What each mechanism promises, tried on many games; and what searches and sums give for each."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import MECHANISMS, Guarantees, InvalidGame, InvalidInput, Outcome, Purchase, Uniform
from fedbourse.game.draws import linear_draws
from fedbourse.game.mechanisms import (
    VirtualValues,
    checked_mechanism,
    choose_mechanism,
    first_best,
    run_mechanism,
)
from fedbourse.game.mechanisms.deviations import best_misreport, best_names

TRUTHFUL = [name for name, each in MECHANISMS.items() if each.guarantees.truthful]
BUYER = Purchase(reward=3.0, lot=0.4, gain=10.0, prior=Uniform(1, 5), noise_factor=0.05)

# Ties matter, so values are often multiples of a half.
value = st.one_of(st.integers(1, 12).map(lambda k: k / 2), st.floats(0.3, 7.0))
values = st.lists(value, min_size=2, max_size=8).map(np.array)
caps = st.one_of(st.just(math.inf), st.floats(0.1, 2.0), st.just("each"))


def purchase_of(cap, reward, n):
    if cap == "each":
        cap = np.linspace(0.2, 1.5, n)
    return replace(BUYER, reward=reward, cap=cap)


class PaysAsBid:
    """The same allocation, but each is paid what it says its budget costs it: the planted fault."""

    def __init__(self, name):
        self.inner = MECHANISMS[name]
        self.asks, self.guarantees = self.inner.asks, self.inner.guarantees

    def outcome(self, values, purchase, rng):
        sold = self.inner.outcome(values, purchase, rng)
        return Outcome(sold.budgets, values * sold.budgets)


@pytest.mark.parametrize("name", TRUTHFUL)
@given(values, caps, st.floats(0.2, 20))
@examples(15)
def test_nobody_gains_by_acting_as_if_its_value_were_another(name, values, cap, reward) -> None:
    purchase = purchase_of(cap, reward, len(values))
    gain = best_misreport(MECHANISMS[name], values, purchase, owners=range(min(4, len(values))))
    assert gain.amount <= 1e-9 * max(reward, purchase.gain)


@pytest.mark.faults
@pytest.mark.parametrize("name", TRUTHFUL)
def test_paying_what_was_bid_is_caught(name) -> None:
    game = np.array([1.0, 1.5, 1.7, 2.0, 3.5]), BUYER
    assert best_misreport(MECHANISMS[name], *game).amount < 1e-9
    assert best_misreport(PaysAsBid(name), *game).amount > 1e-3


@pytest.mark.parametrize("name", list(MECHANISMS))
@given(values, caps, st.floats(0.2, 20))
@examples(30)
def test_everybody_gets_what_its_budget_costs_within_cap_and_reward(
    name, values, cap, reward
) -> None:
    purchase = purchase_of(cap, reward, len(values))
    sale = run_mechanism(MECHANISMS[name], values, purchase)
    promises = MECHANISMS[name].guarantees
    assert promises.individually_rational
    assert sale.utilities(values).min() >= -1e-9 * reward
    assert np.all(sale.budgets <= purchase.caps(len(values)) * (1 + 1e-12))
    assert np.all(sale.payments[sale.budgets == 0] == 0)
    if promises.within_reward:
        assert sale.spend <= reward * (1 + 1e-12)


@pytest.mark.parametrize("name", list(MECHANISMS))
@given(values, caps, st.floats(0.2, 20))
@examples(10)
def test_nobody_sells_less_for_acting_cheaper(name, values, cap, reward) -> None:
    purchase, reports = purchase_of(cap, reward, len(values)), values.copy()
    sold = []
    for report in np.geomspace(0.2, 9, 30):
        reports[0] = report
        sold.append(run_mechanism(MECHANISMS[name], reports, purchase).budgets[0])
    assert np.all(np.diff(sold) <= 1e-9 * max(sold))


@given(values, st.floats(0.1, 10))
def test_proportional_buys_at_least_half_and_never_all_of_what_one_winner_sells(
    values, reward
) -> None:
    purchase = replace(BUYER, reward=reward)
    total = run_mechanism(MECHANISMS["proportional"], values, purchase).total_budget
    winner = run_mechanism(MECHANISMS["second-price"], values, purchase).total_budget
    assert winner == pytest.approx(reward / np.sort(values)[1], rel=1e-12)
    assert winner / 2 * (1 - 1e-12) <= total < winner


@given(values)
def test_proportional_is_three_quarters_efficient(values) -> None:
    """Johari and Tsitsiklis: the sum of s/v is at least 3/4 of 1/v_1."""
    sale = run_mechanism(MECHANISMS["proportional"], values, BUYER)
    efficiency = (sale.budgets / sale.total_budget / values).sum() * values.min()
    assert 0.75 - 1e-12 <= efficiency <= 1 + 1e-12


def test_three_quarters_are_reached_by_two_owners_in_the_limit() -> None:
    """The worst case has one cheap owner and many who cost twice as much: s = 1/2."""
    sale = run_mechanism(MECHANISMS["proportional"], [1.0, *[2.0 - 1e-9] * 2000], BUYER)
    values = np.array([1.0, *[2.0 - 1e-9] * 2000])
    assert (sale.budgets / sale.total_budget / values).sum() == pytest.approx(0.75, abs=1e-3)


@pytest.mark.parametrize(("n", "ratio"), [(10, 0.68), (100, 0.81), (1000, 0.92)])
def test_the_mean_ratio_of_proportional_to_one_winner(n, ratio) -> None:
    values = np.random.default_rng(1).uniform(1, 5, (400, n))
    ratios = np.sort(values, axis=1)[:, 1] / linear_draws(values).cutoffs
    assert ratios.mean() == pytest.approx(ratio, abs=0.015)


@pytest.mark.parametrize(
    ("law", "part", "fraction"),
    [(scipy.stats.uniform(1, 4), 0.05, 0.872), (scipy.stats.lognorm(1), 0.2, 0.734)],
)
def test_lots_and_the_papers_rule_with_equal_caps_buy_the_same_of_the_first_best(
    law, part, fraction
) -> None:
    values = law.rvs(size=2000, random_state=np.random.default_rng(2))
    purchase = replace(BUYER, reward=part * values.sum(), lot=1.0, cap=1.0)
    most = first_best(values, purchase)
    for name in ("clock", "proportional"):
        total = run_mechanism(MECHANISMS[name], values, purchase).total_budget
        assert total / most == pytest.approx(fraction, abs=0.01)


def test_unequal_caps_sold_all_or_nothing_can_buy_nothing() -> None:
    """Why lots are equal: twenty tied owners whose caps no two of which fit the reward."""
    purchase = replace(BUYER, reward=1.0, cap=np.full(20, 1.1))
    assert run_mechanism(MECHANISMS["all-in"], np.ones(20), purchase).sellers == 0
    lots = replace(purchase, lot=0.1)
    assert run_mechanism(MECHANISMS["clock"], np.ones(20), lots).sellers == 10


def test_all_in_is_not_truthful() -> None:
    game = np.array([1.0, 1.3, 1.5]), replace(BUYER, reward=3.5, lot=1.0)
    gain = best_misreport(MECHANISMS["all-in"], *game)
    assert gain.amount == pytest.approx(3.5 / 2 - 1.5)
    assert gain.owner == 2


def test_acting_cheaper_and_several_names_gain_under_proportional() -> None:
    game = np.array([1.0, 1.2, 1.4]), replace(BUYER, reward=10.0)
    second = best_misreport(MECHANISMS["proportional"], *game, owners=[1])
    assert second.amount == pytest.approx(1.25 - 1.11, abs=0.01)
    equal = np.ones(10), replace(BUYER, reward=10.0)
    nine = best_names(MECHANISMS["proportional"], *equal, owners=[0], names=[9], factors=[1.0])
    assert 0.1 + nine.amount == pytest.approx(0.28, abs=0.005)
    assert nine.names == 9


def test_several_names_bring_one_winner_nothing_and_a_seller_of_lots_more_lots() -> None:
    game = np.array([1.0, 1.6, 1.9, 3.0]), replace(BUYER, reward=4.5, lot=1.0)
    assert best_names(MECHANISMS["second-price"], *game).amount == 0
    assert best_names(MECHANISMS["clock"], *game).amount > 0.1


# The Bayesian optimal purchase.


def optimum(roots, purchase):
    """The best budgets by plain maximisation: bisection on Q, nothing shared with the solver."""
    a, s, gain = purchase.noise_factor, purchase.sampling, purchase.gain

    def budgets(q):
        scale = math.sqrt(a * gain) / (1 + q)
        return np.minimum(purchase.cap, np.maximum(0.0, (scale / roots - a) / s))

    low, high = 0.0, len(roots) / s
    for _ in range(200):
        q = (low + high) / 2
        sold = budgets(q)
        with np.errstate(divide="ignore"):
            low, high = (q, high) if (1 / (s + a / sold)).sum() > q else (low, q)
    return budgets(low)


@given(values, st.floats(0.05, 5), st.floats(0.1, 10), st.sampled_from([math.inf, 0.02, 0.3]))
@examples(30)
def test_the_optimal_budgets_maximise_the_virtual_surplus(values, s, gain, cap) -> None:
    purchase = replace(BUYER, sampling=s, gain=gain, cap=cap)
    sale = run_mechanism(MECHANISMS["optimal"], values, purchase)
    virtual = VirtualValues.of(Uniform(1, 5))
    cells = virtual.cells_of(values)
    finite = cells < len(virtual.edges)
    expected = np.zeros(len(values))
    expected[finite] = optimum(np.sqrt(virtual.slopes[cells[finite]]), purchase)
    assert sale.budgets == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_virtual_values_of_the_uniform_are_two_v_less_the_lowest() -> None:
    virtual = VirtualValues.of(Uniform(1, 5))
    middles = virtual.edges - 2 / len(virtual.edges)
    assert virtual.slopes == pytest.approx(2 * middles - 1, abs=1e-9)


def test_irregular_virtual_values_are_ironed_into_what_a_price_for_both_modes_costs() -> None:
    """Two modes: buying half at 1 costs 1/2, all at 3 costs 3. The gap in between is a chord."""

    class TwoModes:
        def rvs(self, *, size, random_state):
            raise AssertionError

        def ppf(self, places):
            return np.where(places <= 0.5, 1 + 0.01 * places, 3 + 0.01 * places)

    virtual = VirtualValues.of(TwoModes(), cells=1000)
    assert np.all(np.diff(virtual.slopes) >= 0)
    plain = np.diff(np.append(0, np.arange(1, 1001) / 1000 * virtual.edges)) * 1000
    assert np.any(np.diff(plain) < -1)  # irregular: a cell is cheaper than the one before
    above = virtual.slopes[600:]
    assert above == pytest.approx((3.01 - 0.5 * 1.005) / 0.5, rel=1e-3)
    game = np.array([1.001, 3.004, 3.008]), replace(BUYER, prior=TwoModes())
    assert best_misreport(MECHANISMS["optimal"], *game).amount < 1e-9


@pytest.mark.parametrize(("n", "s", "utility"), [(10, 1.0, 7.918), (40, 10.0, 6.953)])
def test_the_optimal_purchase_brings_its_buyer_more_than_any_reward(n, s, utility) -> None:
    """The means over 4000 draws of the formula with v + F/f = 2 v - 1, worked out apart."""
    buyer = Purchase(gain=10.0, noise_factor=0.01, sampling=s, prior=Uniform(1, 5))
    draws = np.random.default_rng(4).uniform(1, 5, (40, n))
    sales = [run_mechanism(MECHANISMS["optimal"], row, buyer) for row in draws]
    mean = np.mean([buyer.utility(sale) for sale in sales])
    assert mean == pytest.approx(utility, abs=0.02)
    assert all(sale.sellers == n for sale in sales)
    for reward in np.geomspace(0.05, 2, 8):
        paid = replace(buyer, reward=reward)
        others = [run_mechanism(MECHANISMS["proportional"], row, paid) for row in draws]
        assert np.mean([paid.utility(sale) for sale in others]) < mean - 0.5


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"prior": None}, "needs a prior"),
        ({"sampling": 0.0}, "needs a sampling variance above 0; found 0"),
        ({"prior": scipy.stats.norm(0, 1)}, "quantiles of the prior must be positive"),
    ],
)
def test_what_the_optimal_purchase_needs_is_said(wrong, sentence) -> None:
    with pytest.raises(InvalidGame, match=sentence):
        run_mechanism(MECHANISMS["optimal"], [1.0, 2.0], replace(BUYER, **wrong))


# Mechanisms of one's own.


class Own:
    asks = "value"
    guarantees = MECHANISMS["second-price"].guarantees

    def outcome(self, values, purchase, rng):
        return Outcome(np.ones(len(values)), 2 * values)


def test_an_object_with_the_three_attributes_is_a_mechanism() -> None:
    assert choose_mechanism(own := Own()) is own
    assert run_mechanism(own, [1.0, 2.0], BUYER).spend == 6.0
    assert choose_mechanism("clock") is MECHANISMS["clock"]


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"outcome": None}, r"a mechanism needs outcome\(values, purchase, rng\); Wrong has none"),
        (
            {"outcome": lambda self, values: None},
            r"Wrong.outcome must take \(values, purchase, rng\): too many positional arguments",
        ),
        ({"asks": "age"}, "Wrong.asks must be one of budget, value, price, .* found 'age'"),
        ({"guarantees": "all"}, "Wrong.guarantees must be a fedbourse.Guarantees; found 'all'"),
    ],
)
def test_what_a_wrong_mechanism_lacks_is_said(attributes, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        checked_mechanism(type("Wrong", (Own,), attributes)())
    with pytest.raises(InvalidInput, match=sentence):
        run_mechanism(type("Wrong", (Own,), attributes)(), [1.0, 2.0], BUYER)


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (None, "outcome must return a fedbourse.Outcome; found None"),
        (Outcome(np.ones(3), np.ones(2)), "budgets with one number for each of 2 owners; found"),
        (Outcome(np.ones(2), np.array(["a", "b"])), "must return payments with one number"),
        (Outcome(np.array([1.0, -1.0]), np.ones(2)), r"budgets\[1\] must be at least 0; found -1"),
        (Outcome(np.ones(2), np.array([1.0, np.nan])), r"payments\[1\] must be finite; found nan"),
        (Outcome([1.0, 2.0], [1, 1]), None),
    ],
)
def test_what_a_mechanism_returns_is_checked(outcome, sentence) -> None:
    own = type("Wrong", (Own,), {"outcome": lambda *_: outcome})()
    if sentence is None:
        assert run_mechanism(own, [1.0, 2.0], BUYER).total_budget == 3.0
        return
    with pytest.raises(InvalidInput, match=sentence):
        run_mechanism(own, [1.0, 2.0], BUYER)


def test_promises_are_stated_one_by_one() -> None:
    with pytest.raises(TypeError):
        Guarantees(truthful=True)  # type: ignore[call-arg]
