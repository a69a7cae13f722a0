"""An owner's data becomes the records that updates come from; what does not fit is left out."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedbourse.device import FileData
from fedbourse.device.data import check_data, check_schema, device_records
from fedbourse.errors import FedbourseError, InvalidData, InvalidFile
from fedbourse.learning.data import load
from fedbourse.learning.device_records import DeviceRecords
from fedbourse.tasks.card import TaskCard
from fedbourse.tasks.layout import layout_of
from fedbourse.testing.device.malicious_market import CARD

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
ALL = TaskCard.of({**LAID_OUT.document, "samples": 100})


def made(found, *, card=CARD, secret=SECRET) -> DeviceRecords:
    return device_records(card, lambda _: found, secret=secret)


def used(own: DeviceRecords) -> list[tuple[float, float]]:
    """Return the first feature and the label of each record, in order."""
    features, labels = own.records.features[own.fits], own.records.labels[own.fits]
    assert (features[:, -1] == 1).all()
    return sorted(zip(features[:, 0].tolist(), labels.tolist(), strict=True))


def test_the_records_in_use_are_fixed_and_as_many_as_the_card_says() -> None:
    first, again = made((X, Y)), made((X, Y))
    assert len(first) == CARD.samples
    assert used(first) == used(again) != used(made((X, Y), secret=b"another device's"))
    assert len(set(used(first))) == CARD.samples  # nobody is taken twice


READY = np.column_stack([X, np.ones(ROWS)])
PAIRS = list(zip(X, Y, strict=True))


@pytest.mark.parametrize(
    "found",
    [
        (X, Y),
        (X.tolist(), Y.tolist()),
        (X, Y.tolist()),
        (X.tolist(), Y),
        (X, Y.astype(int)),
        (X.astype(object), Y.astype(object)),
        (X.astype(str), Y.astype(str)),
        (READY, Y),
        (READY.tolist(), Y),
        (X, Y.astype(bool)),
        (pd.DataFrame(X), pd.Series(Y)),
        PAIRS,
        [[row.tolist(), int(label)] for row, label in PAIRS],
        [(tuple(row), str(label)) for row, label in PAIRS],
        iter([(row.tolist(), int(label)) for row, label in PAIRS]),
        ((iter(row), label) for row, label in PAIRS),
        pa.table({"x": X[:, 0], "label": Y}),
    ],
    ids=["arrays", "lists", "array and list", "list and array", "whole labels", "objects", "texts",
         "with the constant", "lists with the constant", "booleans", "pandas", "pairs",
         "lists of two", "texts of labels", "iterator", "generator", "arrow"],
)  # fmt: skip
def test_every_form_gives_the_same_records(found) -> None:
    assert used(made(found)) == used(made((X, Y)))


ODD = [np.nan, np.inf, -np.inf, None, "", "tall", [1], b"1", 1e60, object(), 1j]


@pytest.mark.parametrize("where", ["cell", "label"])
def test_a_record_that_does_not_fit_leaves_all_others_as_they_are(where: str) -> None:
    table, labels = X.astype(object), Y.astype(object)
    for row, odd in enumerate(ODD):
        (table[:, 0] if where == "cell" else labels)[row] = odd
    for found in ((table, labels), list(zip(table, labels, strict=True))):
        card = replace(CARD, samples=100)
        expected = [(float(x), y) for (x,), y in PAIRS[len(ODD) :]]
        assert used(made(found, card=card)) == sorted(expected)


@pytest.mark.parametrize(
    "found",
    [
        (X[:0], Y[:0]),
        ([], []),
        [],
        iter(()),
        pa.table({"x": X[:0, 0], "label": Y[:0]}),
        [(1, 2, 3)] * ROWS,
        [{"x": 1}] * ROWS,
        ["ab"] * ROWS,
        [("ab", 1)] * ROWS,
        [(7, 1)] * ROWS,
        (X, [["cat"]] * ROWS),
        (X, ["cat"] * ROWS),
        ([[1.0, 2.0]] * ROWS, Y),
    ],
)
def test_with_no_record_that_fits_a_device_updates_all_the_same(found) -> None:
    own = made(found)
    assert len(own) == 0
    assert len(own.records) == CARD.samples


def test_what_has_no_partner_is_no_record() -> None:
    card = replace(CARD, samples=100)
    for found in ((X, Y[:30]), (X.tolist(), Y.tolist()[:30]), (X[:30], Y), (X[:30].tolist(), Y)):
        assert used(made(found, card=card)) == used(made((X[:30], Y[:30]), card=card))


def test_a_source_that_raises_for_a_record_loses_this_one_only() -> None:
    class Fussy:
        """An iterator that raises now and then, and goes on."""

        def __init__(self) -> None:
            self.row = -1

        def __iter__(self):
            return self

        def __next__(self):
            self.row += 1
            if self.row == ROWS:
                raise StopIteration
            if self.row % 10 == 3:
                raise ValueError("a record that it does not like")
            return X[self.row], Y[self.row]

    card = replace(CARD, samples=100)
    rows = [i for i in range(ROWS) if i % 10 != 3]
    assert used(made(Fussy(), card=card)) == used(made((X[rows], Y[rows]), card=card))


WRONG = {
    "too many columns": (np.hstack([X, X, X]), Y),
    "no columns": (X[:, :0], Y),
    "one column flat": (X[:, 0], Y),
    "labels of two columns": (X, np.column_stack([Y, Y])),
    "nothing": None,
    "a number": 7,
    "a text": "records.csv",
    "a path": Path("records.csv"),
    "another table": pa.table({"x": X[:, 0], "y": Y}),
    "a dictionary": {"x": 1},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_source_of_another_shape_gets_a_sentence(name: str) -> None:
    with pytest.raises((InvalidData, InvalidFile)):
        made(WRONG[name])


def test_an_endless_iterator_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbourse.device.record_rule._RECORDS_MAX", 1000)
    own = made(zip(itertools.cycle([[1.0]]), itertools.cycle([0]), strict=False))
    assert len(own) == CARD.samples


# Files.


def lines(rows: int = ROWS) -> list[str]:
    return [f"{i},name {i},{8 + i / 10},{'dog' if i % 2 else 'cat'}" for i in range(rows)]


HEADER = "id,who,height,kind"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "own.csv"
    file.write_text("\n".join([HEADER, *lines()]) + "\n")
    return file


def heights(file: Path | str, *, card: TaskCard = ALL) -> list[tuple[int, float]]:
    """Return each record in use by its number and its label."""
    own = device_records(card, FileData(str(file)), secret=SECRET)
    return [(round((x * 2 + 10 - 8) * 10), label) for x, label in used(own)]


EXPECTED = [(i, float(i % 2)) for i in range(ROWS)]


def test_a_layout_finds_columns_by_their_names_among_others(table: Path) -> None:
    assert heights(table) == EXPECTED
    assert len(heights(table, card=LAID_OUT)) == LAID_OUT.samples


def test_labels_may_stand_in_another_column_of_the_file(table: Path) -> None:
    table.write_text(table.read_text().replace("kind", "species", 1))
    assert heights(f"{table}:species") == EXPECTED


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ".stream.arrow"])
def test_parquet_and_arrow_files_give_the_same(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"own{kind}"
    columns = {
        "who": ["x"] * ROWS,
        "height": [8 + i / 10 for i in range(ROWS)],
        "kind": ["dog" if i % 2 else "cat" for i in range(ROWS)],
    }
    frame = pa.table(columns)
    if kind == ".parquet":
        parquet.write_table(frame, file)
    else:
        make = pa.ipc.new_stream if "stream" in kind else pa.ipc.new_file
        with make(file, frame.schema) as writer:
            writer.write_table(frame)
    check_schema(ALL, FileData(str(file)))
    assert heights(file) == EXPECTED


def test_an_npz_file_has_its_columns_in_order(tmp_path: Path) -> None:
    file = tmp_path / "own.npz"
    names = np.array(["dog" if i % 2 else "cat" for i in range(ROWS)])
    np.savez(file, X=8 + np.arange(ROWS)[:, None] / 10, y=names)
    check_schema(ALL, FileData(str(file)))
    assert heights(file) == EXPECTED


def test_names_of_classes_may_be_numbers(tmp_path: Path) -> None:
    file = tmp_path / "things.csv"
    rows = [f"{i},{i % 7},{3 if i % 2 else 7}" for i in range(200)]
    file.write_text("\n".join(["height,weight,kind", *rows]))
    source = load(f"{file}:kind", buyer_records=20)
    assert layout_of(source).classes == ("3", "7")
    card = replace(LAID_OUT, layout=replace(LAID_OUT.layout, classes=("3", "7")), samples=300)
    records = used(device_records(card, FileData(str(file)), secret=SECRET))
    assert [(round(x * 2 + 10), label) for x, label in records] == [
        (i, float(i % 2 == 0)) for i in range(200)
    ]


SPOILT = {
    "cut": b"7,name 7,8.",
    "an empty cell": b"7,name 7,,dog",
    "a cell of text": b"7,name 7,tall,dog",
    "a cell NaN": b"7,name 7,nan,dog",
    "Latin-1 in the label": b"7,name 7,8.7,d\xf6g",
    "another class": b"7,name 7,8.7,fox",
    "a class number": b"7,name 7,8.7,1",
    "zeros": bytes(40),
    "too few cells": b"1,2",
    "too many cells": b"7,name 7,8.7,dog,",
    "an open quote": b'7,"name 7,8.7,dog',
    "an open quote at the end": b'7,name 7,8.7,"dog',
    "a quote inside": b'7,"na"me 7,8.7,dog',
    "a return inside": b"7,name\r7,8.7,dog",
    "huge": b"7,name 7,1e60,dog",
    "a long cell": b"7," + b"x" * 200_000 + b",8.7,dog",
    "blank": b"   ",
    "nothing": b"",
    "UTF-16": "7,name 7,8.7,dog".encode("utf-16"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_line_is_left_out_and_no_other(name: str, table: Path) -> None:
    content = table.read_bytes().splitlines()
    content[8] = SPOILT[name]
    table.write_bytes(b"\n".join(content))
    check_schema(ALL, FileData(str(table)))
    assert heights(table) == [each for each in EXPECTED if each[0] != 7]


@pytest.mark.parametrize(
    "line",
    [b'7,"name, 7",8.7,dog', b'7,n\xe4me,"8.7", dog ', b"7,,+8.70,dog\r", b'7,"a ""b""",87e-1,dog'],
)
def test_a_line_that_other_columns_or_spellings_make_look_odd_fits(
    line: bytes, table: Path
) -> None:
    content = table.read_bytes().splitlines()
    content[8] = line
    table.write_bytes(b"\n".join(content))
    assert heights(table) == EXPECTED


