"""Evidence: levels at any stopping time, by proof of the supermartingale and by simulation."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedbourse.errors import InvalidInput
from fedbourse.learning.evidence import Evidence, EvidenceRule, Reference, Sums, block_starts
from fedbourse.learning.reference_gradients import without
from fedbourse.privacy.noise import ExactNoise, scale_bound
from fedbourse.privacy.terms import Terms

RULE = EvidenceRule(alpha=0.05, beta=0.05, k0=0.5, rounds=40)
D, DEVICES = 12, 3000


def discrete_gaussian(scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers that integer noise may be, and how likely each is."""
    points = np.arange(-math.ceil(12 * scale) - 1, math.ceil(12 * scale) + 2)
    chances = np.exp(-(points**2) / (2 * scale**2))
    return points, chances / chances.sum()


@given(scale=st.floats(0.3, 8), slope=st.floats(-3, 3))
def test_discrete_noise_is_sub_gaussian_as_the_proof_needs(scale: float, slope: float) -> None:
    points, chances = discrete_gaussian(scale)
    slope /= scale
    assert chances @ np.exp(slope * points) <= math.exp((slope * scale) ** 2 / 2) * (1 + 1e-9)


@given(scale=st.floats(0.3, 8), size=st.floats(0.01, 3), k0=st.floats(0.05, 1))
def test_a_round_without_data_gains_nothing_in_expectation(
    scale: float, size: float, k0: float
) -> None:
    """E e^(step of l) <= 1 for winsorised discrete noise: what makes e^l a supermartingale."""
    points, chances = discrete_gaussian(scale)
    size *= scale
    steps = [Sums().added(y * size, size**2, scale=scale, k=k0).likelihood for y in points.tolist()]
    assert chances @ np.exp(steps) <= 1 + 1e-9


ROUND_COST = RULE.dismissal_bound - replace(RULE, rounds=RULE.rounds + 1).dismissal_bound
"""What one more round lowers the bound of dismissal by: what winsorising may cost."""


def round_factor(*, scale: float, size: float, k0: float, share: float) -> float:
    """Return E e^(-k term + k a - k^2 w / 2) of the proof, for a gradient that is a share of h."""
    points, chances = discrete_gaussian(scale)
    size *= scale
    steps = [
        Sums().added((y + share * size) * size, size**2, scale=scale, k=k0).likelihood
        for y in points.tolist()
    ]
    w = (size / scale) ** 2
    return float(chances @ np.exp(-np.array(steps) + k0 * min(share, 1) * w - k0**2 * w))


@given(
    scale=st.floats(0.3, 8), size=st.floats(0.01, 3), k0=st.floats(0.05, 1), share=st.floats(-1, 4)
)
@example(scale=8, size=0.6, k0=0.5, share=1)
def test_a_round_with_data_loses_no_more_than_the_bound_allows(
    scale: float, size: float, k0: float, share: float
) -> None:
    factor = round_factor(scale=scale, size=size, k0=k0, share=share)
    assert factor <= math.exp(ROUND_COST) + 1e-9


@pytest.mark.faults
def test_a_bound_that_forgets_what_winsorising_costs_would_be_too_high() -> None:
    assert round_factor(scale=8, size=0.6, k0=0.5, share=1) > 1 + 1e-5


@pytest.mark.parametrize("rounds", [1, 40, 1000])
def test_both_tests_together_dismiss_with_probability_beta_at_most(rounds: int) -> None:
    """Ville's inequality for each of two tests, at the bound and with the factor of each round."""
    rule = replace(RULE, rounds=rounds)
    assert 2 * math.exp(rule.dismissal_bound + rounds * ROUND_COST) <= rule.beta * (1 + 1e-9)


@settings(max_examples=30)
@given(
    rho=st.floats(1e-4, 1e3),
    rounds=st.integers(1, 1000),
    dimension=st.integers(1, 10**5),
    samples=st.integers(1, 10**6),
    clip=st.floats(1e-3, 1e3),
)
def test_no_device_draws_with_a_larger_scale_than_evidence_counts_on(
    rho: float, rounds: int, dimension: int, samples: int, clip: float
) -> None:
    """The terms' own sigma would be too small: the grid of a device makes its noise larger."""
    terms = Terms("task", rho, rounds, dimension, samples, clip)
    (scale,) = ExactNoise([terms]).scales
    assert terms.scale < scale <= scale_bound(terms)


