"""Files that hold no game: one sentence each, which names the file, and the row where it can."""

import builtins
import datetime
import os
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedbourse import InvalidFile, InvalidGame, MissingExtra, equilibrium, owners_in
from fedbourse.files import owners
from fedbourse.game.outofcore import convex_stream
from files.writing import write

ROWS = [1.0, 2.0, 3.0]
DAY = datetime.date(2026, 1, 2)

BAD = {
    "an empty cell": ({"b.parquet": [1.0, None]}, r"b\.parquet, column value, row 1: the cell is"),
    "only empty cells": ({"b.parquet": pa.nulls(2)}, r"b\.parquet, column value, row 0: the cell"),
    "an empty cell in CSV": ({"b.csv": "id,value\n1,1\n2,\n"}, r"b\.csv, column value, row 1: the"),
    "a blank line": ({"b.csv": "value\n1\n\n3\n"}, r"b\.csv, column value, row 1: the cell is em"),
    "texts": ({"b.parquet": ["1", "2"]}, r"b\.parquet, column value, must hold numbers; found st"),
    "booleans": ({"b.parquet": [True, False]}, r"column value, must hold numbers; found bool"),
    "dates": ({"b.feather": [DAY, DAY]}, r"b\.feather, .* must hold numbers; found date32"),
    "lists": ({"b.parquet": [[1.0], [2.0]]}, r"b\.parquet, .* must hold numbers; found list"),
    "a text in CSV": ({"b.csv": "value\n1\nabc\n"}, r"column value, row 1 \(line 3\): 'abc' is no"),
    "a text below blank lines": ({"b.csv": "\n\nvalue\n1\nx\n"}, r"row 1 \(line 5\): 'x' is no"),
    "a text, no header": ({"b.csv": "1\nabc\n"}, r"must have one column 'value'; it has f0"),
    "a boolean in CSV": ({"b.csv": "value\ntrue\n"}, r"b\.csv, .* row 0 \(line 2\): 'true' is no"),
    "a date in CSV": ({"b.csv": "value\n2026-01-02\n"}, r"row 0 \(line 2\): '2026-01-02' is no"),
    "nan": ({"b.parquet": [1.0, float("nan")]}, r"values\[1\] of b\.parquet must .* found nan"),
    "zero": ({"b.parquet": [1, 0]}, r"values\[1\] of b\.parquet must .* found 0"),
    "below 0": ({"b.csv": "value\n1\n-2\n"}, r"values\[1\] of b\.csv must .* found -2"),
    "another column": ({"b.parquet": {"nu": ROWS}}, r"b\.parquet must have one column 'value'; it"),
    "a column twice": ({"b.csv": "value,value\n1,2\n"}, r"b\.csv must have one column 'value'"),
    "a ragged row": ({"b.csv": "id,value\n1,2\n3\n"}, r"not a valid .csv file: row 1 \(line 3\)"),
    "another encoding": ({"b.csv": b"valu\xe9\n1\n"}, r"b\.csv is not UTF-8 text: byte 4"),
    "utf-16": ({"b.csv": "value\n1\n2\n".encode("utf-16")}, r"b\.csv is not UTF-8 text: byte 0"),
    "noise": ({"b.csv": bytes(range(1, 128)) * 9}, r"b\.csv"),
    "nothing": ({"b.csv": ""}, r"b\.csv is empty; it must hold"),
    "blank lines": ({"b.csv": "\n\n"}, r"b\.csv is empty; it must hold"),
    "no bytes": ({"b.parquet": b""}, r"b\.parquet is empty; it must hold"),
    "no table": ({"b.parquet": b"PAR1" * 9}, r"b\.parquet is not a valid \.parquet file: "),
    "no Arrow": ({"b.arrow": b"ARROW1" * 9}, r"b\.arrow is not a valid \.arrow file: "),
    "no Feather": ({"b.feather": b"FEA1" * 9}, r"b\.feather is not a valid \.(arrow|feather) file"),
}  # fmt: skip


def lay(folder: Path, name: str, content: object) -> None:
    if isinstance(content, (str, bytes)):
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    else:
        write(folder / name, content if isinstance(content, dict) else {"value": content})


@pytest.mark.parametrize("cost", ["linear", "quadratic"])
@pytest.mark.parametrize("case", list(BAD))
def test_one_sentence_that_names_the_file(tmp_path, case, cost) -> None:
    files, words = BAD[case]
    lay(tmp_path, "a.parquet", ROWS)
    for name, content in files.items():
        lay(tmp_path, name, content)
    with pytest.raises((InvalidFile, InvalidGame), match=words) as refused:
        equilibrium(owners_in(tmp_path), reward=1.0, cost=cost)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("kind", [".parquet", ".arrow", ".feather"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_named(tmp_path, kind, share) -> None:
    file = tmp_path / f"a{kind}"
    write(file, {"value": [float(i) for i in range(1, 5000)]})
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    with pytest.raises(InvalidFile, match=rf"a\{kind} is not a valid \{kind}"):
        equilibrium(owners_in(file), reward=1.0)


def test_damage_within_a_file_is_named(tmp_path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"value": [float(i) for i in range(1, 5000)]}), file)
    data = file.read_bytes()
    file.write_bytes(data[:4] + b"x" * 60 + data[64:])
    with pytest.raises(InvalidFile, match=r"a\.parquet is not a valid \.parquet file"):
        equilibrium(owners_in(file), reward=1.0)


