"""Values that come in chunks, from every kind of source, give the game of all of them."""

from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fedbourse import Chunk, InvalidGame, ParticipantSketch, Stream, best_reward, equilibrium
from fedbourse.game import Training
from fedbourse.game.costs import Quadratic
from fedbourse.game.outofcore import candidates, convex_stream

VALUES = np.random.default_rng(3).uniform(1, 5, 5000)
PARTS = np.array_split(VALUES, 7)
WHOLE = equilibrium(VALUES, reward=2.0)
TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)


def parquet_folder(folder) -> ds.Dataset:
    for i, part in enumerate(PARTS):
        pq.write_table(pa.table({"value": part}), folder / f"part-{i}.parquet")
    return ds.dataset(folder)


@pytest.mark.parametrize(
    "source",
    [
        PARTS,
        tuple(PARTS),
        [pa.array(part) for part in PARTS],
        [pl.Series(part) for part in PARTS],
        iter(PARTS),
        (part.tolist() for part in PARTS),
        lambda: iter(PARTS),
        pa.table({"value": pa.chunked_array([pa.array(part) for part in PARTS])}),
        Stream(lambda: PARTS),
        Stream(lambda: (Chunk(part) for part in PARTS)),
        [*PARTS[:3], np.empty(0), *PARTS[3:]],
    ],
    ids=lambda source: type(source).__name__,
)
def test_every_kind_of_stream_is_read(source) -> None:
    if isinstance(source, Iterator):  # used up by an earlier repetition of this test
        source = iter(PARTS)
    result = equilibrium(source, reward=2.0)
    assert result.owners == len(VALUES)
    assert result.participants.tolist() == WHOLE.participants.tolist()
    assert result.budgets.tolist() == pytest.approx(WHOLE.budgets.tolist(), rel=1e-14)
    assert result.regret < 1e-20


def test_a_dataset_of_files_is_read(tmp_path) -> None:
    result = equilibrium(parquet_folder(tmp_path), reward=2.0)
    assert result.participants.tolist() == WHOLE.participants.tolist()


def test_an_empty_iterator_is_no_game() -> None:
    with pytest.raises(InvalidGame, match="at least two owners; found 0"):
        equilibrium(iter([]), reward=1.0)


def test_an_iterator_of_numbers_is_one_column() -> None:
    assert equilibrium(iter(VALUES.tolist()), reward=2.0).count == WHOLE.count


def test_owners_keep_their_source_and_row() -> None:
    stream = Stream(
        lambda: (Chunk(half, source=f"file {i}") for i, part in enumerate(PARTS)
                 for half in np.array_split(part, 2))
    )  # fmt: skip
    result = equilibrium(stream, reward=2.0)
    assert result.participants.tolist() == WHOLE.participants.tolist()
    for (name, row), position in zip(result.who, WHOLE.participants, strict=True):
        assert PARTS[int(name.split()[1])][row] == VALUES[position]


def test_names_belong_to_those_who_are_kept_though_the_first_rows_are_not() -> None:
    """More than a sample: a bound is known before the scan, and the first owners lie above it."""
    values = np.concatenate([np.full(70_000, 9.0), [1.0, 1.1, 1.2], np.full(30_000, 8.0)])
    names = np.array([f"owner {i}" for i in range(len(values))])
    result = equilibrium(iter([Chunk(values, names)]), reward=1.0)
    assert result.who == ["owner 70000", "owner 70001", "owner 70002"]


@pytest.mark.parametrize("cost", ["linear", "quadratic"])
def test_a_bad_value_is_named_by_its_row_in_any_chunk(cost: str) -> None:
    for bad, words in ((-1.0, "a finite number above 0; found -1.0"), ("x", "a number; found 'x'")):
        chunks = [[1.0, 2.0], [3.0, 4.0], [5.0, bad]]
        with pytest.raises(InvalidGame, match=rf"values\[5\] must be {words}"):
            equilibrium(iter(chunks), reward=1.0, cost=cost)