def test_a_line_break_in_quotes_makes_two_lines_that_do_not_fit(table: Path) -> None:
    table.write_text(table.read_text().replace("name 7", '"name\n7"'))
    assert heights(table) == [each for each in EXPECTED if each[0] != 7]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_may_begin_with_a_mark_and_end_lines_in_either_way(end: str, table: Path) -> None:
    table.write_bytes(b"\xef\xbb\xbf" + end.join([HEADER, *lines()]).encode())
    assert heights(table) == EXPECTED


def test_a_file_that_has_only_its_head_is_a_file_without_records(table: Path) -> None:
    for content in (HEADER, HEADER + "\n"):
        table.write_text(content)
        check_schema(ALL, FileData(str(table)))
        assert heights(table) == []


OTHER_SCHEMAS = {
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_text(""),
    "no column": lambda file: file.write_text(file.read_text().replace("height", "width", 1)),
    "two columns": lambda file: file.write_text(file.read_text().replace("who", "height", 1)),
    "no label": lambda file: file.write_text(file.read_text().replace("kind", "sort", 1)),
    "UTF-16": lambda file: file.write_bytes(file.read_text().encode("utf-16")),
    "a head in Latin-1": lambda file: file.write_bytes(file.read_text().replace("who", "\xfc")
                                                       .encode("latin-1")),
    "an open quote": lambda file: file.write_text(file.read_text().replace("id", '"id', 1)),
    "zeros": lambda file: file.write_bytes(bytes(500)),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_SCHEMAS)
