"""A device uses at most m records, chosen in secret; one record moves at most one of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.learning import device_records
from fedbourse.learning.device_records import DeviceRecords

SECRET = b"a secret of the device"
Numbers = list[int]
numbers = st.lists(st.integers(0, 5), max_size=30)


def chosen(values: Numbers, *, samples: int = 8, secret: bytes = SECRET) -> DeviceRecords:
    column = np.array(values, dtype=float)
    features = np.column_stack([column, np.ones(len(values))])
    return DeviceRecords.choose(features, column % 2, classes=2, samples=samples, secret=secret)


def counts(own: DeviceRecords) -> np.ndarray:
    """How often each of the six possible records was chosen."""
    used = own.records.features[own.fits, 0].astype(int)
    assert (own.records.labels[own.fits] == used % 2).all()
    return np.bincount(used, minlength=6)


@given(values=numbers, row=st.integers(0, 29), new=st.integers(0, 5), samples=st.integers(1, 12))
def test_one_record_more_less_or_exchanged_exchanges_at_most_one(
    values: Numbers, row: int, new: int, samples: int
) -> None:
    row = min(row, len(values))
    before = counts(chosen(values, samples=samples))
    assert before.sum() == min(len(values), samples)
    added = [*values[:row], new, *values[row:]]
    removed = values[:row] + values[row + 1 :]
    exchanged = [*values[:row], new, *values[row + 1 :]]
    for other in (added, removed, exchanged):
        change = counts(chosen(other, samples=samples)) - before
        assert (change > 0).sum() <= 1
        assert (change < 0).sum() <= 1
        assert np.abs(change).max() <= 1


@given(values=numbers, seed=st.integers(0, 100))
def test_the_order_of_records_does_not_matter(values: Numbers, seed: int) -> None:
    shuffled = np.random.default_rng(seed).permutation(values).astype(int).tolist()
    here, there = chosen(values), chosen(shuffled)
    assert (here.records.features == there.records.features).all()
    assert (here.fits == there.fits).all()


def test_every_record_is_as_likely_as_any_other_also_among_equal_ones() -> None:
    values = [0] * 30 + [1] * 10
    used = sum(counts(chosen(values, secret=bytes([i, j]))) for i in range(20) for j in range(20))
    assert used[:2].sum() == 400 * 8  # type: ignore[index]
    # 2400 expected; the standard deviation of such a count is 23.
    assert abs(used[0] - 2400) < 5 * 23  # type: ignore[index]


def test_the_secret_decides() -> None:
    values = list(range(6)) * 50
    features = [chosen(values, secret=bytes([i])).records.features.tobytes() for i in range(20)]
    assert len(set(features)) > 15
    assert chosen(values).records.features.tobytes() == chosen(values).records.features.tobytes()


@pytest.mark.parametrize("count", [0, 3, 8, 20])
def test_there_are_m_rows_in_any_case(count: int) -> None:
    own = chosen([1] * count)
    assert len(own.records) == 8
    assert len(own) == min(count, 8)
    assert own.federation.divisors.tolist() == [8]


def test_a_huge_m_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_records, "_FILLED_MAX", 100)
    own = chosen([1, 2, 3], samples=10**9)
    assert (len(own.records), len(own)) == (3, 3)
    assert own.federation.divisors.tolist() == [10**9]
    assert len(chosen([], samples=10**9).records) == 1
