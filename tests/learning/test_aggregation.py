"""The weighted mean of a round: what weights are, and that blocks change nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.learning.aggregation import AGGREGATIONS, aggregate


@given(scales=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6))
def test_weights_sum_to_one_over_the_updates_received(scales) -> None:
    for rule in AGGREGATIONS:
        updates = np.ones((len(scales), 3))
        assert np.allclose(aggregate([updates], np.array(scales), rule, dimension=3).mean, 1.0)


def test_precision_weights_are_inverse_variances() -> None:
    updates, scales = np.array([[1.0], [5.0]]), np.array([1.0, 2.0])
    mean = aggregate([updates], scales, "precision", dimension=1).mean
    assert mean[0] == pytest.approx((1 * 1 + 5 / 4) / (1 + 1 / 4))
    assert aggregate([updates], scales, "equal", dimension=1).mean[0] == 3.0


@pytest.mark.parametrize("rule", AGGREGATIONS)
def test_updates_may_come_all_at_once_or_one_by_one(rule) -> None:
    rng = np.random.default_rng(3)
    updates, scales = rng.normal(size=(7, 5)), rng.uniform(0.5, 2.0, size=7)
    whole = aggregate([updates], scales, rule, dimension=5)
    single = aggregate((update[None] for update in updates), scales, rule, dimension=5)
    assert single.mean == pytest.approx(whole.mean, rel=1e-13)
    rest = aggregate([updates[1:]], scales[1:], rule, dimension=5)
    others = whole.others(0, updates[0])
    assert others / others[0] == pytest.approx(rest.total / rest.total[0])


@pytest.mark.parametrize("rule", AGGREGATIONS)
def test_a_round_without_an_update_moves_nothing(rule) -> None:
    nothing = aggregate([np.empty((0, 2))], np.array([]), rule, dimension=2)
    assert nothing.mean.tolist() == [0.0, 0.0]