def test_a_file_with_another_schema_gets_a_sentence(name: str, table: Path) -> None:
    OTHER_SCHEMAS[name](table)
    source = FileData(str(table))
    with pytest.raises(InvalidFile, match=r"own\.csv"):
        check_schema(LAID_OUT, source)
    with pytest.raises(InvalidFile, match=r"own\.csv"):
        device_records(LAID_OUT, source, secret=SECRET)


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ".npz", ".txt", ""])
@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing of the sort", None])
def test_a_file_that_is_not_of_its_kind_gets_a_sentence(kind, content, tmp_path: Path) -> None:
    file = tmp_path / f"own{kind}"
    if content is not None:
        file.write_bytes(content)
    for use in (check_schema, check_data):
        with pytest.raises(InvalidFile, match=f"own{kind}"):
            use(LAID_OUT, FileData(str(file)))


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"X": X[:, 0], "y": Y}, "a table of 1 columns and a column of labels; found arrays of"),
        ({"X": np.hstack([X, X]), "y": Y}, "found arrays of shape"),
        ({"X": X, "y": X}, "found arrays of shape"),
        ({"a": X, "b": Y}, "must hold the arrays X and y, or features and labels; found a, b"),
        ({"X": X.astype(object), "y": Y}, "arrays of Python objects are not read"),
    ],
)
def test_an_npz_file_with_another_schema_gets_a_sentence(arrays, sentence, tmp_path) -> None:
    file = tmp_path / "own.npz"
    np.savez(file, **arrays)
    with pytest.raises(InvalidFile, match=sentence):
        check_schema(LAID_OUT, FileData(str(file)))
    with pytest.raises(InvalidFile, match="has no named columns, so :y must go"):
        check_schema(LAID_OUT, FileData(f"{file}:y"))