def simulated(gradient_share: float, *, seed: int, budget: float = 1.0) -> dict[str, float]:
    """Return how often devices that send a share of the reference's gradient are ever decided."""
    rng = np.random.default_rng(seed)
    references = rng.normal(size=(RULE.rounds, D))
    plain_x, w = np.zeros(DEVICES), 0.0
    ever = {"shown": np.zeros(DEVICES, bool), "dismissed": np.zeros(DEVICES, bool)}
    for h in references * budget:
        square = float(h @ h)
        products = gradient_share * square + math.sqrt(square) * rng.normal(size=DEVICES)
        plain_x += np.minimum(products, square + 3 * math.sqrt(square))
        w += square
        likelihoods = RULE.k0 * plain_x - RULE.k0**2 * w / 2
        ever["shown"] |= likelihoods >= RULE.show_bound
        ever["dismissed"] |= likelihoods <= RULE.dismissal_bound
    return {name: float(each.mean()) for name, each in ever.items()}


def test_levels_hold_although_every_round_is_looked_at() -> None:
    junk, honest = simulated(0.0, seed=1, budget=0.3), simulated(RULE.k0, seed=2, budget=0.3)
    assert junk["shown"] <= RULE.alpha
    assert honest["dismissed"] <= RULE.beta


def test_power_is_there_where_the_budget_can_be_judged() -> None:
    budget = math.sqrt(RULE.least_variance / (RULE.rounds * D))
    junk, honest = simulated(0.0, seed=3, budget=budget), simulated(1.0, seed=4, budget=budget)
    assert junk["dismissed"] > 0.94
    assert honest["shown"] > 0.94


def test_a_fixed_level_on_the_score_would_not_hold() -> None:
    """The planted fault: deciding on z at 1.645 each round lets four times as many through."""
    rng = np.random.default_rng(5)
    steps = rng.normal(size=(DEVICES, RULE.rounds)).cumsum(axis=1)
    scores = steps / np.sqrt(np.arange(1, RULE.rounds + 1))
    assert (scores > 1.645).any(axis=1).mean() > 3 * 0.05


def run(vectors: np.ndarray, references: np.ndarray, scale: float) -> Evidence:
    evidence = RULE.begin()
    for y, h in zip(vectors, references, strict=True):
        evidence = evidence.added(y, scale=scale, reference=Reference(h, h), first=references[0])
    return evidence


def federation(*, honest: list[float], junk: list[float], seed: int) -> list[Evidence]:
    """Return the evidence of devices at the end, by their W a round: honest ones, then junk."""
    rng = np.random.default_rng(seed)
    devices = []
    for variance, mean in [*((w, w) for w in honest), *((w, 0.0) for w in junk)]:
        evidence = RULE.begin()
        for _ in range(RULE.rounds):
            product = mean + math.sqrt(variance) * rng.standard_normal()
            sums = evidence.plain.added(product, variance, scale=1.0, k=RULE.k0)
            evidence = replace(evidence, plain=sums, rest=sums)
            if RULE.verdict(evidence) == "dismissed":
                break
        devices.append(evidence)
    return devices


def test_evidence_stands_against_a_device_that_holds_most_of_the_budget() -> None:
    """Small honest devices need not show data by themselves: together they do."""
    for seed in range(50):
        devices = federation(honest=[0.3] * 10, junk=[30.0], seed=seed)
        assert RULE.verdict(devices[-1]) == "dismissed"
        assert RULE.stands(devices), seed


def test_a_reference_that_fits_nobody_dismisses_nobody() -> None:
    stands = [
        RULE.stands(federation(honest=[], junk=budgets, seed=seed))
        for budgets in ([5.0] * 10, [0.02] * 10, [5.0] * 4 + [0.02] * 6, [0.3] * 10)
        for seed in range(200)
    ]
    assert np.mean(stands) <= RULE.alpha


def test_a_majority_of_devices_without_data_makes_evidence_void() -> None:
    assert not RULE.stands(federation(honest=[5.0] * 4, junk=[5.0] * 6, seed=1))
    assert RULE.stands(federation(honest=[5.0] * 6, junk=[5.0] * 4, seed=1))