def test_owners_keep_their_names() -> None:
    names = np.array([f"owner-{i:05d}" for i in range(len(VALUES))])
    stream = [Chunk(VALUES[i : i + 900], names[i : i + 900]) for i in range(0, len(VALUES), 900)]
    for cost in ("linear", "quadratic"):
        result = equilibrium(stream, reward=2.0, cost=cost)
        here = equilibrium(VALUES, reward=2.0, cost=cost)
        assert result.who == names[here.participants].tolist()


def test_budgets_can_be_read_out_chunk_by_chunk() -> None:
    result = equilibrium(iter(PARTS), reward=2.0)
    read = np.concatenate([result.budgets_of(part) for part in PARTS])
    assert read == pytest.approx(WHOLE.dense(), rel=1e-14)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([], "at least two owners; found 0"),
        ([np.array([1.0])], "at least two owners; found 1"),
        ([np.array([1.0, 2.0]), np.array([3.0, np.nan])], r"values\[3\] must be .* found nan"),
        ([np.array([1.0, 2.0]), np.array([0.0])], r"values\[2\] must be .* found 0"),
        ([Chunk([1.0], source="a"), Chunk([1.0, -1], source="b")], r"values\[1\] of b must be"),
        ([Chunk([1.0, 2.0], ["x"])], "names must hold one for each of 2 owners"),
        ([Chunk([1.0], ["x"]), Chunk([1.0])], "either all owners have names, or none"),
        (lambda: 7, "must return an iterator of arrays; found int"),
        (pa.table({"a": [1.0], "b": [2.0]}), "must have one column; found 2: a, b"),
        ([np.array([1.0, 2.0]), np.array(["x"])], r"values\[2\] must be a number; found 'x'"),
        ([np.ones((2, 2)), np.ones((2, 2))], r"one column of numbers; found an array of shape"),
    ],
)
@pytest.mark.parametrize("cost", ["linear", "quadratic"])
def test_what_is_no_stream_of_values_is_refused(source, words, cost) -> None:
    with pytest.raises(InvalidGame, match=words):
        _ = equilibrium(source, reward=1.0, cost=cost).who


@pytest.mark.parametrize(
    "options", [{"caps": 1.0}, {"entry_cost": 0.1}, {"cost": "paper-exponential"},
                {"pay_for": "information", "samples": 10.0}],
)  # fmt: skip
def test_games_that_need_everybody_at_once_are_refused(options) -> None:
    with pytest.raises(InvalidGame, match="cannot be combined with caps"):
        equilibrium(PARTS, reward=1.0, **options)
    sketch = ParticipantSketch()
    sketch.add(VALUES)
    with pytest.raises(InvalidGame, match="a ParticipantSketch is for the plain linear cost"):
        equilibrium(sketch, reward=1.0, **options)


class OwnCost:
    """c = v (r^2 + r^3), which no closed form helps with."""

    def cost(self, values, budgets):
        return values * (budgets**2 + budgets**3)

    def marginal(self, values, budgets):
        return values * (2 * budgets + 3 * budgets**2)


