"""Wherever a column of numbers is taken, the name of the file that it is in is taken too."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedbourse import (
    InvalidFile,
    InvalidGame,
    Sample,
    Training,
    best_reward,
    equilibrium,
    regret,
    what_if,
)
from fedbourse.game import column_files
from fedbourse.game.columns import per_owner

TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
COLUMNS = {
    "value": [1.0, 1.5, 2.0, 2.5],
    "cap": [0.5, 1.0, 2.0, 2.0],
    "entry_cost": [0.0, 0.01, 0.01, 0.0],
    "samples": [100.0, 200.0, 100.0, 50.0],
    "budget": [0.1, 0.2, 0.3, 0.0],
    "reward": [0.5, 1.0, 2.0, 3.0],
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "owners.csv"
    pd.DataFrame(COLUMNS).to_csv(file, index=False)
    return file


def lone(table: Path, name: str) -> Path:
    """Write one column into a file of its own."""
    file = table.with_name(f"only-{name}.csv")
    pd.DataFrame({"x": COLUMNS[name]}).to_csv(file, index=False)
    return file


GIVEN = {
    "a list": lambda table, name: COLUMNS[name],
    "FILE:COLUMN": lambda table, name: f"{table}:{name}",
    "a path, the usual column": lambda table, name: table,
    "a path, the only column": lone,
    "a pandas frame": lambda table, name: pd.DataFrame({name: COLUMNS[name]}),
    "a Polars frame": lambda table, name: pl.DataFrame({name: COLUMNS[name]}),
    "a lazy frame": lambda table, name: pl.scan_csv(table).select(name),
}


def results(give) -> list[float]:
    """Everything that takes columns, as numbers."""
    values, caps, entry = give("value"), give("cap"), give("entry_cost")
    training = Training(dimension=1000, step_size=0.1, iterations=500, samples=give("samples"))
    whole = equilibrium(
        values, reward=2.0, entry_cost=entry, caps=caps, samples=give("samples"),
        pay_for="information",
    )  # fmt: skip
    offer = partial(best_reward, accuracy_value=20)
    table = what_if(values, TRAINING, rewards=give("reward"), accuracy_value=20)
    return [
        equilibrium(values, reward=2.0).total_budget,
        equilibrium(values, reward=2.0, cost="quadratic").total_budget,
        whole.total_budget,
        offer(values, training).utility,
        offer(values, TRAINING, caps=caps).utility,
        offer(Sample(values), TRAINING, owners=5, draws=3).utility,
        regret(values, give("budget"), reward=1.0, caps=caps),
        *table.accuracy["precision"],
    ]


@pytest.mark.parametrize("kind", list(GIVEN))
def test_every_way_to_give_a_column_gives_the_same_results(kind, table) -> None:
    expected = results(lambda name: COLUMNS[name])
    assert results(partial(GIVEN[kind], table)) == pytest.approx(expected, rel=1e-12)


def test_a_folder_of_tables_is_a_stream(table) -> None:
    (table.parent / "second").mkdir()
    for name in ("a.csv", "b.csv"):
        (table.parent / "second" / name).write_text("value\n1\n1.5\n")
    result = equilibrium(f"{table.parent / 'second'}:value", reward=1.0)
    assert result.who[0] == ("a.csv", 0)
    assert result.owners == 4


SEMICOLONS = {
    "with a header": "owner;value\nann;1,5\nben;2\n",
    "without one": "1,5;2\n2,5;3\n",
    "with a byte order mark": "\ufeffvalue;name\n1;ann\n",
    "tabs": "owner\tvalue\nann\t1.5\nben\t2\n",
}


@pytest.mark.parametrize("case", list(SEMICOLONS))
@pytest.mark.parametrize("whole", [True, False], ids=["as a whole", "in chunks"])
def test_a_file_of_semicolons_gets_a_hint(case, whole, tmp_path) -> None:
    file = tmp_path / "europe.csv"
    file.write_text(SEMICOLONS[case], encoding="utf-8")
    with pytest.raises(InvalidFile, match=r"europe.csv separates its columns by (semicolons|tabs)"):
        equilibrium(file if whole else tmp_path, reward=1.0)


@pytest.mark.parametrize("text", ["a;b\n1\n2\n", "note,value\nx;y,1\nu;v,2\n"])
def test_semicolons_in_cells_are_no_separators(text, tmp_path) -> None:
    file = tmp_path / "fine.csv"
    file.write_text(text)
    assert equilibrium(file, reward=1.0).count == 2


def test_a_file_that_does_not_exist_gets_a_sentence() -> None:
    with pytest.raises(InvalidFile, match="nowhere does not exist; give a file that ends in"):
        equilibrium("nowhere", reward=1.0)
    with pytest.raises(InvalidFile, match=r"gone.csv cannot be read"):
        equilibrium([1.0, 2.0], reward=1.0, caps="gone.csv")


def test_what_markets_and_audits_compute_from_never_opens_a_file(table) -> None:
    # They check columns that others sent by per_owner, which takes no path.
    with pytest.raises(InvalidGame, match="found str"):
        per_owner("replies", str(table), 4)


def test_without_files_a_path_gets_a_sentence(monkeypatch, table) -> None:
    monkeypatch.setattr(column_files, "_readers", [])
    with pytest.raises(InvalidGame, match=r"before fedbourse.files is imported"):
        equilibrium(table, reward=1.0)
    assert equilibrium(np.array([1.0, 2.0]), reward=1.0).count == 2
