"""Closed-form clipping gives what a plain loop gives, and no record moves an update beyond 2L/m."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.learning.models import clipped, model_named
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from learning.federations import extreme, federation, plain_clipped_mean, squared_norm

KINDS = [
    ("logistic", 2),
    ("least-squares", 2),
    ("least-squares", 0),
    ("softmax", 2),
    ("softmax", 4),
    ("hidden:3", 3),
]


@pytest.mark.parametrize(("name", "classes"), KINDS)
@pytest.mark.parametrize("clip", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("block", [8, 2**17])
def test_clipped_means_are_those_of_a_loop_over_records(
    name, classes, clip, block, monkeypatch
) -> None:
    monkeypatch.setattr("fedbourse.learning.records._block", lambda: block)
    owners = federation(classes=classes)
    model = model_named(name, features=4, classes=classes)
    parameters = np.random.default_rng(1).standard_normal(model.dimension)
    found = model.clipped_means(parameters, owners, clip=clip)
    for row, records in zip(found, owners.parts, strict=True):
        expected = plain_clipped_mean(name, parameters, records, clip)
        assert np.allclose(row, expected, rtol=0, atol=1e-7 * clip + 1e-7)


@pytest.mark.parametrize(("name", "classes"), KINDS)
@given(
    seed=st.integers(0, 10**6),
    clip=st.floats(1e-3, 1e3),
    size=st.tuples(st.sampled_from([1e-8, 1.0, 1e4, 1e8]), st.integers(1, 20)),
)
def test_exchanging_one_record_moves_an_update_by_at_most_its_sensitivity(
    name, classes, seed, clip, size
) -> None:
    scale, samples = size
    rng = np.random.default_rng(seed)
    owner = federation(owners=1, samples=samples, classes=classes, seed=seed, scale=scale)
    other = federation(owners=1, samples=samples, classes=classes, seed=seed + 1, scale=scale)
    features, labels = owner.records.features.copy(), owner.records.labels.copy()
    k = int(rng.integers(samples))
    features[k], labels[k] = other.records.features[k], other.records.labels[k]
    neighbour = Federation(Records(features, labels, classes), owner.offsets)
    model = model_named(name, features=4, classes=classes)
    parameters = rng.standard_normal(model.dimension)
    here, there = (model.clipped_means(parameters, f, clip=clip) for f in (owner, neighbour))
    assert np.linalg.norm(here - there) <= 2 * clip / samples * (1 + 1e-12)
    assert np.linalg.norm(here) <= clip * (1 + 1e-12)


@pytest.mark.parametrize(("name", "classes"), KINDS)
@pytest.mark.parametrize("features", [2, 9, 38])
def test_a_record_has_the_same_gradient_to_the_last_bit_wherever_it_stands(
    name, classes, features
) -> None:
    """Otherwise one record that comes or goes would change the gradients of all others."""
    rng = np.random.default_rng(features)
    rows = rng.standard_normal((131, features)) * 10.0 ** rng.integers(-6, 6, (131, features))
    rows[:, -1] = 1.0
    labels = rng.integers(classes, size=131).astype(float) if classes else rng.random(131)
    whole = Records(rows, labels, classes)
    model = model_named(name, features=features, classes=classes)
    parameters = rng.standard_normal(model.dimension)
    together = model.layers(parameters, whole)  # type: ignore[attr-defined]
    for start, stop in [(i, i + 1) for i in range(131)] + [(0, 130), (1, 131), (3, 98)]:
        part = model.layers(parameters, whole.take(np.arange(start, stop)))  # type: ignore[attr-defined]
        for here, there in zip(together, part, strict=True):
            assert (here.deltas[start:stop] == there.deltas).all()
            assert (here.inputs[start:stop] == there.inputs).all()
            assert (here.input_norms[start:stop] == there.input_norms).all()


@pytest.mark.parametrize(("name", "classes"), KINDS)
@pytest.mark.parametrize("block", [8, 2**17])
def test_rows_that_hold_no_record_contribute_nothing_and_m_stays_the_divisor(
    name, classes, block, monkeypatch
) -> None:
    monkeypatch.setattr("fedbourse.learning.records._block", lambda: block)
    records = federation(owners=2, samples=12, classes=classes).records
    fits = np.random.default_rng(3).random(24) < 0.5
    model = model_named(name, features=4, classes=classes)
    parameters = np.random.default_rng(1).standard_normal(model.dimension)
    cut = np.array([0, 12, 24])
    masked = Federation(records, cut, np.array([50, 60]), fits=fits)
    means = model.clipped_means(parameters, masked, clip=0.5)
    for mean, rows, m in zip(means, (slice(0, 12), slice(12, 24)), (50, 60), strict=True):
        own = records.take(np.arange(24)[rows][fits[rows]])
        expected = plain_clipped_mean(name, parameters, own, 0.5) * len(own) / m
        assert np.allclose(mean, expected, rtol=0, atol=1e-7)


def test_the_worst_case_of_the_sensitivity_is_reached() -> None:
    x = np.array([[1000.0, 1.0], [0.0, 1.0]])
    one, two = (Records(x, np.array([label, 0.0]), 2) for label in (0.0, 1.0))
    model = model_named("logistic", features=2, classes=2)
    updates = [
        model.clipped_means(np.zeros(2), Federation(r, np.array([0, 2])), clip=1.0)
        for r in (one, two)
    ]
    assert np.linalg.norm(updates[0] - updates[1]) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("name", "classes"), KINDS)
def test_loss_falls_along_the_gradient(name, classes) -> None:
    owner = federation(owners=1, samples=50, classes=classes)
    model = model_named(name, features=4, classes=classes)
    parameters = model.start(seed=0) + 0.1
    step = model.clipped_means(parameters, owner, clip=1e9)[0]
    before, after = (model.loss(p, owner.records) for p in (parameters, parameters - 0.01 * step))
    expected = 0.01 * float(step @ step)
    assert before - after == pytest.approx(expected, rel=0.1)


def test_huge_scores_neither_overflow_nor_warn() -> None:
    owner = federation(owners=1, samples=5, scale=1e8)
    for name in ("logistic", "softmax", "hidden:2"):
        model = model_named(name, features=4, classes=2)
        parameters = np.full(model.dimension, 1e8)
        assert np.isfinite(model.clipped_means(parameters, owner, clip=1.0)).all()
        assert np.isfinite(model.loss(parameters, owner.records))


def test_accuracy_counts_right_predictions() -> None:
    records = Records(np.array([[2.0, 1.0], [-2.0, 1.0], [3.0, 1.0]]), np.array([1.0, 0.0, 0.0]), 2)
    up = np.array([1.0, 0.0])
    assert model_named("logistic", features=2, classes=2).accuracy(up, records) == 2 / 3
    assert model_named("least-squares", features=2, classes=2).accuracy(up, records) == 2 / 3
    both = np.concatenate([-up, up])
    assert model_named("softmax", features=2, classes=2).accuracy(both, records) == 2 / 3
    numbers = Records(records.features, np.array([2.0, -2.0, 3.0]), 0)
    assert model_named("least-squares", features=2, classes=0).accuracy(up, numbers) == 1.0
    same = Records(records.features, np.ones(3), 0)
    assert model_named("least-squares", features=2, classes=0).accuracy(up, same) == 0.0


@pytest.mark.parametrize(
    ("name", "classes", "sentence"),
    [
        ("logistic", 3, "logistic takes two classes; found 3"),
        ("logistic", 0, "logistic takes two classes; found numbers"),
        ("softmax", 0, "need labels that are classes"),
        ("least-squares", 3, "least-squares takes numbers or two classes; found 3"),
    ],
)
def test_models_refuse_labels_that_they_cannot_learn(name, classes, sentence) -> None:
    with pytest.raises(InvalidData, match=sentence):
        model_named(name, features=2, classes=classes)


@pytest.mark.parametrize("name", ["", "forest", "hidden", "hidden:", "hidden:x", "softmax:3"])
def test_unknown_models_are_refused_with_the_list(name) -> None:
    with pytest.raises(InvalidInput, match="model must be one of logistic, least-squares"):
        model_named(name, features=2, classes=2)


def test_the_mean_of_one_record_is_its_clipped_gradient() -> None:
    records = Records(np.array([[3.0, 1.0]]), np.array([0.0]), 2)
    model = model_named("logistic", features=2, classes=2)
    mean = model.clipped_means(np.zeros(2), Federation(records, np.array([0, 1])), clip=100.0)
    assert mean.tolist() == [[1.5, 0.5]]


@pytest.mark.parametrize(("name", "classes"), [("softmax", 2), ("hidden:2", 2), ("logistic", 2)])
@pytest.mark.parametrize("size", [1e-200, 1e-90, 1e90, 1e150])
@pytest.mark.parametrize("clip", [1e-100, 1.0])
def test_no_record_escapes_clipping_by_vanishing_squares(name, classes, size, clip) -> None:
    model = model_named(name, features=2, classes=classes)
    for scale in (0.0, 1.0, 385.05, 700.0):
        parameters = np.zeros(model.dimension)
        parameters[:2] = [0.0, scale]
        for sign in (1.0, -1.0):
            records = Records(np.array([[sign * size, 1.0], [0.0, 1.0]]), np.array([0.0, 1.0]), 2)
            one = Federation(records, np.array([0, 2]))
            mean = model.clipped_means(parameters, one, clip=clip)
            assert np.linalg.norm(mean / clip) <= 1 + 1e-12


@pytest.mark.parametrize("name", ["least-squares", "softmax", "hidden:2", "logistic"])
def test_a_record_without_a_finite_gradient_counts_as_zero(name) -> None:
    """A refusal instead would tell the server something about that record, without noise."""
    model = model_named(name, features=2, classes=2)
    parameters = np.full(model.dimension, 1e308)
    parameters[model.dimension // 2 :] *= -1
    parts = [np.array([[1e-308, 1.0]]), np.array([[5.0, 1.0]]), np.array([[-1e300, 1.0]])]
    for part in parts:
        records = Records(np.concatenate([part, [[0.0, 1.0]]]), np.array([1.0, 0.0]), 2)
        mean = model.clipped_means(parameters, Federation(records, np.array([0, 2])), clip=1.0)
        assert np.isfinite(mean).all()
        assert np.linalg.norm(mean) <= 1 + 1e-12


@pytest.mark.parametrize(("name", "classes"), KINDS)
@examples(300)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.tuples(*[st.sampled_from([-1074, -1000, -500, 0, 500, 980, 1010, 1023])] * 3),
    clip=st.sampled_from([1e-6, 1.0, 1e6, 4.4e-18, 1e-100, 1e100]),
)
def test_no_finite_input_makes_a_clipped_gradient_longer_than_is_charged(
    name, classes, seed, sizes, clip
) -> None:
    """In exact arithmetic: what is charged is the clip times 1 + (d + 8) 2^-53."""
    rng = np.random.default_rng(seed)
    model = model_named(name, features=3, classes=classes)
    features = extreme(rng, (12, 3), sizes[0])
    features[:, -1] = 1.0
    labels = rng.integers(classes, size=12) if classes else extreme(rng, (12,), sizes[2])
    parameters = extreme(rng, (model.dimension,), sizes[1])
    if rng.random() < 0.5:  # scores for which probabilities, and so gradients, nearly vanish
        parameters[rng.random(model.dimension) < 0.7] = 0.0
        parameters[2] = rng.uniform(-745, 745)
    with np.errstate(all="ignore"):
        records = Records(features, labels.astype(float), classes)
        layers, factors = clipped(model.layers(parameters, records), clip)  # type: ignore[attr-defined]
        numbers = [(factors * layer.deltas.T).T.reshape(12, -1) for layer in layers]
    bound = (Fraction(clip) * (1 + Fraction(model.dimension + 8, 2**53))) ** 2
    for i in range(12):
        parts = zip(numbers, layers, strict=True)
        square = sum(squared_norm(n[i]) * squared_norm(layer.inputs[i]) for n, layer in parts)
        assert square <= bound


def test_a_huge_model_makes_no_clipped_gradient_twice_as_long() -> None:
    """The factors would be subnormal, and round up to twice what they should be."""
    model = model_named("least-squares", features=2, classes=0)
    huge, m = np.array([1.78e308, 0.0]), 1000
    for first in np.linspace(0.006, 0.0105, 50):
        features = np.zeros((m, 2))
        features[:, 1], features[0, 0] = 1.0, first
        records = Records(features, np.zeros(m), 0)
        mean = model.clipped_means(huge, Federation(records, np.array([0, m])), clip=4.4e-18)
        assert np.linalg.norm(mean) * m <= 4.4e-18 * (1 + 1e-12)


def test_records_of_ordinary_size_are_clipped_and_never_left_out() -> None:
    for size in (1e-6, 1.0, 1e6, 1e100):
        records = Records(np.array([[size, 1.0]]), np.zeros(1), 0)
        one = Federation(records, np.array([0, 1]))
        model = model_named("least-squares", features=2, classes=0)
        mean = model.clipped_means(np.array([0.0, 1e100]), one, clip=1e-6)
        assert np.linalg.norm(mean) == pytest.approx(1e-6)
