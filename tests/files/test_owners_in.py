"""Owners in files: the same game as in memory, and everybody is found again by file and row."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedbourse import equilibrium, owners_in
from fedbourse.files import read_ahead, tables
from files.writing import write

VALUES = np.random.default_rng(5).uniform(1, 5, 3000)


def parts(folder: Path, kind: str, values: np.ndarray = VALUES, **options: object) -> None:
    """Write values as three files, with ids."""
    for i, part in enumerate(np.array_split(values, 3)):
        ids = [f"{i}-{row}" for row in range(len(part))]
        write(folder / f"part-{i}{kind}", {"id": ids, "value": part}, **options)


KINDS = [".parquet", ".csv", ".arrow", ".feather"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_participants_as_in_memory_by_file_and_row(tmp_path, kind) -> None:
    parts(tmp_path, kind)
    known = equilibrium(VALUES, reward=9.0)
    result = equilibrium(owners_in(tmp_path), reward=9.0)
    assert result.owners == 3000
    assert result.participants.tolist() == known.participants.tolist()
    np.testing.assert_array_equal(result.budgets, known.budgets)
    where = [(f"part-{i // 1000}{kind}", i % 1000) for i in known.participants.tolist()]
    assert result.who == where
    named = equilibrium(owners_in(tmp_path, names="id"), reward=9.0)
    assert named.who == [f"{i // 1000}-{i % 1000}" for i in known.participants.tolist()]


@pytest.mark.parametrize("cost", ["quadratic", "exponential"])
def test_other_costs_read_the_files_again(tmp_path, cost) -> None:
    parts(tmp_path, ".parquet")
    known = equilibrium(VALUES, reward=9.0, cost=cost)
    result = equilibrium(owners_in(tmp_path), reward=9.0, cost=cost)
    assert result.total_budget == pytest.approx(known.total_budget, rel=1e-12)
    last = int(known.participants[-1])
    assert result.who[-1] == (f"part-{last // 1000}.parquet", last % 1000)


def test_the_order_of_files_changes_nobody(tmp_path) -> None:
    outcomes = []
    pieces = np.array_split(VALUES, 3)
    for turn, order in enumerate(itertools.permutations(range(3))):
        for place, i in enumerate(order):
            ids = [f"{i}-{row}" for row in range(1000)]
            write(tmp_path / str(turn) / f"{place}.parquet", {"id": ids, "value": pieces[i]})
        result = equilibrium(owners_in(tmp_path / str(turn), names="id"), reward=9.0)
        outcomes.append((sorted(result.who), result.total_budget))
    assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.parametrize("groups", [7, 100, 2000])
@pytest.mark.parametrize("rows", [64, 150, 1 << 20])
def test_row_groups_of_any_size_stay_in_order(tmp_path, monkeypatch, groups, rows) -> None:
    monkeypatch.setattr(tables, "ROWS", rows)
    monkeypatch.setattr(tables, "LARGE", 4 * rows)
    monkeypatch.setattr(read_ahead, "ROWS", rows)
    parts(tmp_path, ".parquet", row_group_size=groups)
    chunks = list(owners_in(tmp_path).chunks())
    np.testing.assert_array_equal(np.concatenate([chunk.values for chunk in chunks]), VALUES)
    assert max(len(chunk.values) for chunk in chunks) <= max(rows, min(groups, 4 * rows))


def test_long_batches_of_arrow_files_are_cut(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "ROWS", 64)
    parts(tmp_path, ".feather")
    sizes = {len(chunk.values) for chunk in owners_in(tmp_path).chunks()}
    assert max(sizes) == 64


def test_csv_blocks_join(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "BLOCK", 500)
    parts(tmp_path, ".csv")
    chunks = list(owners_in(tmp_path, names="id").chunks())
    assert len(chunks) > 30
    np.testing.assert_array_equal(np.concatenate([chunk.values for chunk in chunks]), VALUES)
    assert np.concatenate([chunk.names for chunk in chunks])[-1] == "2-999"


@pytest.mark.parametrize(
    "text",
    [
        "1\n1.5\n5\n",
        "value\n1\n1.5\n5",
        "\n\n value \r\n1\r\n1.5\r\n5\r\n\r\n\n",
        "\ufeffvalue\n1\n1.5\n5\n",
        '"value"\n"1"\n"1.5"\n"5"\n',
        "value\r1\r1.5\r5\r",
        "id,value\n1,1\n2,1.5\n3,5\n",
        'id,value\n"a,\nb",1\nc,1.5\nd,5\n',
    ],
)
def test_every_way_to_write_csv(tmp_path, text) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode())
    assert equilibrium(owners_in(tmp_path), reward=1).who == [("a.csv", 0), ("a.csv", 1)]


def test_whole_numbers_that_become_fractions_late_in_a_csv_file(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("value\n" + "3\n" * 400_000 + "2.5\n")
    result = equilibrium(owners_in(tmp_path / "a.csv"), reward=1.0)
    assert result.owners == 400_001


@pytest.mark.parametrize(
    "kind",
    ["int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64", "decimal"],
)
def test_numbers_of_every_type(tmp_path, kind) -> None:
    column = pa.array([1, 2, 7, 1], "int64")
    column = column.cast(pa.decimal128(21, 2) if kind == "decimal" else kind)
    write(tmp_path / "a.feather", {"value": column})
    if kind != "float16":
        write(tmp_path / "a.parquet", {"value": column})
    result = equilibrium(owners_in(tmp_path / "*"), reward=1.0)
    assert {row for _, row in result.who} == {0, 3}


def test_categories_of_numbers_and_names_of_any_type(tmp_path) -> None:
    columns = {"value": pa.array([1.0, 9.0, 1.0]).dictionary_encode(), "day": pa.array([1, 2, 3])}
    columns["day"] = columns["day"].cast("int32").cast("date32")
    write(tmp_path / "a.arrow", columns)
    result = equilibrium(owners_in(tmp_path / "a.arrow", names="day"), reward=1.0)
    assert [str(day) for day in result.who] == ["1970-01-02", "1970-01-04"]


def test_what_a_path_means(tmp_path, monkeypatch) -> None:
    pair = {"value": [1.0, 1.0]}
    for name in ("b.parquet", "a.csv", "x/c.feather", "_old/d.csv", ".e.csv", "x/y/f.PARQUET"):
        write(tmp_path / name.lower(), pair)
    os.rename(tmp_path / "x/y/f.parquet", tmp_path / "x/y/f.PARQUET")
    for hidden in ("_SUCCESS", "_notes.txt", ".gitignore", "_old/d.csv.gz"):
        (tmp_path / hidden).write_text("nothing")

    def sources(path: object) -> list[str]:
        return [chunk.source for chunk in owners_in(path).chunks()]

    everything = ["a.csv", "b.parquet", "x/c.feather", "x/y/f.PARQUET"]
    assert sources(tmp_path) == sources(str(tmp_path) + "/") == everything
    assert sources(tmp_path / "*.csv") == ["a.csv"]
    assert sources(tmp_path / "**/*.feather") == ["x/c.feather"]
    assert sources(tmp_path / "x*") == ["x/c.feather", "x/y/f.PARQUET"]
    assert sources(tmp_path / "x" / "c.feather") == ["c.feather"]
    monkeypatch.chdir(tmp_path)
    assert sources(".") == everything
    assert sources("*.csv") == ["a.csv"]
    write(tmp_path / "[1].csv", pair)
    assert sources("[1].csv") == ["[1].csv"]


def test_empty_parts_are_no_fault(tmp_path) -> None:
    write(tmp_path / "a.parquet", {"value": pa.array([], "float64")})
    write(tmp_path / "b.parquet", {"value": [1.0, 1.0]})
    (tmp_path / "c.csv").write_text("value\n")
    assert equilibrium(owners_in(tmp_path), reward=1.0).owners == 2


def test_who_stops_early_leaves_no_thread_behind(tmp_path) -> None:
    import threading

    parts(tmp_path, ".parquet", row_group_size=10)
    parts(tmp_path / "csv", ".csv")
    before = threading.active_count()
    for _ in range(5):
        chunks = owners_in(tmp_path).chunks()
        next(chunks)
        chunks.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_half_a_million_owners_in_three_files(tmp_path) -> None:
    values = np.random.default_rng(1).lognormal(0, 1, 600_000) + 1
    parts(tmp_path, ".parquet", values, row_group_size=50_000)
    known = equilibrium(values, reward=100.0)
    result = equilibrium(owners_in(tmp_path), reward=100.0)
    assert result.participants.tolist() == known.participants.tolist()
    assert result.total_budget == known.total_budget
    shutil.rmtree(tmp_path)


MEASURED = """
import resource, sys
from fedbourse import equilibrium, owners_in
import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = equilibrium(owners_in(sys.argv[1]), reward=1.0)
print(found.owners, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1 << 20, 1 << 23])
def test_memory_does_not_grow_with_the_files(tmp_path, groups) -> None:
    values = np.random.default_rng(2).uniform(1, 5, 1 << 23)
    table = pa.table({"value": values})
    pq.write_table(table, tmp_path / "0.parquet", row_group_size=groups, use_dictionary=False)
    for i in range(1, 6):
        os.link(tmp_path / "0.parquet", tmp_path / f"{i}.parquet")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    shutil.rmtree(tmp_path)
    owners, megabytes = map(int, done.stdout.split())
    assert owners == 6 << 23  # 400 MB of them
    assert megabytes < 150
