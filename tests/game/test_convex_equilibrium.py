"""Quadratic, exponential and the caller's own costs: one equilibrium, with its certificate."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import InvalidCost, InvalidGame, NoEquilibrium, equilibrium, regret, tolerance
from fedbourse.game.costs import Exponential
from fedbourse.testing.oracles import COSTS, brute_force_regret

values_lists = st.lists(
    st.one_of(st.floats(0.01, 100.0), st.integers(1, 9).map(lambda k: k / 10)),
    min_size=2,
    max_size=40,
)
rewards = st.floats(1e-3, 1e4)


class Cubic:
    """v (r + r^3): a cost of one's own, with a price for the first unit."""

    def cost(self, values, budgets):
        return values * (budgets + budgets**3)

    def marginal(self, values, budgets):
        return values * (1 + 3 * budgets**2)


class OwnExponential:
    def cost(self, values, budgets):
        return np.expm1(values * budgets)

    def marginal(self, values, budgets):
        return values * np.exp(values * budgets)


@pytest.mark.parametrize("cost", ["quadratic", "exponential", Cubic()])
@given(values=values_lists, reward=rewards)
@examples(50)
def test_no_owner_gains_by_deviating(cost, values: list[float], reward: float) -> None:
    result = equilibrium(values, reward=reward, cost=cost)
    bound = tolerance(reward, len(result.participants))
    assert result.regret <= bound
    assert regret(values, result.dense(), reward=reward, cost=cost) <= bound
    assert math.isclose(result.payments.sum(), reward, rel_tol=1e-12)
    assert (result.budgets > 0).all()
    assert result.cutoff is None


@pytest.mark.parametrize("cost", ["quadratic", "exponential"])
@given(values=values_lists.filter(lambda v: len(v) <= 8), reward=st.floats(0.01, 100.0))
@examples(40)
def test_brute_force_finds_no_better_budget(cost, values, reward) -> None:
    budgets = equilibrium(values, reward=reward, cost=cost).dense().tolist()
    assert brute_force_regret(values, budgets, reward, COSTS[cost]) <= 1e-11 * reward


@pytest.mark.parametrize("cost", ["linear", "quadratic", "exponential"])
@given(data=st.data(), values=values_lists, reward=rewards)
@examples(30)
def test_the_order_of_owners_does_not_matter(data, cost, values, reward) -> None:
    order = data.draw(st.permutations(range(len(values))))
    budgets = equilibrium(values, reward=reward, cost=cost).dense()
    shuffled = equilibrium([values[i] for i in order], reward=reward, cost=cost).dense()
    assert shuffled == pytest.approx(budgets[list(order)], rel=1e-11, abs=1e-14 * budgets.sum())


def test_a_cost_of_ones_own_agrees_with_the_one_that_is_known() -> None:
    values = np.random.default_rng(0).uniform(1, 5, 200)
    own = equilibrium(values, reward=10.0, cost=OwnExponential())
    known = equilibrium(values, reward=10.0, cost="exponential")
    assert own.dense() == pytest.approx(known.dense(), rel=1e-11, abs=1e-14)


def test_everybody_takes_part_where_the_first_unit_is_free() -> None:
    result = equilibrium([0.01, 1.0, 1e6], reward=1.0, cost="quadratic")
    assert len(result.participants) == 3
    # P = sqrt(R) Q with sum of 1/(1 + 2 v Q^2) = 1
    assert sum(1 / (1 + 2 * v * result.total_budget**2) for v in (0.01, 1.0, 1e6)) == pytest.approx(
        1
    )


@given(st.floats(1e-3, 1e6), st.floats(1e-9, 1 - 1e-9))
def test_exponential_shares_solve_their_equation(reward: float, part: float) -> None:
    x = reward * part  # v P below R: the owner takes part
    share = float(Exponential().share(np.array([x]), 1.0, reward)[0])
    left, right = math.log1p(-share) + math.log(reward / x), x * share
    rounding = 1e-15 / (1 - share)  # what a last digit of the share does to ln(1 - s)
    assert abs(left - right) <= 1e-12 * max(1.0, abs(right), abs(left)) + rounding
    assert 0 < share < 1


def test_exponential_shares_keep_their_digits_near_the_cutoff() -> None:
    # To first order in e = 1 - x/R, s (1 + R) = e.
    reward, e = 10.0, 1e-9
    share = float(Exponential().share(np.array([reward * (1 - e)]), 1.0, reward)[0])
    assert share == pytest.approx(e / (1 + reward), rel=1e-6)


@pytest.mark.parametrize("cost", ["quadratic", "exponential", Cubic()])
@pytest.mark.parametrize("reward", [1e-12, 1e12])
def test_extreme_games_do_not_overflow(cost, reward: float) -> None:
    values = 10 ** np.linspace(-6, 6, 25)
    result = equilibrium(values, reward=reward, cost=cost)
    assert result.regret <= tolerance(reward, len(result.participants))
    assert np.isfinite(result.utilities).all()


@pytest.mark.parametrize("cost", ["linear", "quadratic", "exponential"])
@given(
    values=values_lists,
    reward=st.floats(0.01, 100.0),
    caps=st.lists(st.one_of(st.floats(1e-3, 10.0), st.just(math.inf)), min_size=40, max_size=40),
)
@examples(50)
def test_caps_hold_and_leave_nobody_a_gain(cost, values, reward, caps) -> None:
    caps = caps[: len(values)]
    result = equilibrium(values, reward=reward, cost=cost, caps=caps)
    assert (result.dense() <= np.array(caps) * (1 + 1e-15)).all()
    assert result.regret <= tolerance(reward, len(result.participants))
    assert math.isclose(result.payments.sum(), reward, rel_tol=1e-12)