def test_constant_labels_pass_the_first_test_and_fail_the_second() -> None:
    rng = np.random.default_rng(6)
    first = np.eye(D)[0] * 3
    references = np.array([first + np.eye(D)[1] * 2 * t / 10 for t in range(RULE.rounds)])
    noise = rng.normal(size=references.shape)
    public = run(noise + first, references, 1.0)  # knows the base rate and nothing else
    honest = run(noise + references, references, 1.0)
    assert public.plain.likelihood > RULE.show_bound
    assert RULE.verdict(public) == "dismissed"
    assert RULE.verdict(honest) == "shown"


def test_one_huge_update_buys_no_more_than_a_good_round() -> None:
    h = np.ones(D)
    sums = Sums().added(1e9, h @ h, scale=1.0, k=0.5)
    assert sums.x == pytest.approx(D + 3 * math.sqrt(D))


def test_echoes_of_the_model_are_noticed_and_honest_updates_are_not() -> None:
    rng = np.random.default_rng(7)
    references = rng.normal(size=(RULE.rounds, D))
    others = rng.normal(size=(RULE.rounds, D)) + references
    echo = honest = RULE.begin()
    for t in range(1, RULE.rounds):
        both = Reference(references[t], references[t])
        before = {"reference": both, "first": references[0], "others": others[t - 1]}
        noise = rng.normal(size=D)
        echo = echo.added(others[t - 1] + noise, scale=1.0, **before)
        honest = honest.added(references[t] + noise, scale=1.0, **before)
    assert RULE.is_echo(echo)
    assert not RULE.is_echo(honest)


def test_what_the_halves_of_the_reference_disagree_on_decides_nothing() -> None:
    rng = np.random.default_rng(9)
    first, second = rng.normal(size=(2, D))
    second = without(second, first)
    evidence = RULE.begin().added(
        1e6 * first, scale=1.0, reference=Reference(first, second), first=first + second
    )
    assert Reference(first, second).reliability == 0
    assert evidence.plain.likelihood == 0
    assert Reference(first, first).reliability == pytest.approx(1)


def test_a_direction_is_taken_out_whole() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(2, D))
    assert abs(without(a, b) @ b) < 1e-12
    assert not without(2 * b, b).any()
    assert (without(a, np.zeros(D)) == a).all()


def test_the_least_budget_is_the_one_whose_variance_can_be_judged() -> None:
    squares, samples, clip = 0.7, 1000, 1.0
    rho = RULE.min_budget(squares=squares, samples=samples, clip=clip)
    sigma = clip / samples * math.sqrt(2 * RULE.rounds / rho)
    assert squares / sigma**2 == pytest.approx(RULE.least_variance)


@pytest.mark.parametrize(
    "wrong", [{"alpha": 0}, {"beta": 0.9}, {"k0": 0}, {"k0": 1.5}, {"rounds": 0}, {"alpha": "x"}]
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        EvidenceRule(**({"alpha": 0.01, "beta": 0.01, "k0": 0.5, "rounds": 10} | wrong))


@pytest.mark.parametrize(("rounds", "blocks"), [(50, 1), (50, 4), (7, 7), (10, 3)])
def test_blocks_share_both_levels_and_are_as_long_as_the_longest(rounds: int, blocks: int) -> None:
    rule = replace(RULE, rounds=rounds).for_blocks(blocks)
    lengths = np.diff([*block_starts(rounds, blocks), rounds])
    assert rule.rounds == lengths.max() <= lengths.min() + 1
    assert rule.alpha * blocks == pytest.approx(RULE.alpha)
    assert rule.beta * blocks == pytest.approx(RULE.beta)


def test_more_blocks_than_rounds_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"blocks must be .*40"):
        RULE.for_blocks(41)


def test_evidence_comes_back_from_json_bit_for_bit() -> None:
    rng = np.random.default_rng(10)
    evidence = run(rng.normal(size=(5, D)), rng.normal(size=(5, D)), 0.7)
    assert Evidence.of(json.loads(json.dumps(evidence.document))) == evidence
    with pytest.raises(InvalidInput, match="evidence must hold k0"):
        Evidence.of({"k0": 0.5})
