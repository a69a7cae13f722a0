"""The population any-class-mixture: levels by proof and simulation, and what it is for."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.learning.class_mixtures import MixtureSums
from fedbourse.learning.evidence import Evidence, EvidenceRule, Reference
from fedbourse.learning.models import Logistic, Softmax
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.learning.reference_gradients import ReferenceRecords

RULE = EvidenceRule(alpha=0.05, beta=0.05, k0=0.5, rounds=30, population="any-class-mixture")
LIKE = EvidenceRule(alpha=0.05, beta=0.05, k0=0.5, rounds=30)
D, CLASSES = 12, 4


def discrete_gaussian(scale: float) -> tuple[np.ndarray, np.ndarray]:
    points = np.arange(-math.ceil(12 * scale) - 1, math.ceil(12 * scale) + 2)
    chances = np.exp(-(points**2) / (2 * scale**2))
    return points, chances / chances.sum()


def step(update: np.ndarray, rows: np.ndarray, *, scale: float, k0: float) -> MixtureSums:
    shares = np.full(len(rows), 1 / len(rows))
    return MixtureSums().added(rows @ update, rows @ rows.T, shares, scale=scale, k0=k0)


def of_mixture(sums: MixtureSums, w: np.ndarray) -> float:
    return float(w @ sums.x - w @ np.array(sums.g) @ w / 2)


SIZES = st.tuples(st.floats(-3, 3), st.floats(-3, 3)).filter(lambda h: abs(h[0]) + abs(h[1]) > 0.01)


@given(scale=st.floats(0.3, 8), h=SIZES, k0=st.floats(0.05, 1), w=st.floats(0, 1))
def test_a_round_without_data_gains_nothing_in_expectation(scale, h, k0, w) -> None:
    """E e^l <= 1 for discrete noise: for each mixture, and for the mean over the fixed few."""
    points, chances = discrete_gaussian(scale)
    rows = scale * np.array(h)[:, None]
    steps = [step(np.array([y]), rows, scale=scale, k0=k0) for y in points.tolist()]
    mixture = np.array([w, 1 - w])
    assert chances @ np.exp([of_mixture(s, mixture) for s in steps]) <= 1 + 1e-9
    assert chances @ np.exp([s.likelihood for s in steps]) <= 1 + 1e-9


@given(
    scale=st.floats(0.3, 8), h=SIZES, k0=st.floats(0.05, 1), w=st.floats(0, 1), more=st.floats(0, 4)
)
def test_a_round_of_an_owner_of_any_mixture_loses_nothing_in_expectation(
    scale, h, k0, w, more
) -> None:
    """E e^-l_w* <= 1 where the gradient reaches k0 h_w*: without winsorising nothing is added."""
    points, chances = discrete_gaussian(scale)
    rows, mixture = scale * np.array(h)[:, None], np.array([w, 1 - w])
    gradient = (k0 + more) * (mixture @ rows)
    steps = [step(y + gradient, rows, scale=scale, k0=k0) for y in points.tolist()]
    assert chances @ np.exp([-of_mixture(s, mixture) for s in steps]) <= 1 + 1e-9


@given(seed=st.integers(0, 10**6), classes=st.integers(2, 6), size=st.floats(0.1, 30))
def test_the_search_finds_the_mixture_that_fits_best(seed, classes, size) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(classes, D)) * size + rng.normal(size=D)
    sums = step(rng.normal(size=D), rows, scale=1.0, k0=0.5)
    starts = [*np.eye(classes), np.full(classes, 1 / classes)]
    best = max(
        -minimize(
            lambda w: -of_mixture(sums, w),
            start,
            jac=lambda w: np.array(sums.g) @ w - sums.x,
            bounds=[(0, 1)] * classes,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            options={"ftol": 1e-12},
        ).fun
        for start in starts
    )
    room = 1e-4 * (1 + abs(best))
    assert sums.all_at_most(best + room)
    assert not sums.all_at_most(best - room)


def ever(mixture: np.ndarray | None, *, seed: int, size: float, devices: int = 300) -> list[str]:
    """Return the first dismissal, or else a show of data, of devices that hold a mixture."""
    rng = np.random.default_rng(seed)
    verdicts = []
    for _ in range(devices):
        evidence, so_far = RULE.begin(), "undecided"
        for _ in range(RULE.rounds):
            rows = size * rng.normal(size=(CLASSES, D))
            shares = np.full(CLASSES, 1 / CLASSES)
            h = shares @ rows
            gradient = 0.0 if mixture is None else RULE.k0 * (mixture @ rows)
            reference = Reference(h, h, rows, shares)
            update = gradient + rng.normal(size=D)
            evidence = evidence.added(update, scale=1.0, reference=reference, first=h)
            verdict = RULE.verdict(evidence)
            so_far = verdict if verdict != "undecided" else so_far
            if verdict == "dismissed":
                break
        verdicts.append(so_far)
    return verdicts


def test_levels_hold_although_every_round_is_looked_at() -> None:
    junk = ever(None, seed=1, size=0.15)
    assert junk.count("shown") <= RULE.alpha * len(junk) + 3
    for number, mixture in enumerate([np.eye(CLASSES)[0], np.full(CLASSES, 1 / CLASSES)]):
        honest = ever(mixture, seed=2 + number, size=0.3)
        assert honest.count("dismissed") <= RULE.beta * len(honest) + 3


def test_noise_is_dismissed_where_no_mixture_cancels() -> None:
    junk = ever(None, seed=4, size=1.0, devices=100)
    assert junk.count("dismissed") > 95


def test_a_search_among_the_classes_alone_would_dismiss_honest_owners() -> None:
    """The planted fault: an even mixture is far from every vertex."""
    rng = np.random.default_rng(5)
    evidence = RULE.begin()
    for _ in range(RULE.rounds):
        rows = rng.normal(size=(CLASSES, D))
        h = np.array([0.5, 0.5, 0.0, 0.0]) @ rows
        reference = Reference(h, h, rows, np.eye(CLASSES)[3])
        evidence = evidence.added(
            h + rng.normal(size=D), scale=0.3, reference=reference, first=rows[0]
        )
    assert evidence.mixtures is not None
    assert evidence.mixtures.likelihoods[2:].max() < RULE.dismissal_bound
    assert RULE.verdict(evidence) != "dismissed"


def clouds(count: int, *, seed: int, classes: int = 2, only: int | None = None) -> Records:
    rng = np.random.default_rng(seed)
    rare = np.where(rng.random(count) < 0.85, 0, rng.integers(classes, size=count))
    labels = rare if only is None else np.full(count, only)
    features = rng.normal(size=(count, 5)) + 2 * np.eye(classes, 5)[labels]
    return Records(np.column_stack([features, np.ones(count)]), labels.astype(float), classes)


def judged(rule: EvidenceRule, owner: Records | None, *, seed: int) -> Evidence:
    """Return the evidence of a device of 500 records, while a good model is learned."""
    rng = np.random.default_rng(seed)
    model, buyer = Logistic(6), clouds(2000, seed=100)
    records, theta, first = rule.reference_records(buyer), np.zeros(6), None
    evidence = rule.begin()
    for _ in range(rule.rounds):
        reference = records.at(model, theta, clip=1.0)
        first = reference.mean if first is None else first
        gradient = np.zeros(6)
        if owner is not None:
            whole = Federation(owner, np.array([0, len(owner)]))
            gradient = model.clipped_means(theta, whole, clip=1.0)[0]
        update = gradient + 0.05 * rng.normal(size=6)
        evidence = evidence.added(update, scale=0.05, reference=reference, first=first)
        if rule.verdict(evidence) == "dismissed":
            break
        theta = theta - reference.mean
    return evidence


def test_owners_of_one_class_count_as_data_by_this_rule_alone() -> None:
    for seed in range(5):
        one_class = clouds(500, seed=seed, only=1)
        assert RULE.verdict(judged(RULE, one_class, seed=seed)) == "shown"
        assert LIKE.verdict(judged(LIKE, one_class, seed=seed)) == "dismissed"
        assert RULE.verdict(judged(RULE, clouds(500, seed=seed), seed=seed)) == "shown"
        assert RULE.verdict(judged(RULE, None, seed=seed)) == "dismissed"


def test_evidence_comes_back_from_json_bit_for_bit() -> None:
    evidence = judged(RULE, clouds(500, seed=1), seed=1)
    again = Evidence.of(json.loads(json.dumps(evidence.document)))
    assert again == evidence
    assert RULE.verdict(again) == RULE.verdict(evidence)
    assert Evidence.of(json.loads(json.dumps(RULE.begin().document))) == RULE.begin()


@pytest.mark.parametrize(
    "wrong", [{"x": [1.0]}, {"g": [[1.0, 2.0]]}, {"shares": []}, {"x": ["a", 1.0]}]
)
def test_documents_that_hold_no_evidence_are_refused(wrong: dict[str, object]) -> None:
    document = judged(RULE, None, seed=1).document
    with pytest.raises(InvalidInput):
        Evidence.of({**document, "mixtures": {**document["mixtures"], **wrong}})


def test_the_reference_is_the_mixture_of_its_classes() -> None:
    records = clouds(301, seed=7, classes=3)
    model = Softmax(6, 3)
    theta = np.random.default_rng(8).normal(size=model.dimension)
    reference = RULE.reference(model, records, theta, clip=0.5)
    assert reference.by_class is not None
    whole = Federation(records, np.array([0, len(records)]))
    mean = model.clipped_means(theta, whole, clip=0.5)[0]
    assert reference.shares @ reference.by_class == pytest.approx(mean)
    # The first half has one record more than the second.
    assert (151 * reference.first + 150 * reference.second) / 301 == pytest.approx(mean)
    assert LIKE.reference(model, records, theta, clip=0.5).by_class is None


def test_a_class_that_the_reference_lacks_is_no_direction() -> None:
    labels = np.array([0.0, 2.0, 2.0, 0.0])
    records = Records(np.column_stack([np.arange(4.0), np.ones(4)]), labels, 3)
    reference = RULE.reference(Softmax(2, 3), records, np.zeros(6), clip=1.0)
    assert reference.by_class is not None
    assert reference.by_class.shape == (2, 6)
    assert reference.shares == pytest.approx([0.5, 0.5])


def test_references_without_classes_or_halves_are_refused() -> None:
    numbers = Records(np.ones((4, 1)), np.arange(4.0), 0)
    with pytest.raises(InvalidData, match="found numbers"):
        RULE.reference_records(numbers)
    with pytest.raises(InvalidData, match="at least 2 records; found 1"):
        ReferenceRecords.of(clouds(1, seed=1), by_class=False)


def test_a_population_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="like-reference or any-class-mixture; found 'all'"):
        EvidenceRule(alpha=0.05, beta=0.05, k0=0.5, rounds=30, population="all")
