"""Tests notice faults as often as they say, and the runs that they ask for suffice."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from fedbourse.errors import InvalidInput
from fedbourse.privacy.audit import Claim, Plan, audit_noise, power_of, runs_needed
from fedbourse.privacy.audit.findings import CANARY_TESTS, NOISE_TESTS
from fedbourse.privacy.audit.power import TAIL_MARGIN
from privacy.audit.devices import (
    CLAIM,
    FAULTS,
    SMALL,
    SMALL_ALPHA,
    SMALL_RUNS,
    canary,
    failed,
    subject,
    within,
)


@pytest.mark.parametrize(
    ("fault", "rho"),
    [*((fault, 0.3) for fault in FAULTS), ("half-sigma", 2.0), ("double-sensitivity", 0.1)],
)
def test_stated_power_is_how_often_each_test_notices(fault, rho) -> None:
    claim = Claim(rho=rho, clip=2.0, samples=500, rounds=2, dimension=6)
    rng, times = np.random.default_rng(7), 150
    caught, stated = Counter(), {}
    for _ in range(times):
        device = FAULTS[fault](canary(claim), lambda: rng.normal(0.0, claim.sigma, (2, 6)))
        audit = audit_noise(device, claim, runs=SMALL_RUNS, alpha=SMALL_ALPHA, seed=rng)
        caught.update(failed(audit))
        stated = {f.name: f.power[fault] for f in audit.findings if fault in f.power}
    for name, power in stated.items():
        assert within(caught[name], times, power), name


def test_some_of_the_powers_compared_are_neither_0_nor_1() -> None:
    plan = Plan(SMALL, SMALL_RUNS, SMALL_ALPHA / 10)
    powers = [power_of("too-little-noise", plan)["low-sigma"]]
    powers += [power_of(name, plan)["double-sensitivity"] for name in ("sensitivity", "canaries")]
    assert all(0.05 < power < 0.95 for power in powers)


@pytest.mark.parametrize("runs", [60, 100])
def test_the_power_of_the_shape_test_is_nearly_that_of_large_samples(runs) -> None:
    plan = Plan(SMALL, runs, 0.005)
    chances = np.diff(stats.norm.cdf(plan.edges / 0.9), prepend=0.0, append=1.0)
    counts = np.random.default_rng(4).multinomial(plan.numbers, chances, size=20_000)
    each = plan.numbers / plan.bins
    limit = stats.chi2.isf(plan.level / TAIL_MARGIN, plan.bins - 1)
    caught = (((counts - each) ** 2).sum(axis=1) / each >= limit).mean()
    power = power_of("shape", plan)["low-sigma"]
    assert 0.1 < power < 0.9
    assert caught == pytest.approx(power, abs=0.03)


def test_power_against_a_fault_without_effect_is_the_level() -> None:
    nothing = Claim(rho=1e-20, clip=1.0, samples=100, rounds=2, dimension=2)
    power = power_of("sensitivity", Plan(nothing, 400, 1e-5))["double-sensitivity"]
    assert power == pytest.approx(1e-5)


@pytest.mark.parametrize("dimension", [1, 2])
def test_repeats_are_expected_as_often_as_close_pairs_of_normals(dimension) -> None:
    claim = Claim(rho=0.5, clip=1.0, samples=1000, rounds=2, dimension=dimension)
    # Two steps apart, and one more for rounding.
    close = math.erf(3 * claim.grid / (2 * claim.sigma)) ** dimension
    expected = Plan(claim, 400, 1e-5).repeats_expected
    assert 1 < expected / (800 * 799 / 2 * close) < 3


def test_372_canaries_catch_half_the_noise() -> None:
    tests = len(NOISE_TESTS) + len(CANARY_TESTS)
    needed = runs_needed(
        CLAIM, test="canaries", fault="half-sigma", power=0.999, alpha=1e-4 * tests
    )
    assert needed == 372


def test_runs_needed_give_the_power_and_one_fewer_does_not() -> None:
    claim = Claim(rho=0.1, clip=1.0, samples=100, rounds=2, dimension=2)
    for test, fault in [("too-little-noise", "low-sigma"), ("canaries", "half-sigma")]:
        needed = runs_needed(claim, test=test, fault=fault)
        powers = [power_of(test, Plan(claim, needed - i, 1e-5))[fault] for i in (0, 1)]
        assert powers[0] >= 0.99 > powers[1]


def test_runs_needed_are_never_fewer_than_an_audit_accepts() -> None:
    one = Claim(rho=0.1, clip=1.0, samples=100, rounds=1, dimension=1)
    assert runs_needed(one, test="too-little-noise", fault="half-sigma") == 400
    assert runs_needed(CLAIM, test="too-little-noise", fault="half-sigma") == 10


def test_scale_needs_as_many_numbers_as_the_normal_approximation_says() -> None:
    one = Claim(rho=0.1, clip=1.0, samples=100, rounds=1, dimension=1)
    needed = runs_needed(one, test="too-little-noise", fault="low-sigma")
    # The logarithm of a sample variance is nearly normal, of variance 2 / N.
    quantiles = stats.norm.isf(1e-5) + stats.norm.isf(0.01)
    assert needed == pytest.approx(2 * (quantiles / math.log(0.81)) ** 2, rel=0.05)


def test_power_that_no_number_of_runs_gives_is_refused() -> None:
    for test, fault in [("canaries", "reused-noise"), ("shape", "nonsense")]:
        with pytest.raises(InvalidInput, match=f"no number of runs lets {test} notice"):
            runs_needed(CLAIM, test=test, fault=fault)
    with pytest.raises(InvalidInput, match="test must be one of too-little-noise"):
        runs_needed(CLAIM, test="nonsense", fault="half-sigma")


@pytest.mark.parametrize("test", ["canaries", "epsilon"])
def test_a_sign_that_is_always_guessed_gives_guesses_no_power(test) -> None:
    open_book = Claim(rho=1000.0, clip=1.0, samples=100, rounds=1, dimension=40)
    assert set(power_of(test, Plan(open_book, 10, 1e-5)).values()) == {0.0}


def test_an_audit_asks_for_the_runs_of_its_best_test() -> None:
    claim = Claim(rho=0.1, clip=1.0, samples=100, rounds=2, dimension=2)
    audit = audit_noise(subject(claim), claim, runs=100)
    singly = {
        test: runs_needed(claim, test=test, fault="double-sensitivity")
        for test in ("sensitivity", "canaries")
    }
    assert audit.runs_needed("double-sensitivity") == min(singly.values()) == singly["sensitivity"]
    assert audit.runs_needed("nonsense") is None
