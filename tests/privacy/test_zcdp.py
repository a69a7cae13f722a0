"""Noise that spends a budget exactly, and what a budget means as an epsilon."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedbourse import InvalidInput, noise_scale
from fedbourse.privacy import Terms, compose, epsilon, gaussian_epsilon, rho_for, whole_owner


@given(st.floats(1e-6, 1e3), st.floats(1e-3, 1e3), st.integers(1, 10**6), st.integers(1, 10**5))
def test_all_rounds_together_spend_the_budget(rho, clip, samples, iterations) -> None:
    sigma = noise_scale(rho, clip=clip, samples=samples, iterations=iterations)
    sensitivity = 2 * clip / samples
    assert iterations * sensitivity**2 / (2 * sigma**2) == pytest.approx(rho, rel=1e-12)


def test_one_scale_for_each_budget() -> None:
    scales = noise_scale(
        np.array([0.1, 0.4]), clip=1.0, samples=np.array([1e3, 1e3]), iterations=500
    )
    assert scales == pytest.approx([0.1, 0.05])


def test_the_smallest_budgets_do_not_overflow() -> None:
    assert math.isfinite(noise_scale(5e-324, clip=1.0, samples=1, iterations=10**6))


@pytest.mark.parametrize(
    "wrong", [{"rho": 0.0}, {"rho": math.nan}, {"clip": 0}, {"samples": -1}, {"iterations": 0}]
)
def test_bad_numbers_are_refused(wrong) -> None:
    good = {"rho": 0.1, "clip": 1.0, "samples": 10, "iterations": 5}
    with pytest.raises(InvalidInput, match=f"{next(iter(wrong))} must be"):
        noise_scale(**(good | wrong))


@pytest.mark.parametrize(
    ("rho", "proved", "gaussian"),
    [(0.01, 0.546, 0.497), (0.1, 1.914, 1.760), (1.0, 7.077, 6.573), (10.0, 30.11, 28.37)],
)
def test_epsilons_are_those_of_the_accountant(rho, proved, gaussian) -> None:
    assert epsilon(rho=rho, delta=1e-5) == pytest.approx(proved, abs=3e-3 * rho**0.5)
    assert gaussian_epsilon(rho=rho, delta=1e-5) == pytest.approx(gaussian, abs=3e-3 * rho**0.5)


@given(st.floats(1e-12, 1e5), st.floats(1e-12, 0.5))
def test_the_proved_epsilon_lies_between_the_exact_one_and_the_simple_bound(rho, delta) -> None:
    proved = epsilon(rho=rho, delta=delta)
    assert proved <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-12)
    assert proved >= gaussian_epsilon(rho=rho, delta=delta) * (1 - 1e-9)


@pytest.mark.parametrize("rho", [0.003, 0.2, 4.0])
def test_the_proved_epsilon_is_the_best_over_all_orders(rho) -> None:
    """An independent look: Canonne, Kamath and Steinke's bound, minimised by SciPy."""

    def bound(order):
        log = math.log1p(-1 / order) - math.log(1e-5 * order) / (order - 1)
        return rho * order + log

    best = minimize_scalar(bound, bounds=(1.02, 1e4), method="bounded", options={"xatol": 1e-9})
    assert epsilon(rho=rho, delta=1e-5) == pytest.approx(best.fun, rel=1e-5)
    assert epsilon(rho=rho, delta=1e-5) >= best.fun * (1 - 1e-12)


def test_a_long_column_gets_proved_epsilons_near_the_best() -> None:
    rhos = np.geomspace(1e-13, 50.0, 5000)
    column = epsilon(rho=rhos, delta=1e-5)
    assert (np.diff(column) >= 0).all()
    for k in range(0, 5000, 313):
        alone = epsilon(rho=float(rhos[k]), delta=1e-5)
        assert alone * (1 - 1e-4) <= column[k] <= alone * 1.01 + 1e-6
    shuffled = np.random.default_rng(0).permutation(5000)
    assert (epsilon(rho=rhos[shuffled], delta=1e-5) == column[shuffled]).all()
    assert len(epsilon(rho=np.array([]), delta=1e-5)) == 0


