"""The audit accuses the honest as rarely as it says, and notices faults as often as it says."""

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
from scipy import stats

from fedbourse.errors import InvalidInput, InvalidNumber
from fedbourse.privacy.audit import Claim, audit_noise, epsilon_lower_bound, runs_needed
from fedbourse.privacy.audit_faults import (
    FAULTS,
    FAULTS_IN_WORDS,
    TAIL_MARGIN,
    Plan,
    Planted,
    canary,
    honest,
    power_of,
)

CLAIM = Claim(rho=0.5, clip=1.0, samples=1000, rounds=4, dimension=10)
SMALL = Claim(rho=0.3, clip=2.0, samples=500, rounds=2, dimension=6)
SMALL_RUNS, SMALL_ALPHA = 40, 0.05


def normal(claim, seed=1):
    rng = np.random.default_rng(seed)
    return lambda: rng.normal(0.0, claim.sigma, (claim.rounds, claim.dimension))


def subject(claim, fault=None, seed=1):
    return FAULTS.get(fault, honest)(canary(claim), normal(claim, seed))


def failed(audit):
    return {finding.name for finding in audit.findings if not finding.passed}


@cache
def many_honest_audits():
    rng = np.random.default_rng(20)
    device = honest(canary(SMALL), lambda: rng.normal(0.0, SMALL.sigma, (2, 6)))
    return [
        audit_noise(device, SMALL, runs=SMALL_RUNS, alpha=SMALL_ALPHA, seed=rng) for _ in range(400)
    ]


def p_values(name):
    return np.array([f.p_value for a in many_honest_audits() for f in a.findings if f.name == name])


def within(count, times, low, high=None):
    """Say whether a count is one that a chance between ``low`` and ``high`` would give."""
    high = low if high is None else high
    return stats.binom.ppf(1e-4, times, low) <= count <= stats.binom.isf(1e-4, times, high)


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


@pytest.mark.parametrize("name", ["reuse-runs", "reuse-answers"])
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
    found = {finding.name: (finding.statistic, finding.p_value) for finding in audit.findings}
    numbers, bins = SMALL_RUNS * 12, 4
    mean_square, low = found["too-little-noise"]
    assert low == pytest.approx(stats.chi2.cdf(mean_square * numbers, numbers))
    assert found["too-much-noise"] == (mean_square, pytest.approx(1 - low))
    statistic, p_value = found["shape"]
    tail = stats.chi2.sf(statistic, bins - 1)
    assert p_value == pytest.approx(min(1.0, TAIL_MARGIN * tail))
    cosine, p_value = found["reuse-rounds"]
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


@pytest.mark.parametrize("seed", range(8))
def test_an_honest_device_passes(seed) -> None:
    audit = audit_noise(subject(CLAIM, seed=seed), CLAIM, seed=seed)
    assert audit.passed
    assert audit.epsilon_lower_bound < audit.epsilon_claimed
    assert "no sign of wrong noise" in audit.sentences()[0]


@pytest.mark.parametrize("rounds", [1, 3])
def test_an_honest_device_of_one_coordinate_passes(rounds) -> None:
    claim = Claim(rho=0.1, clip=1.0, samples=100, rounds=rounds, dimension=1)
    assert audit_noise(subject(claim), claim).passed


def test_noise_on_a_grid_passes() -> None:
    claim = Claim(rho=0.5, clip=1.0, samples=1000, rounds=3, dimension=1)
    grid, noise = claim.sensitivity * 2.0**-31, normal(claim)
    base = np.array([[1 / 3], [1 / 5], [1 / 7]])  # not on the grid
    device = Planted(
        lambda sign: base + sign * claim.sensitivity / 2,
        lambda sign: np.rint((base + sign * claim.sensitivity / 2) / grid) * grid,
        lambda: np.rint(noise() / grid) * grid,
    )
    assert audit_noise(device, claim, runs=1500).passed
    reused = FAULTS["reused-noise"](device.noiseless, device.draw)
    caught = audit_noise(Planted(device.expected, device.noiseless, reused.draw), claim)
    assert {"reuse-rounds", "repeats"} <= failed(caught)


