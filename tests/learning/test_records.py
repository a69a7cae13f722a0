"""Records are checked once; scaling comes from public rows only."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedbourse.errors import InvalidData
from fedbourse.learning.records import Records, Scaling

FEATURES = np.array([[0.5, 1.0], [2.0, 1.0], [-1.0, 1.0]])
tables = arrays(np.float64, (7, 3), elements=st.floats(-1e6, 1e6, width=32))


def test_taking_rows_keeps_features_and_labels_together() -> None:
    taken = Records(FEATURES, np.array([0.0, 1.0, 2.0]), 3).take(np.array([2, 0]))
    assert len(taken) == 2
    assert taken.features[:, 0].tolist() == [-1.0, 0.5]
    assert taken.labels.tolist() == [2.0, 0.0]
    assert taken.classes == 3


def test_any_layout_becomes_contiguous_float64() -> None:
    features = np.asfortranarray(FEATURES.astype(np.float32))
    records = Records(features, np.array([0, 1, 1]), 2)
    assert records.features.flags.c_contiguous
    assert records.features.dtype == records.labels.dtype == np.float64


def test_norms_are_those_of_the_rows() -> None:
    records = Records(FEATURES, np.array([0, 1, 1]), 2)
    assert (records.norms**2).tolist() == pytest.approx([1.25, 5.0, 2.0])


@pytest.mark.parametrize(
    ("features", "labels", "classes", "words"),
    [
        ([[0, 1], [np.nan, 1]], [0, 1], 2, "features[1, 0] must be a finite number; found nan"),
        ([[0, 1], [np.inf, 1]], [0, 1], 2, "features[1, 0] must be a finite number; found inf"),
        ([[0, 1], [0, 2]], [0, 1], 2, "features[1] must be 1"),
        ([[0, 1], [0, 1]], [0, 0.5], 2, "labels[1] must be a class number from 0 to 1; found 0.5"),
        ([[0, 1], [0, 1]], [0, 2], 2, "labels[1] must be a class number from 0 to 1; found 2.0"),
        ([[0, 1], [0, 1]], [-1, 1], 2, "labels[0] must be a class number from 0 to 1; found -1.0"),
        ([[0, 1], [0, 1]], [0, np.nan], 2, "labels[1] must be a class number"),
        ([[0, 1], [0, 1]], [0, np.nan], 0, "labels[1] must be a finite number; found nan"),
        ([[0, 1], [0, 1]], [0], 2, "one number for each of 2 records"),
        ([[0, 1], [0, 1]], [[0], [1]], 2, "one number for each of 2 records"),
        ([0, 1], [0, 1], 2, "features must be a table"),
        (np.ones((0, 2)), [], 2, "at least one record"),
        ([[0, 1], [0, 1]], [0, 0], 1, "at least 2; found 1"),
        ([[0, 1], [0, 1]], [0, 0], -1, "classes must be"),
        ([["a", "b"]], [0], 2, "features must be an array of numbers"),
        ([[1, 2], [3]], [0, 1], 2, "ragged"),
    ],
)
def test_wrong_records_are_refused_in_one_sentence(
    features: object, labels: object, classes: int, words: str
) -> None:
    with pytest.raises(InvalidData, match=re.escape(words)):
        Records(features, labels, classes)  # type: ignore[arg-type]


def test_numbers_may_be_labels_where_there_are_no_classes() -> None:
    assert Records(FEATURES, np.array([-1.5, 2.25, 1e9]), 0).labels[0] == -1.5


@given(tables)
def test_public_rows_get_mean_0_and_spread_1_or_0(raw: np.ndarray) -> None:
    scaling = Scaling.from_public(raw)
    features = scaling.apply(raw)
    assert features.shape == (7, 4)
    assert (features[:, -1] == 1).all()
    np.testing.assert_allclose(
        features[:, :-1] * scaling.scale + scaling.shift, raw, rtol=1e-9, atol=1e-9
    )
    stretched = scaling.scale != 1
    spread = features[:, :-1].std(axis=0)
    np.testing.assert_allclose(spread[stretched], 1, rtol=1e-6)


def test_a_constant_column_is_not_stretched() -> None:
    scaling = Scaling.from_public(np.array([[3.3, 1.0], [3.3, 5.0], [3.3, 3.0]]))
    assert scaling.scale[0] == 1
    assert abs(scaling.apply(np.array([[4.3, 3.0]]))[0, 0] - 1) < 1e-12


@pytest.mark.parametrize(
    ("shift", "scale", "words"),
    [
        ([0, 0], [1], "one number for each column"),
        ([0, np.nan], [1, 1], "shift[1] must be a finite number"),
        ([0, 0], [1, 0], "scale[1] must be a number above 0; found 0.0"),
        ([0, 0], [1, np.inf], "scale[1] must be a number above 0; found inf"),
    ],
)
def test_wrong_scalings_are_refused(shift: list[float], scale: list[float], words: str) -> None:
    with pytest.raises(InvalidData, match=re.escape(words)):
        Scaling(np.array(shift), np.array(scale))


def test_scaling_refuses_another_number_of_columns() -> None:
    with pytest.raises(InvalidData, match="must have 2 columns; found 3"):
        Scaling.none(2).apply(np.zeros((4, 3)))


def test_blocks_are_the_records_one_after_another(monkeypatch) -> None:
    monkeypatch.setattr("fedbourse.learning.records._block", lambda: 6)
    records = Records(np.array([[k, 1.0] for k in range(8)]), np.arange(8.0), 0)
    assert [len(block) for block in records.blocks] == [3, 3, 2]
    joined = np.concatenate([block.features for block in records.blocks])
    assert (joined == records.features).all()
    assert np.shares_memory(records.blocks[1].features, records.features)
