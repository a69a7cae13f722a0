"""Honest devices pass, and each kind of wrong noise is caught by the test that looks for it."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from fedbourse.privacy.audit import FAULT_DESCRIPTIONS, Claim, audit_noise
from privacy.audit.devices import (
    CLAIM,
    FAULTS,
    SimulatedSubject,
    canary,
    failed,
    honest,
    normal,
    subject,
)


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
    device = SimulatedSubject(
        lambda sign: base + sign * claim.sensitivity / 2,
        lambda sign: np.rint((base + sign * claim.sensitivity / 2) / grid) * grid,
        lambda: np.rint(noise() / grid) * grid,
    )
    assert audit_noise(device, claim, runs=1500).passed
    reused = FAULTS["reused-noise"](device.noiseless, device.draw)
    caught = audit_noise(SimulatedSubject(device.expected, device.noiseless, reused.draw), claim)  # type: ignore[attr-defined]
    assert {"reuse-rounds", "repeats"} <= failed(caught)


CAUGHT_BY = {
    "half-sigma": {"too-little-noise", "shape", "canaries"},
    "low-sigma": {"too-little-noise", "shape"},
    "reused-noise": {"reuse-rounds", "reuse-updates", "repeats"},
    "reused-between-runs": {"reuse-runs", "reuse-updates", "repeats"},
    "double-sensitivity": {"sensitivity", "canaries"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_caught_by_the_tests_that_look_for_it(fault) -> None:
    audit = audit_noise(subject(CLAIM, fault), CLAIM)
    assert CAUGHT_BY[fault] <= failed(audit)
    assert audit.power[fault] > 0.999
    said = " ".join(audit.sentences())
    assert "NOT what it claims" in said
    assert FAULT_DESCRIPTIONS[fault] in said


@pytest.mark.parametrize("rounds", [2, 5])
def test_reuse_is_caught_where_an_update_is_one_number(rounds) -> None:
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
    assert {"reuse-updates", "repeats"} <= caught
    assert "reuse-rounds" not in caught


def test_a_single_repeated_update_is_caught() -> None:
    noise, calls, kept = normal(CLAIM), Counter(), {}

    def once():
        drawn, calls["runs"] = noise(), calls["runs"] + 1
        kept[calls["runs"]] = drawn
        if calls["runs"] == 390:
            drawn[3] = kept[17][1]
        return drawn

    assert failed(audit_noise(honest(canary(CLAIM), once), CLAIM)) == {"reuse-updates", "repeats"}


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
    deaf = SimulatedSubject(expected, lambda sign: np.zeros((4, 10)), noise)
    assert "sensitivity" in failed(audit_noise(deaf, CLAIM))


@pytest.mark.parametrize("size", [0.0, 1e300])
def test_no_noise_and_overflowing_noise_fail_without_a_warning(size) -> None:
    device = honest(canary(CLAIM), lambda: np.full((4, 10), size))
    assert not audit_noise(device, CLAIM).passed