CAUGHT_BY = {
    "half-sigma": {"too-little-noise", "shape", "canaries"},
    "low-sigma": {"too-little-noise", "shape"},
    "reused-noise": {"reuse-rounds", "reuse-answers", "repeats"},
    "reused-between-runs": {"reuse-runs", "reuse-answers", "repeats"},
    "double-sensitivity": {"sensitivity", "canaries"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_caught_by_the_tests_that_look_for_it(fault) -> None:
    audit = audit_noise(subject(CLAIM, fault), CLAIM)
    assert CAUGHT_BY[fault] <= failed(audit)
    assert audit.power[fault] > 0.999
    said = " ".join(audit.sentences())
    assert "NOT what it claims" in said
    assert FAULTS_IN_WORDS[fault] in said


@pytest.mark.parametrize("rounds", [2, 5])
def test_reuse_is_caught_where_an_answer_is_one_number(rounds) -> None:
    claim = Claim(rho=0.1, clip=1.0, samples=100, rounds=rounds, dimension=1)
    assert {"reuse-rounds", "repeats"} <= failed(audit_noise(subject(claim, "reused-noise"), claim))
    between = audit_noise(subject(claim, "reused-between-runs"), claim)
    assert {"shape", "repeats"} <= failed(between)


def test_noise_that_another_run_used_in_another_round_is_caught() -> None:
    noise, last = normal(CLAIM), [np.zeros((4, 10))]

    def moved_on():
        last[0] = np.vstack([noise()[:1], last[0][:-1]])
        return last[0]

    caught = failed(audit_noise(honest(canary(CLAIM), moved_on), CLAIM))
    assert {"reuse-answers", "repeats"} <= caught
    assert "reuse-rounds" not in caught


def test_a_single_repeated_answer_is_caught() -> None:
    noise, calls, kept = normal(CLAIM), Counter(), {}

    def once():
        drawn, calls["runs"] = noise(), calls["runs"] + 1
        kept[calls["runs"]] = drawn
        if calls["runs"] == 390:
            drawn[3] = kept[17][1]
        return drawn

    assert failed(audit_noise(honest(canary(CLAIM), once), CLAIM)) == {"reuse-answers", "repeats"}


def test_noise_that_cancels_over_rounds_is_caught() -> None:
    noise = normal(CLAIM)

    def cancelling():
        drawn = noise()
        drawn[1] = 0.8 * drawn[1] - 0.6 * drawn[0]
        return drawn

    assert "reuse-rounds" in failed(audit_noise(honest(canary(CLAIM), cancelling), CLAIM))


@pytest.mark.parametrize("law", ["laplace", "uniform", "truncated"])
def test_noise_of_the_right_scale_and_the_wrong_shape_is_caught(law) -> None:
    rng, shape = np.random.default_rng(3), (CLAIM.rounds, CLAIM.dimension)
    draws = {
        "laplace": lambda: rng.laplace(0.0, math.sqrt(0.5), shape),
        "uniform": lambda: rng.uniform(-math.sqrt(3), math.sqrt(3), shape),
        "truncated": lambda: stats.truncnorm.rvs(-2, 2, size=shape, random_state=rng) / 0.8796,
    }
    device = honest(canary(CLAIM), lambda: CLAIM.sigma * draws[law]())
    assert failed(audit_noise(device, CLAIM, runs=600)) == {"shape"}


def test_too_much_noise_and_a_record_that_does_not_count_are_caught() -> None:
    noise, expected = normal(CLAIM), canary(CLAIM)
    loud = honest(expected, lambda: 1.1 * noise())
    assert "too-much-noise" in failed(audit_noise(loud, CLAIM))
    deaf = Planted(expected, lambda sign: np.zeros((4, 10)), noise)
    assert "sensitivity" in failed(audit_noise(deaf, CLAIM))


@pytest.mark.parametrize("size", [0.0, 1e300])
def test_no_noise_and_overflowing_noise_fail_without_a_warning(size) -> None:
    device = honest(canary(CLAIM), lambda: np.full((4, 10), size))
    assert not audit_noise(device, CLAIM).passed


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
    tests = len(many_honest_audits()[0].findings)
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
    loud = Planted(canary(claim), lambda sign: 40 * canary(claim)(sign), normal(claim))
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


def test_progress_is_told_and_a_seed_repeats_the_signs() -> None:
    told, signs = [], []

    def expected(sign):
        signs.append(sign)
        return canary(CLAIM)(sign)

    for seed in (5, np.random.default_rng(5)):
        audit_noise(
            honest(expected, normal(CLAIM)), CLAIM, runs=20, seed=seed, progress=told.append
        )
    assert told == 2 * list(range(1, 21))
    assert signs[: len(signs) // 2] == signs[len(signs) // 2 :]
    assert set(signs[2:22]) == {1, -1}  # the first two asked for the expected answers


def test_long_runs_are_compared_in_part() -> None:
    claim = Claim(rho=0.5, clip=1.0, samples=100, rounds=600, dimension=2)
    for runs in (10, 400, 10**6):
        kept_runs, kept_rounds, _ = Plan(claim, runs, 1e-5).kept
        assert kept_runs * kept_rounds <= 4000
        assert kept_rounds >= 2
    assert audit_noise(subject(claim), claim, runs=30).passed
    assert "reuse-rounds" in failed(audit_noise(subject(claim, "reused-noise"), claim, runs=10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 9}, "runs must be .* at least 10; found 9"),
        ({"runs": 10.5}, "runs must be a whole number"),
        ({"alpha": 1e-7}, "alpha must be a finite number of at least 1e-06; found 1e-07"),
        ({"alpha": 0.5}, "alpha must be a number below 0.5; found 0.5"),
        ({"alpha": math.nan}, "alpha must be"),
        ({"seed": -1}, "seed must be .* at least 0; found -1"),
    ],
)
def test_bad_options_are_refused(options, message) -> None:
    with pytest.raises(InvalidNumber, match=message):
        audit_noise(subject(CLAIM), CLAIM, **options)


@pytest.mark.parametrize(
    "wrong",
    [
        *[{"rho": 0}, {"clip": math.inf}, {"samples": 0.5}, {"rounds": 0}],
        *[{"dimension": -1}, {"delta": 0}, {"delta": 1}],
    ],
)
def test_bad_claims_are_refused(wrong) -> None:
    good = {"rho": 0.5, "clip": 1.0, "samples": 10, "rounds": 2, "dimension": 3}
    with pytest.raises(InvalidNumber, match=f"{next(iter(wrong))} must be"):
        Claim(**(good | wrong))


def test_bad_subjects_are_refused() -> None:
    fine, noise = canary(CLAIM), normal(CLAIM)
    wrong = [
        (lambda sign: fine(sign)[:3], fine, r"shape \(4, 10\); found \(3, 10\)"),
        (fine, lambda sign: np.full((4, 10), math.nan), "finite"),
        (lambda sign: [[1.0], [1.0, 2.0]], fine, "must be an array of numbers; found "),
        (lambda sign: 2 * fine(sign), fine, "must move each expected answer by .* found 0.004"),
        (lambda sign: 0.99 * fine(sign), fine, "must move each expected answer"),
        (lambda sign: fine(sign) + 7, fine, "norm must be at most the clip, 1; found 22"),
    ]
    for expected, noiseless, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            audit_noise(Planted(expected, noiseless, noise), CLAIM)


def test_too_few_numbers_and_too_coarse_a_grid_are_refused() -> None:
    one = Claim(rho=0.1, clip=1.0, samples=100, rounds=1, dimension=1)
    with pytest.raises(InvalidNumber, match="at least 400; found 399: ask for more runs"):
        audit_noise(subject(one), one, runs=399)
    coarse = Claim(rho=1e14, clip=1.0, samples=100, rounds=1, dimension=1)
    with pytest.raises(InvalidInput, match="steps of the answers' grid"):
        audit_noise(subject(coarse), coarse)


def test_power_that_no_number_of_runs_gives_is_refused() -> None:
    for test, fault in [("canaries", "reused-noise"), ("shape", "nonsense")]:
        with pytest.raises(InvalidInput, match=f"no number of runs lets {test} notice"):
            runs_needed(CLAIM, test=test, fault=fault)
    with pytest.raises(InvalidInput, match="test must be one of too-little-noise"):
        runs_needed(CLAIM, test="nonsense", fault="half-sigma")
