"""More owners than are held individually: memory stays bounded, decisions stay exact."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import InvalidGame, ParticipantSketch, Stream, equilibrium
from fedbourse.game.outofcore import bins, chunk_scan, participant_sketch
from fedbourse.game.outofcore.refinement import Refinement
from fedbourse.game.outofcore.stream_solver import sketch_stream
from fedbourse.testing.oracles import exact_shares
from game.test_stream import Counted

TABLE_MAX = 12


@pytest.fixture
def small_sketch(monkeypatch):
    """Let a sketch hold a dozen owners, and bins be so wide that they must be refined."""
    monkeypatch.setattr(participant_sketch, "TABLE_MAX", TABLE_MAX)
    monkeypatch.setattr(participant_sketch, "SAMPLE", 2)
    monkeypatch.setattr(chunk_scan, "SAMPLE", 2)
    monkeypatch.setattr(bins, "BIN_BITS", 50)


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
        "group that leaves": lambda: np.append(np.full(n, 2.0), [1.0, 1.1, 1.2]),
        "across a power of two": lambda: rng.uniform(2 - 2 / n, 2 + 2 / n, n),
    }[kind]()


KINDS = ["equal", "nearly equal", "half", "half, last digits", "ties", "two point", "one cheap",
         "group that leaves", "across a power of two"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("small_sketch")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunks", [1, 3, 40])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_stream_is_decided_as_in_exact_arithmetic(kind: str, chunks: int, seed: int) -> None:
    values = shape(kind, 300, seed)
    source = Counted(np.array_split(values, chunks))
    outcome = equilibrium(source, reward=1.0)
    expected = [i for i, share in enumerate(exact_shares(values.tolist())) if share > 0]
    assert outcome.count == len(expected)
    budgets = outcome.budgets_of(values)
    assert np.flatnonzero(budgets).tolist() == expected
    assert budgets == pytest.approx(equilibrium(values, reward=1.0).dense(), rel=1e-12)
    assert source.readings <= 4  # one, and one for each twenty of the fifty open bits
    assert outcome.regret <= 1e-9 / outcome.count**2


@pytest.mark.usefixtures("small_sketch")
@examples(60, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 99), st.data())
def test_any_tree_of_merges_gives_the_same_participants(kind: str, seed: int, data) -> None:
    values = shape(kind, 120, seed)
    expected = [i for i, share in enumerate(exact_shares(values.tolist())) if share > 0]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=6)))
    parts = []
    for low, high in zip([0, *cuts], [*cuts, len(values)], strict=True):
        part = ParticipantSketch()
        part.add(values[low:high], source=f"from {low} to {high} number {len(parts)}")
        parts.append(pickle.loads(pickle.dumps(part)))
    parts = data.draw(st.permutations(parts))
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 2))
        parts[i].merge(parts.pop(i + 1))
    (whole,) = parts
    outcome = whole.result(1.0)
    assert outcome.owners == len(values)
    assert outcome.count == np.count_nonzero(outcome.budgets_of(values))
    differ = set(np.flatnonzero(outcome.budgets_of(values)).tolist()) ^ set(expected)
    if whole.undecided_bin() is None:
        assert not differ
    # Of the fifty bits that this test leaves open in a bin, twenty are counted.
    assert values[list(differ)] == pytest.approx(outcome.cutoff, rel=2.0**-21)
    assert whole.result(2.0).count == outcome.count  # asking changes nothing


@pytest.mark.slow
@pytest.mark.usefixtures("small_sketch")
def test_memory_stays_bounded() -> None:
    for kind in KINDS:
        stream = ParticipantSketch()
        for chunk in np.array_split(shape(kind, 4000, 5), 400):
            stream.add(chunk)
            assert sum(len(table.values) for table in stream._tables) <= 3 * TABLE_MAX + len(chunk)
            assert len(stream._bins) <= 8


@pytest.mark.usefixtures("small_sketch")
def test_names_are_dropped_only_where_there_are_too_many() -> None:
    values = np.append(np.full(300, 2.0), [1.0, 1.0])
    everybody = equilibrium([values[:-2], values[-2:]], reward=1.0)
    assert everybody.participants.tolist() == [300, 301]  # the others have left
    binned = equilibrium([values[:150], values[150:-2]], reward=1.0)
    assert binned.count == 300
    with pytest.raises(InvalidGame, match=r"too many to be listed: ask budgets_of\(values\)"):
        _ = binned.participants


@pytest.mark.usefixtures("small_sketch")
def test_a_promise_to_read_again_must_be_kept() -> None:
    part, whole = ParticipantSketch(read_again=True), ParticipantSketch()
    for chunk in np.array_split(shape("half", 300, 0), 9):
        part.add(chunk)
    whole.merge(part)
    for each in (part, whole):
        with pytest.raises(InvalidGame, match=r"some of \d+ owners .* which read_again promised"):
            each.result(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("width", [7e-7, 1e-6, 3e-6])
def test_a_bin_that_cannot_be_read_again_is_refined_to_the_twelfth_digit(width: float) -> None:
    """Three million nearly equal owners: more than are held, and the cutoff among them."""
    values = 1 + np.random.default_rng(1).uniform(0, width, 3_000_000)
    exact = equilibrium(values, reward=1.0)
    parts = [ParticipantSketch(first_position=start) for start in range(0, len(values), 500_000)]
    for start, part in zip(range(0, len(values), 500_000), parts, strict=True):
        part.add(values[start : start + 500_000])
    while len(parts) > 1:
        parts[-2].merge(parts.pop())
    for outcome in (parts[0].result(1.0), equilibrium(iter(np.array_split(values, 7)), reward=1.0)):
        assert outcome.cutoff == pytest.approx(exact.cutoff, rel=1e-12)
        differ = (outcome.budgets_of(values) > 0) != (exact.budgets_of(values) > 0)
        assert values[differ] == pytest.approx(exact.cutoff, rel=1e-12)
        assert abs(outcome.count - exact.count) <= np.count_nonzero(differ)
        # A budget is what a value lies below the cutoff, which is known to 1e-12.
        error = np.abs(outcome.budgets_of(values) - exact.budgets_of(values)).max()
        assert error <= 1e-12 * exact.total_budget


@pytest.mark.usefixtures("small_sketch")
def test_a_source_that_lost_owners_meanwhile_is_refused() -> None:
    parts = np.array_split(shape("half", 300, 0), 9)
    readings = iter([parts, parts[:4]])
    with pytest.raises(InvalidGame, match="the same owners at every reading"):
        equilibrium(lambda: iter(next(readings)), reward=1.0)


@pytest.mark.usefixtures("small_sketch")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", [True, False])
def test_the_cheapest_outsider_is_known_from_below(kind: str, again: bool) -> None:
    values = shape(kind, 300, 3)
    parts = np.array_split(values, 9)
    if again:
        whole = sketch_stream(Stream(lambda: parts))
    else:
        whole = ParticipantSketch()
        for part in parts:
            whole.add(part)
    outcome = whole.participants()
    out = values[values > outcome.cutoff.top]
    assert outcome.cutoff.count == len(values) - len(out)
    if len(out):
        assert outcome.cutoff.highest < outcome.cheapest_outsider <= out.min()
    else:
        assert outcome.cheapest_outsider == np.inf


@pytest.mark.usefixtures("small_sketch")
def test_a_part_that_was_merged_stays_as_it_was() -> None:
    values = shape("half", 300, 0)
    part, whole = ParticipantSketch(), ParticipantSketch(first_position=10**6)
    for chunk in np.array_split(values, 9):
        part.add(chunk)
    before = part.result(1.0)
    whole.add([5.0, 6.0])
    whole.merge(part)
    for chunk in np.array_split(values, 9):
        whole.add(chunk)
    after = part.result(1.0)
    assert (before.count, before.cutoff) == (after.count, after.cutoff)


def nearly_equal(low: float, owners: int, seed: int = 0) -> np.ndarray:
    """Return owners whose values differ in their last twelve bits alone."""
    digits = np.random.default_rng(seed).integers(0, 1 << 12, owners)
    return (np.float64(low).view(np.int64) // 4096 * 4096 + digits).view(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("others", "low", "group_size"),
    [
        ([1.0, 1.0], 2 - 1_200_000 * 1024 * 2.0**-52, 2_400_000),
        ([5e-7], 1.0, 2_400_000),
        ([0.5, 1.0, 1.5 + 2e-7], 1.5 - 1_200_000 * 1024 * 2.0**-52, 2_400_000),
    ],
)
def test_owners_that_no_count_tells_apart_take_part_together(others, low, group_size) -> None:
    """Without them all the cutoff would lie elsewhere, or nobody but one would be left."""
    values = np.append(nearly_equal(low, group_size), others)
    exact = equilibrium(values, reward=1.0)
    assert 2 < exact.count < len(values)
    whole = ParticipantSketch()
    for chunk in np.array_split(values, 11):
        whole.add(chunk)
    merged = ParticipantSketch(first_position=10**9)
    merged.add(values[-len(others) :])
    rest = ParticipantSketch()
    for chunk in np.array_split(values[: -len(others)], 10):
        rest.add(chunk)
    merged.merge(rest)
    for outcome in (whole.result(1.0), merged.result(1.0)):
        assert outcome.cutoff == pytest.approx(exact.cutoff, rel=1e-12)
        inside = outcome.budgets_of(values) > 0
        assert outcome.count == np.count_nonzero(inside)
        differ = inside != (exact.budgets_of(values) > 0)
        assert values[differ] == pytest.approx(exact.cutoff, rel=1e-12)
        assert outcome.budgets_of(values).sum() == pytest.approx(outcome.total_budget, rel=1e-9)


@pytest.mark.slow
def test_huge_values_in_a_bin_leave_or_are_refused() -> None:
    huge = [np.full(400_000, 1e303)] * 6
    assert equilibrium([*huge, np.ones(50_000)], reward=1.0).count == 50_000
    assert equilibrium(iter([*huge, np.ones(50_000)]), reward=1.0).count == 50_000
    with pytest.raises(InvalidGame, match="beyond what a float can hold"):
        equilibrium(huge, reward=1.0)


@pytest.mark.slow
def test_bins_that_are_out_of_the_whole_are_dropped() -> None:
    for order in (range(8), reversed(range(8))):
        whole = ParticipantSketch()
        for part in order:
            other = ParticipantSketch()
            for chunk in range(3):
                other.add(np.full(700_000, 1.0 + part), source=f"{part} {chunk}")
            assert other.binned
            whole.merge(other)
            assert len(whole._bins) == len(whole._refinements) == 1
        assert whole.result(1.0).count == 2_100_000


def test_zero_does_not_hide_in_a_bin() -> None:
    tiny = ParticipantSketch()
    for _ in range(3):
        tiny.add(np.full(700_000, 1e-315))
    assert tiny.binned
    tiny.add([1.0, 0.0])
    with pytest.raises(InvalidGame, match=r"values\[2100001\] must be a finite number above 0"):
        tiny.result(1.0)


def test_a_part_ends_with_its_last_double() -> None:
    last = np.nextafter(1 + 3 * 2.0**-40, 0)
    refinement = Refinement(bins.Bin.empty(int(bins.bin_starts(np.array([1.0]))[0])))
    refinement.add(np.full(5, last))
    (part,) = refinement.parts(lambda part: True)
    assert (part.count, part.largest) == (5, last)
    assert part.least == 1 + 2 * 2.0**-40


def test_a_bin_counts_in_whole_numbers() -> None:
    values = 1 + np.random.default_rng(0).uniform(0, 2.0**-21, 100_000)
    empty = bins.Bin.empty(int(bins.bin_starts(values[:1])[0]))
    one = empty.with_values(values)
    two = empty.with_values(values[:777]).merged(empty.with_values(values[777:]))
    assert one == two
    assert one.contains(values).all()
    assert not one.contains(np.array([1 - 2.0**-53, 1 + 2.0**-20])).any()
    from fractions import Fraction

    assert one.total == sum(map(Fraction, values.tolist()))
