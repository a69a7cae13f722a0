"""What an audit asks of its subject and of its reader, and audits of recorded noise."""

import math

import numpy as np
import pytest

from fedbourse.errors import InvalidInput, InvalidNumber
from fedbourse.privacy.audit import NOISE_FAULTS, Claim, Plan, audit_noise, audit_residuals
from fedbourse.privacy.audit.findings import NOISE_TESTS
from privacy.audit.devices import CLAIM, SimulatedSubject, canary, failed, honest, normal, subject


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
    assert set(signs[2:22]) == {1, -1}  # the first two asked for the expected updates


def test_long_runs_are_compared_in_part() -> None:
    claim = Claim(rho=0.5, clip=1.0, samples=100, rounds=600, dimension=2)
    for runs in (10, 400, 10**6):
        kept_runs, kept_rounds, _ = Plan(claim, runs, 1e-5).sample_shape
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
        (lambda sign: 2 * fine(sign), fine, "must move each expected update by .* found 0.004"),
        (lambda sign: 0.99 * fine(sign), fine, "must move each expected update"),
        (lambda sign: fine(sign) + 7, fine, "norm must be at most the clip, 1; found 22"),
    ]
    for expected, noiseless, message in wrong:
        with pytest.raises(InvalidInput, match=message):
            audit_noise(SimulatedSubject(expected, noiseless, noise), CLAIM)


def test_too_few_numbers_and_too_coarse_a_grid_are_refused() -> None:
    one = Claim(rho=0.1, clip=1.0, samples=100, rounds=1, dimension=1)
    with pytest.raises(InvalidNumber, match="at least 400; found 399: ask for more runs"):
        audit_noise(subject(one), one, runs=399)
    coarse = Claim(rho=1e14, clip=1.0, samples=100, rounds=1, dimension=1)
    with pytest.raises(InvalidInput, match="steps of the updates' grid"):
        audit_noise(subject(coarse), coarse)


def recorded(claim, runs, fault=None):
    draw = NOISE_FAULTS[fault](normal(claim)) if fault else normal(claim)
    return np.stack([draw() for _ in range(runs)])


def test_recorded_noise_gets_the_findings_of_the_same_noise_live() -> None:
    residuals = recorded(CLAIM, 100)
    of_record = audit_residuals(residuals, CLAIM)
    draws = iter(residuals)
    live = audit_noise(honest(canary(CLAIM), lambda: next(draws)), CLAIM, runs=100)
    assert [f.name for f in of_record.findings] == list(NOISE_TESTS)
    for one, other in zip(of_record.findings, live.findings, strict=False):
        assert one.p_value == pytest.approx(other.p_value, rel=1e-6)
        assert one.threshold == pytest.approx(1e-4 / 7)
    assert of_record.passed
    assert of_record.epsilon_lower_bound is None
    assert not [line for line in of_record.sentences() if "epsilon" in line]


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("half-sigma", "too-little-noise"),
        ("low-sigma", "too-little-noise"),
        ("reused-noise", "reuse-rounds"),
        ("reused-between-runs", "reuse-runs"),
    ],
)
def test_faults_in_recorded_noise_are_caught(fault, test) -> None:
    audit = audit_residuals(recorded(CLAIM, 100, fault), CLAIM)
    assert test in failed(audit)
    assert audit.power[fault] > 0.99
    assert "double-sensitivity" not in audit.power


def test_a_single_recorded_run_can_be_audited() -> None:
    claim = Claim(rho=0.5, clip=1.0, samples=1000, rounds=50, dimension=10)
    honest_run = audit_residuals(recorded(claim, 1), claim)
    assert honest_run.passed
    assert "reused-between-runs" not in honest_run.power
    assert "reuse-rounds" in failed(audit_residuals(recorded(claim, 1, "reused-noise"), claim))


@pytest.mark.parametrize(
    ("residuals", "message"),
    [
        (np.zeros((4, 10)), r"shape \(runs, rounds, dimension\); found \(4, 10\)"),
        (np.zeros((0, 4, 10)), r"found \(0, 4, 10\)"),
        (np.zeros((20, 4, 9)), r"shape \(4, 10\); found \(4, 9\)"),
        (np.full((20, 4, 10), np.nan), "finite"),
        (np.zeros((9, 4, 10)), "at least 400; found 360"),
    ],
)
def test_bad_records_of_noise_are_refused(residuals, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        audit_residuals(residuals, CLAIM)
