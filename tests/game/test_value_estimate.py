"""The estimate of values against results that are known, and against its own certificate."""

import doctest
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse import Quantiles, Uniform, best_reward, equilibrium, estimate_values
from fedbourse.errors import InvalidGame
from fedbourse.game import Training, value_estimate
from fedbourse.game.activity import Reply, value_bounds
from fedbourse.game.draws import linear_draws
from fedbourse.game.price_discovery import PriceDiscovery

INF = math.inf
TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)


def log_likelihood(lows, highs, left, right, masses) -> float:
    inside = (np.asarray(lows)[:, None] <= left) & (right <= np.asarray(highs)[:, None])
    return float(np.log(inside @ masses).sum())


def kaplan_meier(exact, censored) -> dict[float, float]:
    """Return the mass at each exact value, by the product of the survival at each.

    A bound says *at least*, so an owner with a bound at an exact value is past it already.
    """
    survival, masses = 1.0, {}
    for value in np.unique(exact):
        at_risk = (exact >= value).sum() + (censored > value).sum()
        factor = 1 - (exact == value).sum() / at_risk
        masses[float(value)], survival = survival * (1 - factor), survival * factor
    return masses


def test_docstring() -> None:
    assert doctest.testmod(value_estimate).failed == 0


def test_without_bounds_it_is_the_sample() -> None:
    values = np.array([3.0, 1.0, 2.0, 1.0, 5.0])
    estimate = estimate_values(values, values)
    assert estimate.lows.tolist() == estimate.highs.tolist() == [1, 2, 3, 5]
    assert estimate.masses == pytest.approx([0.4, 0.2, 0.2, 0.2])
    assert estimate.owners == 5


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=30),
    st.lists(st.integers(1, 12), max_size=30),
)
def test_with_bounds_from_below_it_is_kaplan_and_meiers(exact, censored) -> None:
    exact, censored = np.array(exact, float), np.array(censored, float)
    estimate = estimate_values(
        [*exact, *censored], [*exact, *np.full(len(censored), INF)]
    )  # fmt: skip
    expected = kaplan_meier(exact, censored)
    for low, high, mass in zip(estimate.lows, estimate.highs, estimate.masses, strict=True):
        if high < INF:
            assert mass == pytest.approx(expected[low], abs=1e-6)
        else:
            assert low == censored.max()
    assert estimate.masses.sum() == pytest.approx(1)


def test_an_example_by_hand() -> None:
    """Three intervals overlap in a chain: all mass is where two of them meet.

    [1, 3] and [2, 5] meet in [2, 3], [4, 6] meets [2, 5] in [4, 5]. With p on [2, 3] and 1 - p on
    [4, 5] the likelihood is p * 1 * (1 - p): p = 1/2. A fourth owner in
    [1, 3] makes it p^2 (1 - p).
    """
    three = estimate_values([1, 2, 4], [3, 5, 6])
    assert (three.lows.tolist(), three.highs.tolist()) == ([2, 4], [3, 5])
    assert three.masses == pytest.approx([1 / 2, 1 / 2])
    four = estimate_values([1, 2, 4], [3, 5, 6], owners=[2, 1, 1])
    assert four.masses == pytest.approx([2 / 3, 1 / 3])
    assert four.owners == 4


def test_touching_bounds_share_their_point() -> None:
    estimate = estimate_values([1, 2], [2, 3])
    assert (estimate.lows.tolist(), estimate.highs.tolist()) == ([2], [2])


intervals = st.lists(
    st.tuples(st.integers(0, 9), st.one_of(st.integers(0, 6), st.just(INF))).map(
        lambda pair: (float(pair[0]), max(float(pair[0] + pair[1]), 0.5))
    ),
    min_size=1,
    max_size=14,
)