def test_which_files_and_which_column(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    lay(tmp_path, "a.csv", "a,b\n1,2\n3,4\n")
    for path, words in {
        "empty": "empty must hold .parquet, .csv, .arrow or .feather files; found none",
        "x*": r"x\* must match .parquet, .csv, .arrow or .feather files; it matches none",
        "a.xlsx": "a.xlsx must end in .parquet, .csv, .arrow or .feather; found '.xlsx'",
        "nope": "nope does not exist; give a directory, or a file that ends in .parquet, .csv",
    }.items():
        with pytest.raises(InvalidFile, match=words):
            owners_in(tmp_path / path)
    for options, words in [
        ({}, "a.csv has the columns a, b; name one, with column="),
        ({"column": "c"}, "a.csv must have one column 'c'; it has a, b"),
        ({"column": "a", "names": "c"}, "a.csv must have one column 'c'; it has a, b"),
    ]:
        with pytest.raises(InvalidFile, match=words):
            list(owners_in(tmp_path / "a.csv", **options).chunks())
    with pytest.raises(InvalidFile, match=r"gone\.csv cannot be read: No such file"):
        list(owners_in(tmp_path / "gone.csv").chunks())


@pytest.mark.parametrize("name", ["a.csv.gz", "c.json", "notes.txt", "x/README", "x/d.npy"])
def test_a_file_that_would_be_left_out_is_refused(tmp_path, name) -> None:
    (tmp_path / "x").mkdir()
    lay(tmp_path, "b.csv", "value\n1\n2\n")
    lay(tmp_path, name, "value\n3\n")
    lay(tmp_path, "x/z.later", "")
    words = rf"{re.escape(str(tmp_path / name))} would be left out, as it does not end in \.parquet"
    for path in (tmp_path, tmp_path / "[bx]*") if "/" in name else (tmp_path,):
        with pytest.raises(InvalidFile, match=words):
            owners_in(path)


def test_a_pipe_is_no_table(tmp_path) -> None:
    lay(tmp_path, "a.csv", "value\n1\n2\n")
    os.mkfifo(tmp_path / "z.csv")
    for path in (tmp_path, tmp_path / "z.csv", tmp_path / "*.csv"):
        with pytest.raises(InvalidFile, match=r"z\.csv must be a regular file; found a pipe"):
            owners_in(path)


def test_a_name_that_is_missing(tmp_path) -> None:
    write(tmp_path / "a.parquet", {"id": ["ann", None, "cid"], "value": ROWS})
    (tmp_path / "b.csv").write_text("id,value\nann,1\n,2\n")
    for name in ("a.parquet", "b.csv"):
        with pytest.raises(InvalidFile, match=rf"{name}, column id, row 1: the cell is empty"):
            list(owners_in(tmp_path / name, names="id").chunks())


def test_a_name_that_is_missing_far_down_is_found_there(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(owners, "NAMED_ROWS", 4)
    names = [f"o{i}" for i in range(11)] + [None]
    write(tmp_path / "a.parquet", {"id": names, "value": [1.0 + i for i in range(12)]})
    with pytest.raises(InvalidFile, match=r"a\.parquet, column id, row 11: the cell is empty"):
        list(owners_in(tmp_path / "a.parquet", names="id").chunks())


def test_permission_denied(tmp_path, monkeypatch) -> None:
    lay(tmp_path, "a.csv", "value\n1\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", refuse)
        with pytest.raises(InvalidFile, match=r"a\.csv cannot be read: Permission denied"):
            list(owners_in(tmp_path / "a.csv").chunks())
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InvalidFile, match=re.escape(f"{tmp_path} cannot be read: Permission")):
        owners_in(tmp_path)


def test_a_file_that_shrinks_between_readings(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(convex_stream, "TABLE_MAX", 0)  # so that it is read again
    lay(tmp_path, "a.csv", "value\n1\n2\n3\n")
    stream, read = owners_in(tmp_path), []

    def chunks():
        read.append(1)
        if len(read) == 2:
            lay(tmp_path, "a.csv", "value\n1\n2\n")
        return stream.read()

    with pytest.raises(InvalidGame, match="must hold the same owners at every reading; found 2"):
        equilibrium(chunks, reward=1.0, cost="quadratic")


def test_the_extra_is_named(tmp_path, monkeypatch) -> None:
    lay(tmp_path, "a.csv", "value\n1\n2\n")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'fedbourse[files]'")):
        owners_in(tmp_path)
