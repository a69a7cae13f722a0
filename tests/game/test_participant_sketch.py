"""One pass, any chunks, any order of merging: the same participants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import InvalidGame, InvalidInput, ParticipantSketch
from fedbourse.game import array_scan, array_spans, cutoff
from fedbourse.game.outofcore import chunk_scan, participant_sketch
from fedbourse.testing.oracles import exact_shares
from strategies import all_values


@pytest.fixture
def small_steps(monkeypatch):
    """Make every path of the big machinery run on arrays of a few hundred values."""
    monkeypatch.setattr(array_spans, "BLOCK", 16)
    monkeypatch.setattr(array_spans, "WORTH_A_THREAD", 64)
    monkeypatch.setattr(chunk_scan, "BLOCK", 16)
    monkeypatch.setattr(chunk_scan, "SAMPLE", 8)
    monkeypatch.setattr(participant_sketch, "SAMPLE", 8)
    monkeypatch.setattr(cutoff, "BLOCK", 16)
    monkeypatch.setattr(cutoff, "SMALL", 4)
    monkeypatch.setattr(array_scan, "BLOCK", 16)
    monkeypatch.setattr(array_scan, "SMALL", 16)
    monkeypatch.setattr(array_scan, "SUMMED_MIN", 4)
    monkeypatch.setattr(array_scan, "SAMPLE", 64)


def shapes(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        "uniform": rng.uniform(1, 5, n),
        "equal": np.full(n, 0.3),
        "nearly equal": 1 + rng.uniform(0, 1e-9, n),
        "half take part": 1 + rng.uniform(0, 4 / n, n),
        "300 orders": 10 ** rng.uniform(-150, 150, n),
        "geometric": np.geomspace(1e-150, 1e150, n),
        "two point": np.where(np.arange(n) < 2, 1.0, 2.0),
        "two point, late": np.where(np.arange(n) < n - 2, 2.0, 1.0),
        "ties": rng.integers(1, 9, n) / 10,
        "rising": np.linspace(1, 3, n),
        "falling": np.linspace(3, 1, n),
        "one cheap": np.where(np.arange(n) == n // 2, 1e-3, 1.0),
    }


def solved(values: np.ndarray) -> list[int]:
    outcome = ParticipantSketch()
    outcome.add(values)
    return outcome.participants().table().places.tolist()


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("shape", list(shapes(2)))
@pytest.mark.parametrize("n", [2, 3, 33, 500])
def test_every_shape_is_decided_as_in_exact_arithmetic(shape: str, n: int) -> None:
    values = shapes(n)[shape]
    expected = [i for i, share in enumerate(exact_shares(values.tolist())) if share > 0]
    assert solved(values) == expected


@pytest.mark.parametrize("shape", list(shapes(2)))
def test_big_arrays_agree_with_small_steps(shape: str, small_steps, monkeypatch) -> None:
    values = shapes(3000)[shape]
    stepped = solved(values)
    monkeypatch.undo()
    assert solved(values) == stepped


@given(all_values, st.data())
def test_merging_chunks_in_any_grouping_equals_the_whole(values: list[float], data) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=6)))
    parts = []
    for low, high in zip([0, *cuts], [*cuts, len(values)], strict=True):
        part = ParticipantSketch(first_position=low)
        part.add(values[low:high])
        parts.append(part)
    parts = data.draw(st.permutations(parts))
    while len(parts) > 1:  # any tree: merge two neighbours until one is left
        i = data.draw(st.integers(0, len(parts) - 2))
        parts[i].merge(parts.pop(i + 1))
    whole = ParticipantSketch()
    whole.add(values)
    merged, once = (s.result(1.0) for s in (parts[0], whole))
    assert merged.owners == once.owners == len(values)
    assert merged.participants.tolist() == once.participants.tolist()
    assert merged.dense() == pytest.approx(once.dense(), rel=1e-13, abs=0)


@pytest.mark.usefixtures("small_steps")
@examples(30)
@given(st.integers(0, 10_000), st.sampled_from(list(shapes(2))))
def test_a_stream_of_chunks_equals_the_whole(seed: int, shape: str) -> None:
    values = shapes(2000)[shape]
    np.random.default_rng(seed).shuffle(values)
    stream = ParticipantSketch()
    for chunk in np.array_split(values, 40):
        stream.add(chunk)
    assert stream.participants().table().places.tolist() == solved(values)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("shape", ["uniform", "300 orders", "two point", "rising", "falling"])
def test_a_stream_keeps_only_who_may_still_take_part(shape: str) -> None:
    stream = ParticipantSketch()
    for chunk in np.array_split(shapes(4000)[shape], 80):
        stream.add(chunk)
        assert sum(len(table.values) for table in stream._tables) <= 4 * max(
            64, stream.participants().cutoff.count
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0])
@pytest.mark.parametrize("position", [0, 1, 70_000, 299_999])
def test_a_bad_value_is_named_with_its_position(bad: float, position: int) -> None:
    values = np.random.default_rng(0).uniform(1, 5, 300_000)
    values[position] = bad
    with pytest.raises(InvalidGame) as caught:
        solved(values)
    assert str(caught.value) == (f"values[{position}] must be a finite number above 0; found {bad}")


def test_positions_go_on_from_chunk_to_chunk() -> None:
    stream = ParticipantSketch(first_position=100)
    stream.add([5.0, 1.0])
    stream.add([9.0, 1.0])
    assert stream.result(1.0).participants.tolist() == [101, 103]


def test_integers_and_single_precision_are_read_as_they_are() -> None:
    assert solved(np.array([1, 1, 2], dtype=np.int32)) == [0, 1]
    assert solved(np.arange(1, 9, dtype=np.float32)[::-1]) == [6, 7]
    assert solved(np.asfortranarray(np.ones((3, 2)))[:, 0]) == [0, 1, 2]


@pytest.mark.parametrize("owners", [0, 1])
def test_fewer_than_two_owners_are_no_game(owners: int) -> None:
    lonely = ParticipantSketch()
    lonely.add([1.0] * owners)
    with pytest.raises(InvalidGame, match=f"at least two owners; found {owners}"):
        lonely.participants()


def test_huge_values_do_not_overflow_the_search() -> None:
    values = np.full(20_000, 1e304)
    values[10_000], values[5] = 1.0, 2e304
    assert solved(values)[0] == 0


def test_owners_cannot_be_counted_twice() -> None:
    one, two = ParticipantSketch(), ParticipantSketch()
    one.add([1.0, 2.0])
    two.add([1.0, 2.0])
    with pytest.raises(InvalidGame, match="cannot be merged with itself"):
        one.merge(one)
    one.merge(two)
    with pytest.raises(InvalidGame, match="position 0 was added twice"):
        one.participants()


def test_dense_needs_positions_from_0() -> None:
    late = ParticipantSketch(first_position=10)
    late.add([1.0, 1.0, 2.0])
    with pytest.raises(InvalidGame, match="positions 0 to 2; found position 11"):
        late.result(1.0).dense()


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (-1, "first_position must be a finite number of at least 0; found -1"),
        (0.5, "first_position must be a whole number; found 0.5"),
        (2**40 - 1, "positions must lie below 2\\^40; found 1099511627776"),
    ],
)
def test_positions_that_cannot_be_held_are_refused(first, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        ParticipantSketch(first_position=first).add([1.0, 2.0])


@pytest.mark.slow
def test_thousands_of_sources_have_their_own_rows() -> None:
    whole = ParticipantSketch()
    for number in range(3_000):
        whole.add([1.0 + number], source=f"file {number}")
    assert whole.result(1.0).who == [("file 0", 0), ("file 1", 0)]
