"""An owner's data becomes the m records that a card asks about, always the same ones."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent.malicious_market import CARD
from fedbourse.agent import FileData
from fedbourse.agent.data import records_for
from fedbourse.bootstrap.demo import layout_of
from fedbourse.errors import FedbourseError, InvalidData, InvalidFile
from fedbourse.learning.data import load
from fedbourse.learning.records import Records
from fedbourse.wire.card import TaskCard

SECRET = b"a secret of the device"
ROWS = 40
X = np.linspace(-1, 1, ROWS)[:, None]
Y = (X[:, 0] > 0).astype(float)
LAYOUT = {
    "columns": [{"name": "height", "shift": 10.0, "scale": 2.0}],
    "label": "kind",
    "classes": ["cat", "dog"],
}
LAID_OUT = TaskCard.of({**CARD.document, "layout": LAYOUT})


def made(found, *, card=CARD, secret=SECRET) -> Records:
    return records_for(card, lambda _: found, secret=secret)


def test_the_subset_is_fixed_and_of_the_cards_size() -> None:
    first, again = made((X, Y)), made((X, Y))
    assert len(first) == CARD.samples
    assert (first.features == again.features).all()
    other = made((X, Y), secret=b"another device's")
    assert (first.features != other.features).any()
    assert len(np.unique(first.features[:, 0])) == CARD.samples  # nobody is taken twice


READY = np.column_stack([X, np.ones(ROWS)])


@pytest.mark.parametrize(
    "found",
    [
        (X, Y),
        (X.tolist(), Y.tolist()),
        (X.astype(np.float32).astype(float), Y.astype(int)),
        (READY, Y),
        (X, Y.astype(bool)),
        Records(READY, Y, 2),
        [(row, label) for row, label in zip(X, Y, strict=True)],
        iter([(row.tolist(), int(label)) for row, label in zip(X, Y, strict=True)]),
        ((row, label) for row, label in zip(X, Y, strict=True)),
    ],
    ids=["arrays", "lists", "whole labels", "with the constant", "booleans", "records", "pairs",
         "iterator", "generator"],
)  # fmt: skip
def test_every_form_gives_the_same_records(found) -> None:
    records, due = made(found), made((X, Y))
    assert records.features == pytest.approx(due.features, abs=1e-7)
    assert (records.labels == due.labels).all()
    assert (records.features[:, -1] == 1).all()


def wrong(**changed):
    table = X.copy()
    labels = Y.copy()
    if "cell" in changed:
        table[3, 0] = changed["cell"]
    if "label" in changed:
        labels[3] = changed["label"]
    return table, labels


WRONG = {
    "too few": (X[:19], Y[:19]),
    "none": (X[:0], Y[:0]),
    "NaN": wrong(cell=np.nan),
    "infinite": wrong(cell=np.inf),
    "a label too many": (X, Y[:-1]),
    "a class that is not there": wrong(label=2),
    "half a class": wrong(label=0.5),
    "a label NaN": wrong(label=np.nan),
    "too many columns": (np.hstack([X, X, X]), Y),
    "no columns": (X[:, :0], Y),
    "one column flat": (X[:, 0], Y),
    "ragged rows": ([[1.0]] * 20 + [[1.0, 2.0]] * 20, Y),
    "ragged labels": (X, [[1]] * 20 + [[1, 2]] * 20),
    "texts": ([["a"]] * ROWS, Y),
    "objects": (np.array([[object()]] * ROWS), Y),
    "labels of two columns": (X, np.column_stack([Y, Y])),
    "names without a layout": (X, ["cat"] * ROWS),
    "labels none": (X, [None] * ROWS),
    "complex numbers": (X.astype(complex), Y),
    "nothing": None,
    "a number": 7,
    "a text": "records.csv",
    "a path": Path("records.csv"),
    "triples": [(1, 2, 3)] * ROWS,
    "an empty iterator": iter(()),
    "dictionaries": [{"x": 1}] * ROWS,
    "lists for labels": (X, [["cat"]] * ROWS),
    "bytes for labels": (X, [b"cat"] * ROWS),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_data_gets_a_sentence(name: str) -> None:
    with pytest.raises(InvalidData):
        made(WRONG[name])


@pytest.mark.parametrize("labels", [["cat"] * 39, [["cat"]] * 40, [None] * 40, [7] * 39 + ["cat"]])
def test_wrong_labels_of_a_layout_get_a_sentence(labels) -> None:
    with pytest.raises(InvalidData):
        made((X, np.array(labels, dtype=object)), card=LAID_OUT)


def test_an_endless_iterator_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.agent.data._RECORDS_MAX", 1000)
    with pytest.raises(InvalidData, match="at most 1000 records"):
        made(zip(itertools.cycle([[1.0]]), itertools.cycle([0]), strict=False))


# Files.


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "own.csv"
    rows = [f"{i},name {i},{8 + i / 10},{'dog' if i % 2 else 'cat'}" for i in range(ROWS)]
    file.write_text("\n".join(["id,who,height,kind", *rows]) + "\n")
    return file


def test_a_layout_finds_columns_by_their_names_among_others(table: Path) -> None:
    records = records_for(LAID_OUT, FileData(str(table)), secret=SECRET)
    heights = np.round(records.features[:, 0] * 2 + 10, 6)
    numbers = np.rint((heights - 8) * 10)
    assert set(numbers) <= set(range(ROWS))
    assert (records.labels == numbers % 2).all()


def test_labels_may_stand_in_another_column_of_the_file(table: Path) -> None:
    table.write_text(table.read_text().replace("kind", "species", 1))
    records = records_for(LAID_OUT, FileData(f"{table}:species"), secret=SECRET)
    assert set(records.labels) == {0.0, 1.0}


def test_an_npz_file_has_its_columns_in_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", X=X * 2 + 10, y=Y)
    records = records_for(LAID_OUT, FileData(str(tmp_path / "own.npz")), secret=SECRET)
    assert records.features == pytest.approx(made((X, Y)).features)


def test_an_unknown_class_is_named(table: Path) -> None:
    table.write_text(table.read_text().replace("dog", "fox"))
    with pytest.raises(InvalidData, match="'fox'; the card has cat, dog"):
        records_for(LAID_OUT, FileData(str(table)), secret=SECRET)


def test_names_of_classes_may_be_numbers(tmp_path: Path) -> None:
    file = tmp_path / "things.csv"
    rows = [f"{i},{i % 7},{3 if i % 2 else 7}" for i in range(200)]
    file.write_text("\n".join(["height,weight,kind", *rows]))
    source = load(f"{file}:kind", buyer_records=20)
    assert layout_of(source).classes == ("3", "7")
    card = replace(LAID_OUT, layout=replace(LAID_OUT.layout, classes=("3", "7")))
    records = records_for(card, FileData(str(file)), secret=SECRET)
    assert set(records.labels.tolist()) == {0.0, 1.0}
    odd = records.features[:, 0] * card.layout.columns[0].scale + card.layout.columns[0].shift
    assert ((np.rint(odd) % 2 == 1) == (records.labels == 0.0)).all()


DAMAGED = {
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_text(""),
    "cut in a row": lambda file: file.write_text(file.read_text()[:-9]),
    "no column": lambda file: file.write_text(file.read_text().replace("height", "width", 1)),
    "no label": lambda file: file.write_text(file.read_text().replace("kind", "sort", 1)),
    "an empty cell": lambda file: file.write_text(file.read_text().replace("8.3", "", 1)),
    "a cell of text": lambda file: file.write_text(file.read_text().replace("8.3", "tall", 1)),
    "a cell NaN": lambda file: file.write_text(file.read_text().replace("8.3", "nan", 1)),
    "UTF-16": lambda file: file.write_bytes(file.read_text().encode("utf-16")),
    "Latin-1": lambda file: file.write_bytes(file.read_text().replace("name", "n\xe4me")
                                             .encode("latin-1")),
    "zeros": lambda file: file.write_bytes(bytes(500)),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "rows of other lengths": lambda file: file.write_text(file.read_text() + "1,2\n"),
    "only its head": lambda file: file.write_text("id,who,height,kind\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_gets_a_sentence(name: str, table: Path) -> None:
    DAMAGED[name](table)
    with pytest.raises(FedbourseError, match=r"own\.csv"):
        records_for(LAID_OUT, FileData(str(table)), secret=SECRET)


@pytest.mark.parametrize("kind", [".parquet", ".npz", ".txt", ""])
def test_a_file_of_another_kind_gets_a_sentence(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"own{kind}"
    file.write_bytes(b"PAR1 and then nothing of the sort")
    with pytest.raises(InvalidFile):
        records_for(LAID_OUT, FileData(str(file)), secret=SECRET)
