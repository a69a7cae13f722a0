"""The audited owner's canary shows as far as claimed, and the audit is of what devices do."""

import numpy as np
import pytest

from fedbourse.errors import InvalidInput, InvalidNumber
from fedbourse.learning.canary import CanaryOwner, canary_subject
from fedbourse.learning.models import LeastSquares, clipped
from fedbourse.privacy.audit import FAULT_DESCRIPTIONS, Claim, audit_noise
from learning.federations import numeric_gradient

CLAIM = Claim(rho=0.5, clip=2.0, samples=50, rounds=4, dimension=10)
CAUGHT_BY = {
    "half-sigma": "too-little-noise",
    "low-sigma": "too-little-noise",
    "reused-noise": "reuse-rounds",
    "reused-between-runs": "reuse-runs",
    "double-sensitivity": "sensitivity",
}


def failed(audit):
    return {finding.name for finding in audit.findings if not finding.passed}


@pytest.mark.parametrize("dimension", [1, 2, 30])
@pytest.mark.parametrize("samples", [1, 2, 77])
@pytest.mark.parametrize("clip", [1e-3, 1.0, 500.0])
def test_the_means_that_training_computes_are_those_that_the_claim_implies(
    dimension, samples, clip
) -> None:
    claim = Claim(rho=0.5, clip=clip, samples=samples, rounds=3, dimension=dimension)
    owner = CanaryOwner.draw(claim, seed=4)
    for sign in (1, -1):
        means = owner.means(sign, clip=clip)
        np.testing.assert_allclose(means, owner.expected(sign), rtol=0, atol=1e-14 * clip)
        assert np.linalg.norm(means, axis=1).max() <= clip * (1 + 1e-12)


def test_gradients_by_hand_are_those_of_the_loss() -> None:
    owner = CanaryOwner.draw(CLAIM, seed=1)
    records, w = owner.records(1), owner.models[2]
    total = np.zeros(10)
    for x, y in zip(records.features[1:], records.labels[1:], strict=True):
        total += numeric_gradient("least-squares", w, x, y, 0)
    canary = CLAIM.clip * records.features[0] / np.linalg.norm(records.features[0])
    np.testing.assert_allclose(owner.expected(1)[2], (total + canary) / 50, atol=1e-8)


def test_the_clip_touches_the_canary_alone() -> None:
    owner = CanaryOwner.draw(CLAIM, seed=2)
    model = LeastSquares(10)
    for w in owner.models:
        factors = clipped(model.layers(w, owner.records(-1)), CLAIM.clip)[1]
        assert factors[0] < 1e-5
        assert (factors[1:] == 1).all()


def test_the_two_signs_are_neighbours() -> None:
    owner = CanaryOwner.draw(CLAIM, seed=0)
    plus, minus = owner.records(1), owner.records(-1)
    assert (plus.features == minus.features).all()
    assert np.flatnonzero(plus.labels != minus.labels).tolist() == [0]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["exact", "simulated"])
@pytest.mark.parametrize("seed", [0, 1])
def test_both_mechanisms_pass(mechanism, seed) -> None:
    subject = canary_subject(CLAIM, mechanism=mechanism, seed=seed)
    # Exact noise has no seed: this fails once in a million times.
    assert audit_noise(subject, CLAIM, runs=200, alpha=1e-6, seed=seed).passed


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["exact", "simulated"])
@pytest.mark.parametrize("fault", FAULT_DESCRIPTIONS)
def test_every_fault_is_caught_on_every_mechanism(mechanism, fault) -> None:
    subject = canary_subject(CLAIM, mechanism=mechanism, fault=fault)
    audit = audit_noise(subject, CLAIM, runs=400)
    assert CAUGHT_BY[fault] in failed(audit)
    assert audit.power[fault] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("records", [25, 100])
def test_a_mean_over_another_number_of_records_is_caught(records) -> None:
    class Miscounted(CanaryOwner):
        def means(self, sign, *, clip):
            return super().means(sign, clip=clip) * self.claim.samples / records

    owner = CanaryOwner.draw(CLAIM, seed=0)
    wrong = Miscounted(CLAIM, owner.features, owner.labels, owner.models)
    right = canary_subject(CLAIM, mechanism="simulated")
    audit = audit_noise(type(right)(wrong, CLAIM.clip, right.add_noise), CLAIM, runs=600)  # type: ignore[attr-defined, call-arg]
    assert "sensitivity" in failed(audit)


def test_a_clip_of_the_mean_instead_of_each_gradient_is_caught() -> None:
    class ClippedLate(CanaryOwner):
        def means(self, sign, *, clip):
            means = super().means(sign, clip=1e300)
            norms = np.linalg.norm(means, axis=1, keepdims=True)
            return means * np.minimum(1.0, clip / norms)

    owner = CanaryOwner.draw(CLAIM, seed=0)
    wrong = ClippedLate(CLAIM, owner.features, owner.labels, owner.models)
    right = canary_subject(CLAIM)
    audit = audit_noise(type(right)(wrong, CLAIM.clip, right.add_noise), CLAIM, runs=20)  # type: ignore[attr-defined, call-arg]
    assert {"too-much-noise", "sensitivity"} <= failed(audit)


def test_simulated_runs_repeat_with_the_seed_and_differ_from_each_other() -> None:
    first, again = (canary_subject(CLAIM, mechanism="simulated", seed=3) for _ in range(2))
    runs = [subject.updates(1) for subject in (first, first, again)]
    assert (runs[0] == runs[2]).all()
    assert (runs[0] != runs[1]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanism": "laplace"}, "mechanism must be one of exact, simulated; found 'laplace'"),
        ({"fault": "tired"}, "fault must be one of half-sigma, .*; found 'tired'"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_unknown_mechanisms_and_faults_are_refused(options, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        canary_subject(CLAIM, **options)


def test_an_owner_that_no_memory_holds_and_reuse_in_one_round_are_refused() -> None:
    vast = Claim(rho=0.5, clip=1.0, samples=10**6, rounds=2, dimension=10**6)
    with pytest.raises(InvalidNumber, match=r"samples x dimension must be .* at most 1e"):
        canary_subject(vast)
    once = Claim(rho=0.5, clip=1.0, samples=10, rounds=1, dimension=10)
    with pytest.raises(InvalidInput, match="reused-noise needs at least 2 rounds; found 1"):
        canary_subject(once, fault="reused-noise")