def test_budgets_of_any_size_have_an_epsilon() -> None:
    assert epsilon(rho=1e-300, delta=1e-5) == 0
    assert epsilon(rho=1e300, delta=1e-5) == pytest.approx(1e300)
    ends = epsilon(rho=np.array([1e-300, 1e5, 1.01e5, 1e300]), delta=1e-5)
    assert (np.diff(ends) > 0).all()


@given(st.floats(1e-9, 1e5), st.sampled_from([1e-9, 1e-5, 0.01]))
def test_the_inverse_keeps_the_promise_and_wastes_nothing(wanted, delta) -> None:
    rho = rho_for(epsilon=wanted, delta=delta)
    assert epsilon(rho=rho, delta=delta) <= wanted
    assert epsilon(rho=rho * 1.001, delta=delta) > wanted * (1 - 1e-3)


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_budgets_add_and_the_sum_is_never_rounded_down(rhos) -> None:
    total = compose(rhos)
    exact = sum((Fraction(r) for r in rhos), Fraction(0))
    assert exact <= Fraction(total) <= exact * (1 + Fraction(1, 2**51))


def test_a_whole_owner_costs_the_square_of_its_records() -> None:
    # m records at once move an update m times as far: D -> m D, and zCDP is D^2 / (2 sigma^2).
    sigma = noise_scale(0.1, clip=1.0, samples=50, iterations=7)
    moved = 50 * (2 * 1.0 / 50)
    assert 7 * moved**2 / (2 * sigma**2) == pytest.approx(whole_owner(0.1, samples=50))


@pytest.mark.parametrize("call", [epsilon, gaussian_epsilon])
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"rho": 0.0}, "rho must be a finite number above 0; found 0"),
        ({"rho": math.nan}, "rho must be a finite number above 0; found nan"),
        ({"rho": "x"}, "rho must be a number or an array; found 'x'"),
        ({"delta": 0.0}, "delta must be a finite number above 0; found 0"),
        ({"delta": 1.0}, "delta must lie between 1e-300 and 1; found 1"),
        ({"delta": 5e-324}, "delta must lie between 1e-300 and 1; found"),
    ],
)
def test_epsilon_refuses_what_is_no_budget_or_delta(call, wrong, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        call(**({"rho": 0.1, "delta": 1e-5} | wrong))


def test_the_inverse_refuses_what_it_cannot_promise() -> None:
    with pytest.raises(InvalidInput, match=r"epsilon must lie between 0 and .* found 1e"):
        rho_for(epsilon=1e9, delta=1e-5)
    with pytest.raises(InvalidInput, match=r"epsilon must lie between 5.*e-14 and"):
        rho_for(epsilon=1e-20, delta=1e-300)
    with pytest.raises(InvalidInput, match="epsilon must be a finite number above 0"):
        rho_for(epsilon=0, delta=1e-5)
    with pytest.raises(InvalidInput, match="rho must be a finite number of at least 0"):
        compose([0.1, -0.1])


@given(st.floats(1e-9, 1e3), st.integers(1, 10**6))
def test_a_round_costs_no_more_than_its_part_of_the_budget(rho, rounds) -> None:
    terms = Terms("t", rho, rounds, 3, 10)
    assert Fraction(terms.round_rho) * rounds <= Fraction(rho)
    assert terms.round_rho == pytest.approx(rho / rounds, rel=1e-15)


def test_any_change_of_terms_changes_their_digest() -> None:
    base = {"task": "t", "rho": 0.1, "rounds": 5, "dimension": 3, "samples": 10, "clip": 1.0}
    changes = [{"task": "u"}, {"rho": 0.2}, {"rounds": 6}, {"dimension": 4}, {"samples": 11}]
    digests = {Terms(**(base | change)).digest for change in ({}, *changes, {"clip": 2.0})}
    assert len(digests) == 7
    assert Terms(**base).digest == Terms(**base).digest


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"task": ""}, "task must be a name; found ''"),
        ({"rho": 0}, "rho must be"),
        ({"rounds": 1.5}, "rounds must be a whole number; found 1.5"),
        ({"samples": 0}, "samples must be"),
        ({"clip": math.inf}, "clip must be"),
    ],
)
def test_terms_are_checked_once(wrong, sentence) -> None:
    base = {"task": "t", "rho": 0.1, "rounds": 5, "dimension": 3, "samples": 10}
    with pytest.raises(InvalidInput, match=sentence):
        Terms(**(base | wrong))