class Counted:
    """A stream that counts how often it is read."""

    def __init__(self, parts) -> None:
        self.parts, self.readings = parts, 0

    def __call__(self):
        self.readings += 1
        return iter(self.parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cost", ["quadratic", "exponential", OwnCost()], ids=["quadratic", "exponential", "own"]
)
@pytest.mark.parametrize("reward", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("kept", [8, 10**6])
@pytest.mark.parametrize(
    "values",
    [
        VALUES[:3000],
        np.full(3000, 0.7),
        10 ** np.random.default_rng(1).uniform(-6, 6, 3000),
        np.array([1e-3, 1.0, 1.5, 2.0]),
        np.array([1.0, 1.0]),
        np.geomspace(1, 100, 2000),
    ],
    ids=["uniform", "equal", "wide", "one cheap", "two", "geometric"],
)
def test_convex_costs_agree_with_memory(values, cost, reward, kept, monkeypatch) -> None:
    monkeypatch.setattr(convex_stream, "TABLE_MAX", kept)
    monkeypatch.setattr(candidates, "FIRST", 16)
    if isinstance(cost, OwnCost):
        values = values[:300]
    source = Counted(np.array_split(values, 5))
    result = equilibrium(source, reward=reward, cost=cost)
    assert source.readings <= (4 if kept < 100 else 1)
    here = equilibrium(values, reward=reward, cost=cost)
    assert result.count == here.count
    assert result.total_budget == pytest.approx(here.total_budget, rel=1e-12)
    assert result.budgets_of(values) == pytest.approx(here.dense(), rel=1e-11, abs=1e-300)
    assert result.regret <= 1e-9 * reward / result.count**2
    if source.readings == 1:
        assert result.participants.tolist() == here.participants.tolist()
        assert result.payments.sum() == pytest.approx(reward, rel=1e-12)
        assert result.utilities == pytest.approx(here.utilities, rel=1e-9)
    else:
        with pytest.raises(InvalidGame, match="too many to be listed"):
            _ = result.participants


@pytest.mark.slow
@pytest.mark.parametrize("n", [2 * 10**4, 3 * 10**5])
def test_a_cutoff_that_leaves_few_bins_takes_four_readings(n: int, monkeypatch) -> None:
    values = np.random.default_rng(5).uniform(1, 1.002, n)
    monkeypatch.setattr(convex_stream, "TABLE_MAX", 500)
    source = Counted(np.array_split(values, 8))
    result = equilibrium(source, reward=1.0, cost="exponential")
    here = equilibrium(values, reward=1.0, cost="exponential")
    assert 500 < result.count == here.count < n
    assert source.readings <= 4
    assert result.total_budget == pytest.approx(here.total_budget, rel=1e-12)


def test_a_total_that_is_wrong_has_no_certificate(monkeypatch) -> None:
    share = Quadratic.share
    monkeypatch.setattr(convex_stream, "TABLE_MAX", 100)
    result = equilibrium(PARTS, reward=1.0, cost="quadratic")
    monkeypatch.setattr(Quadratic, "share", lambda *args: 1.01 * share(*args))
    with pytest.raises(Exception, match="would gain"):
        _ = result.regret


def test_bins_need_a_source_that_can_be_read_again(monkeypatch) -> None:
    assert equilibrium(iter(PARTS), reward=1.0, cost="quadratic").count == len(VALUES)
    monkeypatch.setattr(convex_stream, "TABLE_MAX", 100)
    with pytest.raises(InvalidGame, match="an iterator can be read once only"):
        equilibrium(iter(PARTS), reward=1.0, cost="quadratic")


def test_a_source_that_changes_between_readings_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(convex_stream, "TABLE_MAX", 100)
    sizes = iter([7, 6, 5])
    with pytest.raises(InvalidGame, match="the same owners at every reading"):
        equilibrium(lambda: iter(PARTS[: next(sizes)]), reward=1.0, cost="quadratic")


@pytest.mark.parametrize("model", ["paper", "population", "averaged", "precision"])
@pytest.mark.parametrize("cost", ["linear", "quadratic"])
def test_the_best_reward_of_a_stream_is_that_of_its_column(model, cost) -> None:
    source = Counted(PARTS)
    options = {"accuracy_value": 20.0, "accuracy": model, "cost": cost}
    result = best_reward(source, TRAINING, **options)
    here = best_reward(VALUES, TRAINING, **options)
    assert result.reward == pytest.approx(here.reward, rel=1e-9)
    assert result.utility == pytest.approx(here.utility, rel=1e-12)
    assert result.equilibrium.budgets == pytest.approx(here.equilibrium.budgets, rel=1e-8)
    if cost == "linear":
        assert source.readings == 1
