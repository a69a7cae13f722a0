"""The tests accuse the honest as rarely as they say; the bound on epsilon holds."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from fedbourse.errors import InvalidNumber
from fedbourse.privacy.audit import Claim, Plan, audit_noise, epsilon_lower_bound
from fedbourse.privacy.audit.power import TAIL_MARGIN
from privacy.audit.devices import (
    SMALL,
    SMALL_ALPHA,
    SMALL_RUNS,
    SimulatedSubject,
    canary,
    failed,
    honest,
    normal,
    within,
)


@cache
def many_honest_audits():
    rng = np.random.default_rng(20)
    device = honest(canary(SMALL), lambda: rng.normal(0.0, SMALL.sigma, (2, 6)))
    return [
        audit_noise(device, SMALL, runs=SMALL_RUNS, alpha=SMALL_ALPHA, seed=rng) for _ in range(400)
    ]


def p_values(name):
    return np.array([f.p_value for a in many_honest_audits() for f in a.findings if f.name == name])


def test_the_honest_are_accused_no_more_often_than_alpha() -> None:
    audits = many_honest_audits()
    accused = sum(not audit.passed for audit in audits)
    # Bounds and discrete tests use up less than their part; most of alpha is used.
    assert within(accused, len(audits), SMALL_ALPHA / 2, SMALL_ALPHA)


@pytest.mark.parametrize("name", ["too-little-noise", "too-much-noise", "sensitivity"])
def test_p_values_of_exact_tests_are_uniform(name) -> None:
    assert stats.kstest(p_values(name), "uniform").pvalue > 1e-3


def test_p_values_of_the_shape_test_are_uniform_but_for_the_margin() -> None:
    unscaled = p_values("shape") / TAIL_MARGIN
    for level in (0.05, 0.2, 0.5):
        # 480 numbers in 4 bins take few values, so the share moves in steps.
        assert within((unscaled <= level).sum(), 400, 0.9 * level, 1.1 * level)


@pytest.mark.parametrize("name", ["reuse-runs", "reuse-updates"])
@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_p_values_of_reuse_are_those_of_the_largest_of_many(name, level) -> None:
    assert within((p_values(name) <= level).sum(), 400, 1 - math.exp(-level))


def test_p_values_of_one_pair_of_rounds_are_uniform() -> None:
    assert stats.kstest(p_values("reuse-rounds"), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", ["canaries", "epsilon", "repeats"])
def test_p_values_of_the_other_tests_are_never_too_small(name) -> None:
    above_uniform = stats.kstest(p_values(name), "uniform", alternative="greater")
    assert above_uniform.pvalue > 1e-3


def test_p_values_are_those_of_the_named_distributions() -> None:
    audit = many_honest_audits()[0]
    result = {finding.name: (finding.statistic, finding.p_value) for finding in audit.findings}
    numbers, bins = SMALL_RUNS * 12, 4
    mean_square, low = result["too-little-noise"]
    assert low == pytest.approx(stats.chi2.cdf(mean_square * numbers, numbers))
    assert result["too-much-noise"] == (mean_square, pytest.approx(1 - low))
    statistic, p_value = result["shape"]
    tail = stats.chi2.sf(statistic, bins - 1)
    assert p_value == pytest.approx(min(1.0, TAIL_MARGIN * tail))
    cosine, p_value = result["reuse-rounds"]
    assert p_value == pytest.approx(stats.beta.sf(cosine**2, 0.5, (SMALL_RUNS * 6 - 1) / 2))


def test_guesses_are_judged_by_the_binomial() -> None:
    finding = next(f for f in many_honest_audits()[0].findings if f.name == "canaries")
    chance = stats.norm.cdf(math.sqrt(SMALL.rho / 2))
    judged = stats.binomtest(int(finding.statistic), SMALL_RUNS, chance, alternative="greater")
    assert finding.p_value == pytest.approx(judged.pvalue)
    rights = [f.statistic for a in many_honest_audits() for f in a.findings if f.name == "canaries"]
    assert within(sum(rights), 400 * SMALL_RUNS, chance)


def exact_tail(bins, each, level):
    """Return the chance that Pearson's statistic reaches the chi-square's limit: counted."""
    most = math.ceil(stats.chi2.isf(level, bins - 1) * each) - 1
    widest, sums = math.isqrt(most), math.isqrt(most * bins) + 1
    chances = np.zeros((2 * sums + 1, most + 1))  # of a sum of deviations, and of their squares
    chances[sums, 0] = 1.0
    for _ in range(bins):
        after = np.zeros_like(chances)
        for move in range(-min(widest, each), widest + 1):
            low, high = max(0, move), min(len(chances), len(chances) + move)
            part = chances[low - move : high - move, : most + 1 - move**2]
            after[low:high, move**2 :] += stats.poisson.pmf(each + move, each) * part
        chances = after
    return 1.0 - chances[sums].sum() / stats.poisson.pmf(bins * each, bins * each)


@pytest.mark.parametrize("level", [1e-3, 1e-5, 1e-7])
def test_the_margin_pays_for_the_tail_of_the_shape_test(level) -> None:
    assert exact_tail(4, 100, level / TAIL_MARGIN) <= level


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_the_bound_on_epsilon_holds_and_is_tight(epsilon, delta) -> None:
    # Tell the sign with chance delta, else lie with the odds of randomised response: no
    # (epsilon, delta)-DP mechanism is easier to guess.
    chance = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    rights = np.arange(401)
    bounds = [epsilon_lower_bound(int(k), 400, delta=delta, alpha=0.05) for k in rights]
    wrong = stats.binom.pmf(rights, 400, chance)[np.array(bounds) > epsilon].sum()
    assert 0.03 < wrong <= 0.05


@pytest.mark.parametrize("delta", [1e-5, 0.1])
def test_the_bound_exceeds_the_claim_just_where_epsilon_is_rejected(delta) -> None:
    claim = Claim(rho=0.01, clip=1.0, samples=100, rounds=1, dimension=2, delta=delta)
    loud = SimulatedSubject(canary(claim), lambda sign: 40 * canary(claim)(sign), normal(claim))
    audit = audit_noise(loud, claim)
    assert "epsilon" in failed(audit)
    assert audit.epsilon_lower_bound > audit.epsilon_claimed
    plan = Plan(claim, 400, 1e-5)
    odds = math.exp(claim.epsilon)
    assert plan.guess_chance_max == pytest.approx((odds + delta) / (odds + 1))
    for right in range(200, 401):
        p_value = stats.binom.sf(right - 1, plan.runs, plan.guess_chance_max)
        bound = epsilon_lower_bound(right, plan.runs, delta=delta, alpha=plan.level)
        assert (bound > claim.epsilon) == (p_value < plan.level)


def test_no_right_guess_shows_nothing_and_all_right_stays_finite() -> None:
    assert epsilon_lower_bound(0, 400, delta=1e-5, alpha=1e-4) == 0
    assert 3 < epsilon_lower_bound(400, 400, delta=1e-5, alpha=1e-4) < 4


def test_more_right_guesses_than_runs_are_refused() -> None:
    with pytest.raises(InvalidNumber, match=r"right must be .* at most 400; found 401"):
        epsilon_lower_bound(401, 400, delta=1e-5, alpha=1e-4)