@given(intervals, st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_no_other_masses_are_more_likely(bounds, seed) -> None:
    lows, highs = np.array(bounds).T
    estimate = estimate_values(lows, highs)
    assert estimate.masses.sum() == pytest.approx(1)
    left, right = estimate.lows, estimate.highs
    best = log_likelihood(lows, highs, left, right, estimate.masses)
    inside = (lows[:, None] <= left) & (right <= highs[:, None])
    demand = (inside / (inside @ estimate.masses)[:, None]).sum(axis=0)
    assert demand.max() <= len(lows) * (1 + 2e-9)  # self-consistent, and no mass is missing
    assert estimate.masses * demand == pytest.approx(len(lows) * estimate.masses, abs=1e-4)
    for other in np.random.default_rng(seed).dirichlet(np.ones(len(left)), 20):
        assert log_likelihood(lows, highs, left, right, other) <= best + estimate.gap + 1e-9


def test_all_mass_is_where_all_intervals_meet() -> None:
    crossing = estimate_values([1, 2, 1], [4, 9, 3])
    assert (crossing.lows.tolist(), crossing.highs.tolist()) == ([2], [3])


def test_draws_have_the_masses_and_stay_within_their_intervals() -> None:
    estimate = estimate_values([0, 2, 3, 3], [1, 2, INF, INF], highest=5)
    values = estimate.rvs(size=(1000, 8), random_state=np.random.default_rng(0)).ravel()
    assert ((values > 0) & (values <= 5)).all()
    assert (values <= 1).mean() == pytest.approx(1 / 4, abs=0.02)
    assert (values == 2).mean() == pytest.approx(1 / 4, abs=0.02)
    assert values[values > 2].mean() == pytest.approx(4, abs=0.05)
    without = estimate_values([3], [INF]).rvs(size=(3,), random_state=np.random.default_rng(0))
    assert without.tolist() == [3, 3, 3]
    below = estimate_values([3], [INF], highest=2).rvs(
        size=(3,), random_state=np.random.default_rng(0)
    )
    assert below.tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    ("lows", "highs", "options", "words"),
    [
        ([], [], {}, "at least one owner's bounds; found none"),
        ([1, 2], [1], {}, "highs must hold one number for each of 2 owners; found 1"),
        ([2], [1], {}, "highs[0] must be at least the lower bound; found 1.0"),
        ([0], [0], {}, "highs[0] must be above 0; found 0.0"),
        ([-1], [1], {}, "lows[0] must be a finite number of at least 0; found -1.0"),
        ([1], [1], {"owners": [0.5]}, "owners[0] must be a whole number of at least 1"),
        ([1], [INF], {"highest": 0}, "highest must be a finite number above 0; found 0"),
        ("abc", [1], {}, "lows must be a list, an array"),
    ],
)
def test_bad_bounds_get_one_sentence(lows, highs, options, words) -> None:
    with pytest.raises(InvalidGame) as error:
        estimate_values(lows, highs, **options)
    assert words in str(error.value)


# From replies ------------------------------------------------------------------------------------


def replies_of(value, totals, *, reward=10.0, cap=None, floor=0.0) -> list[Reply]:
    replies = []
    for tick, total in enumerate(totals):
        share = max(0.0, 1 - value * total / reward)
        budget = min(share * total, INF if cap is None else cap)
        replies.append(Reply(tick, total, max(budget, floor) if budget else 0.0))
    return replies


@pytest.mark.parametrize(
    ("replies", "floor", "bounds"),
    [
        (replies_of(2.0, [8.0, 4.0, 2.0, 1.0]), 0.0, (2.0, 2.0)),
        (replies_of(2.0, [8.0, 6.0]), 0.0, (10 / 6, INF)),  # a zero at the smallest total
        (
            replies_of(2.0, [8.0, 4.0, 2.0], cap=0.5),
            0.0,
            (10 / 8, 10 / 4 * (1 - 0.5 / 4)),
        ),  # it would sell more
        (replies_of(2.0, [4.0]), 0.0, (0.0, 2.0)),  # one budget may be a cap
        (replies_of(2.0, [4.0, 2.0], floor=1.5), 1.5, (0.0, 10 / 4)),  # the floor: worth its pay
    ],
)
def test_what_replies_say_of_a_value(replies, floor, bounds) -> None:
    assert value_bounds(replies, reward=10.0, floor=floor) == pytest.approx(bounds)


def test_replies_that_no_value_explains_are_refused() -> None:
    with pytest.raises(InvalidGame, match="both at least"):
        value_bounds([Reply(0, 4.0, 0.0), Reply(1, 2.0, 0.1), Reply(2, 1.0, 0.9)], reward=10.0)