def test_without_a_layout_a_file_has_as_many_columns_as_the_card(table: Path) -> None:
    with pytest.raises(InvalidFile, match="has 3 columns besides 'kind'; the card asks for 1"):
        check_schema(CARD, FileData(f"{table}:kind"))
    table.write_text("x,label\n" + "\n".join(f"{x},{y:g}" for (x,), y in PAIRS))
    check_schema(CARD, FileData(str(table)))
    own = device_records(CARD, FileData(str(table)), secret=SECRET)
    assert used(own) == used(made((X, Y)))


def test_the_owner_learns_how_many_records_fit_and_why_others_do_not(table: Path) -> None:
    content = table.read_text().replace("8.3,", ",", 1).replace("8.5,dog", "8.5,fox", 1)
    table.write_text(content + '1,2\n9,"x,8.1,cat\n')
    check = check_data(LAID_OUT, FileData(str(table)))
    assert (check.records, check.fit, check.samples, check.used) == (ROWS + 2, ROWS - 2, 20, 20)
    assert {(each.reason, each.column, each.count, each.rows) for each in check.misfits} == {
        ("blank", "height", 1, (5,)),
        ("unknown class", "kind", 1, (7,)),
        ("wrong number of cells", None, 1, (ROWS + 2,)),
        ("unreadable", None, 1, (ROWS + 3,)),
    }
    assert check_data(ALL, FileData(str(table))).used == ROWS - 2


def test_a_source_of_an_applications_own_is_asked_about_its_schema_where_it_can_say() -> None:
    class Own:
        def __call__(self, card: TaskCard):
            raise AssertionError("a record was looked at")

        def check_schema(self, card: TaskCard) -> None:
            raise InvalidData(f"there is no {card.data}")

    with pytest.raises(FedbourseError, match="there is no A record is a thing"):
        check_schema(CARD, Own())
    check_schema(CARD, Own().__call__)