@pytest.mark.parametrize("cost", ["linear", "quadratic", "exponential"])
def test_wide_caps_change_nothing(cost) -> None:
    values = [1.0, 1.5, 2.0, 9.0]
    free = equilibrium(values, reward=4.0, cost=cost)
    capped = equilibrium(values, reward=4.0, cost=cost, caps=1e6)
    assert capped.dense() == pytest.approx(free.dense(), rel=1e-12, abs=1e-15)


def test_a_cap_of_zero_keeps_an_owner_out_and_one_owner_alone_has_no_rival() -> None:
    result = equilibrium([1.0, 1.0, 1.0], reward=1.0, caps=[0.0, 9.0, 9.0])
    assert result.participants.tolist() == [1, 2]
    with pytest.raises(NoEquilibrium, match="only 1 owner may spend anything"):
        equilibrium([1.0, 1.0], reward=1.0, caps=[0.0, 9.0])


@pytest.mark.parametrize("values", [[6.0, 3, 1, 2, 8], [7.0, 2, 10, 5], [1.0, 1, 2], [3.0, 4, 7]])
@pytest.mark.parametrize("reward", [1.0, 7.0, 44.0])
def test_rounding_lets_no_tied_owner_in(values, reward) -> None:
    exact = equilibrium(values, reward=reward).participants.tolist()
    tied = {"caps": 1e6}, {"entry_cost": [0.0] * len(values)}, {"cost": OwnLinear()}
    for terms in tied:
        assert equilibrium(values, reward=reward, **terms).participants.tolist() == exact


class OwnLinear:
    def cost(self, values, budgets):
        return values * budgets

    def marginal(self, values, budgets):
        return values + 0 * budgets


def test_values_a_last_digit_apart_are_no_fault_of_the_cost() -> None:
    result = equilibrium([0.010000000000000002, 0.01], reward=1.0, cost=Cubic())
    assert len(result.participants) == 2


@pytest.mark.parametrize(("n", "high"), [(30_000, 1e6), (10_000, 1e9), (100_000, 1e6)])
def test_one_cheap_owner_among_many_of_high_value(n, high) -> None:
    result = equilibrium(np.r_[1.0, np.full(n - 1, high)], reward=3.0, cost="exponential")
    assert result.regret <= tolerance(3.0, len(result.participants))


def test_a_lone_participant_is_never_an_equilibrium() -> None:
    for terms in ({"cost": "exponential"}, {"caps": 1e9}):
        with pytest.raises(InvalidGame, match="too far apart"):
            equilibrium([1.0, 1e16], reward=1.0, **terms)


class Bad:
    def __init__(self, cost, marginal) -> None:
        self.cost, self.marginal = cost, marginal


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (Bad(lambda v, r: v * np.sqrt(r), lambda v, r: v / (2 * np.sqrt(r + 1e-9))), "not convex"),
        (Bad(lambda v, r: v * r * r, lambda v, r: v * r), "not convex with this marginal"),
        (Bad(lambda v, r: v * r + 1, lambda v, r: v + 0 * r), "must be 0"),
        (Bad(lambda v, r: r / v, lambda v, r: 1 / v + 0 * r), "does not rise with the value"),
        (Bad(lambda v, r: 0 * v * r, lambda v, r: 0 * v * r), "never reaches the reward"),
        (Bad(lambda v, r: v * r * np.nan, lambda v, r: v + 0 * r), "never reaches|not a number"),
        (Bad(lambda v, r: [1, 2, 3, 4, 5], lambda v, r: v), "must take and return arrays"),
        (Bad(lambda v, r: v * math.exp(r), lambda v, r: v), "must take and return arrays"),
        (Bad(lambda v, r: -v * r, lambda v, r: -v + 0 * r), "never reaches"),
        ("cubic", "cost must be one of linear, quadratic, exponential, paper-exponential"),
        (7, "cost must be one of"),
        (Cubic, "cost must be one of"),
    ],
)
def test_what_is_no_cost_is_refused_in_words(cost, words) -> None:
    with pytest.raises(InvalidCost, match=words):
        equilibrium([1.0, 2.0, 3.0], reward=5.0, cost=cost)


def test_pay_for_information_needs_a_cost_that_can_be_rescaled() -> None:
    with pytest.raises(InvalidGame, match="needs one of fedbourse's own costs; found Cubic"):
        equilibrium([1, 2], reward=1, cost=Cubic(), pay_for="information", samples=3)


@pytest.mark.parametrize("cost", ["quadratic", "exponential"])
def test_pay_for_information_leaves_nobody_a_gain(cost) -> None:
    values, samples = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 0.5])
    result = equilibrium(values, reward=6.0, cost=cost, samples=samples, pay_for="information")
    information = samples[result.participants] ** 2 * result.budgets
    assert result.payments == pytest.approx(6.0 * information / information.sum())
    for i, r, u in zip(result.participants, result.budgets, result.utilities, strict=True):
        others = information.sum() - samples[i] ** 2 * r
        tried = np.geomspace(1e-3, 1e3, 20_001) * r
        x = samples[i] ** 2 * tried
        with np.errstate(over="ignore"):
            spent = values[i] * tried**2 if cost == "quadratic" else np.expm1(values[i] * tried)
        assert (6.0 * x / (x + others) - spent).max() <= u + 1e-12