def test_a_settled_task_tells_the_sellers_values_and_a_bound_on_the_others() -> None:
    values = np.random.default_rng(3).uniform(1, 5, 60)
    discovery = PriceDiscovery.start(total_budget=1.0)
    ticks: list[list[Reply]] = [[] for _ in values]
    while not discovery.converged:
        total = discovery.total_budget
        budgets = [best_reply(v, total) for v in values]
        for owner, budget in enumerate(budgets):
            ticks[owner].append(Reply(len(discovery.ticks), total, budget))
        positive = sum(budget > 0 for budget in budgets)
        discovery = discovery.move(positive=positive, share_sum=sum(budgets) / total)
    lows, highs = np.array([value_bounds(each, reward=10.0) for each in ticks]).T
    settled = equilibrium(values, reward=10.0)
    sellers = np.isin(np.arange(60), settled.participants)
    assert lows[sellers] == pytest.approx(values[sellers], rel=1e-6)
    assert (highs[sellers] == lows[sellers]).all()  # one value, not a narrow range
    # Ticks at smaller totals had others reply as well: the market has learnt their values too.
    replied = np.array([sum(reply.budget > 0 for reply in each) for each in ticks])
    assert (highs[replied == 0] == INF).all()
    assert (replied[~sellers] > 0).any()
    assert (lows <= values * (1 + 1e-9)).all()
    assert (highs >= values * (1 - 1e-9)).all()
    assert estimate_values(lows, highs).gap <= 1e-6


def best_reply(value: float, total: float) -> float:
    return max(0.0, total * (1 - value * total / 10.0))


def test_bounds_that_follow_from_the_sellers_values_do_not_bias_the_estimate() -> None:
    """Each task's bound is its own cutoff; over many tasks the lower tail comes out right."""
    values = Uniform(1, 5).rvs(size=(400, 50), random_state=np.random.default_rng(0))
    cutoffs = linear_draws(values).cutoffs[:, None]
    lows, highs = np.minimum(values, cutoffs), np.where(values < cutoffs, values, INF)
    estimate = estimate_values(lows.ravel(), highs.ravel())
    below = estimate.masses[estimate.highs <= 1.4].sum()
    assert below == pytest.approx(0.1, abs=0.007)  # the standard error is .0021
    naive = (lows[lows < cutoffs.repeat(50, 1)] <= 1.4).mean()
    assert naive > 0.3  # the sellers alone would say that values are low


def test_the_best_reward_accepts_an_estimate() -> None:
    values = Uniform(1, 5).rvs(size=(20, 100), random_state=np.random.default_rng(1))
    cutoffs = linear_draws(values).cutoffs[:, None]
    lows, highs = np.minimum(values, cutoffs), np.where(values < cutoffs, values, INF)
    estimate = estimate_values(lows.ravel(), highs.ravel())
    options = {"accuracy_value": 20, "accuracy": "precision", "owners": 100}
    offer = best_reward(estimate, TRAINING, **options)
    right = best_reward(Uniform(1, 5), TRAINING, **options)
    assert offer.reward == pytest.approx(right.reward, rel=0.03)


# Quantiles ---------------------------------------------------------------------------------------


def test_quantiles_of_two_ends_are_the_uniform_distribution() -> None:
    ends = Quantiles(((0, 2), (1, 6)))
    assert ends.spread(5) == pytest.approx(Uniform(2, 6).spread(5))
    assert ends.spread(10, 3, 7) == pytest.approx(ends.spread(10)[3:7])
    drawn = ends.rvs(size=(100, 50), random_state=np.random.default_rng(0))
    assert drawn.shape == (100, 50)
    assert ((drawn > 2) & (drawn < 6)).all()
    assert drawn.mean() == pytest.approx(4, abs=0.05)


def test_an_estimates_quantiles_stand_for_it() -> None:
    values = Uniform(1, 5).rvs(size=(20, 100), random_state=np.random.default_rng(1))
    cutoffs = linear_draws(values).cutoffs[:, None]
    lows, highs = np.minimum(values, cutoffs), np.where(values < cutoffs, values, INF)
    estimate = estimate_values(lows.ravel(), highs.ravel(), highest=5)
    pairs = estimate.quantiles([0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 1])
    assert pairs[0] == (0, values.min())
    assert pairs[-1] == (1, 5)
    options = {"accuracy_value": 20, "accuracy": "precision", "owners": 100}
    offer = best_reward(Quantiles(pairs), TRAINING, **options)
    assert offer.reward == pytest.approx(
        best_reward(estimate, TRAINING, **options).reward, rel=0.03
    )


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ((), "the parts from 0 to 1; found none"),
        (((0, 1), (0.5, 2)), "the parts from 0 to 1; found the parts 0, 0.5"),
        (((0, 0), (1, 2)), "value must be a finite number above 0; found 0"),
        (((0, 3), (1, 2)), "value must be a finite number of at least 3; found 2"),
        (((0, 1), (0.5, 2), (0.5, 3), (1, 4)), "part must be a finite number above 0.5"),
    ],
)
def test_bad_quantiles_get_one_sentence(pairs, words) -> None:
    with pytest.raises(InvalidGame) as error:
        Quantiles(pairs)
    assert words in str(error.value)
