"""More owners than are kept one by one: memory stays bounded, decisions stay exact."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse import InvalidGame, Support, equilibrium
from fedbourse.game import chunk_walk, crowd, support
from game.test_stream import Counted
from oracles import exact_shares

KEPT = 12


@pytest.fixture
def few_kept(monkeypatch):
    """Let a support keep a dozen owners, and cells be so wide that they must be split."""
    monkeypatch.setattr(support, "KEPT", KEPT)
    monkeypatch.setattr(support, "SAMPLE", 2)
    monkeypatch.setattr(chunk_walk, "SAMPLE", 2)
    monkeypatch.setattr(crowd, "CELL", 50)


def shape(kind: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return {
        "equal": lambda: np.full(n, 0.3),
        "nearly equal": lambda: 1 + rng.uniform(0, 0.1 / n, n),
        "half": lambda: 1 + rng.uniform(0, 4 / n, n),
        "half, last digits": lambda: 1 + rng.integers(0, 2**20, n) * 2.0**-52,
        "ties": lambda: rng.integers(1, 9, n) / 10,
        "two point": lambda: np.where(np.arange(n) < 2, 1.0, 2.0),
        "one cheap": lambda: np.where(np.arange(n) == n // 2, 1e-9, 1.0),
        "crowd that leaves": lambda: np.append(np.full(n, 2.0), [1.0, 1.1, 1.2]),
        "across a power of two": lambda: rng.uniform(2 - 2 / n, 2 + 2 / n, n),
    }[kind]()


KINDS = ["equal", "nearly equal", "half", "half, last digits", "ties", "two point", "one cheap",
         "crowd that leaves", "across a power of two"]  # fmt: skip


@pytest.mark.usefixtures("few_kept")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [1, 3, 40])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_stream_is_decided_as_in_exact_arithmetic(kind: str, chunks: int, seed: int) -> None:
    values = shape(kind, 300, seed)
    source = Counted(np.array_split(values, chunks))
    found = equilibrium(source, reward=1.0)
    expected = [i for i, share in enumerate(exact_shares(values.tolist())) if share > 0]
    assert found.count == len(expected)
    budgets = found.budgets_of(values)
    assert np.flatnonzero(budgets).tolist() == expected
    assert budgets == pytest.approx(equilibrium(values, reward=1.0).dense(), rel=1e-12)
    assert source.readings <= 4  # one, and one for each twenty of the fifty open bits
    assert found.regret <= 1e-9 / found.count**2


@pytest.mark.usefixtures("few_kept")
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 99), st.data())
def test_any_tree_of_merges_gives_the_same_participants(kind: str, seed: int, data) -> None:
    values = shape(kind, 120, seed)
    expected = [i for i, share in enumerate(exact_shares(values.tolist())) if share > 0]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=6)))
    parts = []
    for low, high in zip([0, *cuts], [*cuts, len(values)], strict=True):
        part = Support()
        part.add(values[low:high], source=f"from {low} to {high} number {len(parts)}")
        parts.append(pickle.loads(pickle.dumps(part)))
    parts = data.draw(st.permutations(parts))
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 2))
        parts[i].merge(parts.pop(i + 1))
    (whole,) = parts
    found = whole.result(1.0)
    assert found.owners == len(values)
    assert found.count == np.count_nonzero(found.budgets_of(values))
    differ = set(np.flatnonzero(found.budgets_of(values)).tolist()) ^ set(expected)
    if whole.in_question() is None:
        assert not differ
    # Of the fifty bits that this test leaves open in a cell, twenty are counted.
    assert values[list(differ)] == pytest.approx(found.threshold, rel=2.0**-21)
    assert whole.result(2.0).count == found.count  # asking changes nothing


@pytest.mark.usefixtures("few_kept")
def test_what_is_kept_stays_bounded(monkeypatch) -> None:
    for kind in KINDS:
        stream = Support()
        for chunk in np.array_split(shape(kind, 4000, 5), 400):
            stream.add(chunk)
            assert sum(len(kept.values) for kept in stream._kept) <= 3 * KEPT + len(chunk)
            assert len(stream._crowds) <= 8


@pytest.mark.usefixtures("few_kept")
def test_names_are_given_up_only_where_there_are_too_many() -> None:
    values = np.append(np.full(300, 2.0), [1.0, 1.0])
    everybody = equilibrium([values[:-2], values[-2:]], reward=1.0)
    assert everybody.participants.tolist() == [300, 301]  # the crowd has left
    crowded = equilibrium([values[:150], values[150:-2]], reward=1.0)
    assert crowded.count == 300
    with pytest.raises(InvalidGame, match=r"too many to be listed: ask budgets_of\(values\)"):
        _ = crowded.participants


@pytest.mark.usefixtures("few_kept")
def test_a_promise_to_read_again_must_be_kept() -> None:
    part, whole = Support(read_again=True), Support()
    for chunk in np.array_split(shape("half", 300, 0), 9):
        part.add(chunk)
    whole.merge(part)
    for each in (part, whole):
        with pytest.raises(InvalidGame, match=r"some of \d+ owners .* which read_again promised"):
            each.result(1.0)


@pytest.mark.parametrize("width", [7e-7, 1e-6, 3e-6])
def test_a_crowd_that_cannot_be_read_again_is_cut_to_the_twelfth_digit(width: float) -> None:
    """Three million nearly equal owners: more than are kept, and the threshold among them."""
    values = 1 + np.random.default_rng(1).uniform(0, width, 3_000_000)
    exact = equilibrium(values, reward=1.0)
    parts = [Support(first_position=start) for start in range(0, len(values), 500_000)]
    for start, part in zip(range(0, len(values), 500_000), parts, strict=True):
        part.add(values[start : start + 500_000])
    while len(parts) > 1:
        parts[-2].merge(parts.pop())
    for found in (parts[0].result(1.0), equilibrium(iter(np.array_split(values, 7)), reward=1.0)):
        assert found.threshold == pytest.approx(exact.threshold, rel=1e-12)
        differ = (found.budgets_of(values) > 0) != (exact.budgets_of(values) > 0)
        assert values[differ] == pytest.approx(exact.threshold, rel=1e-12)
        assert abs(found.count - exact.count) <= np.count_nonzero(differ)
        # A budget is what a value lies below the threshold, which is known to 1e-12.
        error = np.abs(found.budgets_of(values) - exact.budgets_of(values)).max()
        assert error <= 1e-12 * exact.total_budget


@pytest.mark.usefixtures("few_kept")
def test_a_source_that_lost_owners_meanwhile_is_refused() -> None:
    parts = np.array_split(shape("half", 300, 0), 9)
    readings = iter([parts, parts[:4]])
    with pytest.raises(InvalidGame, match="the same owners at every reading"):
        equilibrium(lambda: iter(next(readings)), reward=1.0)


def test_a_crowd_counts_in_whole_numbers() -> None:
    values = 1 + np.random.default_rng(0).uniform(0, 2.0**-21, 100_000)
    cell = crowd.empty_crowd(int(crowd.cell_of(values[:1])[0]))
    one = cell.joined_by(values)
    two = cell.joined_by(values[:777]).merged(cell.joined_by(values[777:]))
    assert one == two
    assert one.contains(values).all()
    assert not one.contains(np.array([1 - 2.0**-53, 1 + 2.0**-20])).any()
    from fractions import Fraction

    assert one.total == sum(map(Fraction, values.tolist()))
