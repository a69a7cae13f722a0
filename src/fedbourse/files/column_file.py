"""A column of numbers from one file that memory holds: FILE[:COLUMN], or - for standard input."""

from __future__ import annotations

import glob
import io
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidFile
from fedbourse.files.columns import (
    arrow,
    cannot_be_read,
    chosen_column,
    explained,
    is_number,
    is_numeric,
    refuse_nulls,
    refuse_other_separators,
)

KINDS = (".csv", ".parquet", ".npy", ".txt", ".arrow", ".feather")


def read_column(spec: str, *names: str) -> npt.NDArray[Any]:
    """Return the column that ``FILE[:COLUMN]`` names; - reads plain numbers or CSV from stdin.

    Where no column is named and there are several, it is the one called by one of ``names``.
    """
    path, column_name = split_spec(spec)
    name = "standard input" if path == "-" else path
    kind = ".csv" if path == "-" else Path(path).suffix.lower()
    if kind not in KINDS and not os.path.lexists(path):
        raise InvalidFile(
            f"{name} does not exist; give a file that ends in one of {', '.join(KINDS)}, a "
            "directory, or -"
        )
    if kind not in KINDS:
        raise InvalidFile(f"{name} must end in one of {', '.join(KINDS)}, or be -; found {kind!r}")
    if column_name is not None and kind in (".npy", ".txt"):
        raise InvalidFile(f"{name} has no named columns; leave out :{column_name}")
    data = _data(path, name)
    if kind == ".txt" or (path == "-" and column_name is None and _is_plain(data)):
        return _text(name, data)
    if kind == ".npy":
        return _npy(name, data)
    table = _table(name, kind, data)
    return _numbers(
        name, table, chosen_column(name, table.column_names, column_name, names, "as FILE:COLUMN")
    )


def read_names(path: str, column_name: str) -> list[Any]:
    """Return the owners' names, from a column of a table."""
    kind = Path(path).suffix.lower()
    if path == "-" or kind not in KINDS or kind in (".npy", ".txt"):
        name = "standard input" if path == "-" else path
        raise InvalidFile(f"{name} has no column {column_name!r} of names; give a table's file")
    table = _table(path, kind, _data(path, path))
    column = table.column(chosen_column(path, table.column_names, column_name, (), ""))
    refuse_nulls(path, column_name, column)
    names: list[Any] = column.to_pylist()
    return names


def split_spec(spec: str) -> tuple[str, str | None]:
    """Split off the column, unless the whole is a file, or glob, whose name has a colon."""
    if ":" in spec and not os.path.exists(spec) and not glob.glob(spec):
        path, column = spec.rsplit(":", 1)
        return path, column
    return spec, None


def _data(path: str, name: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise cannot_be_read(name, error) from None
    except AttributeError:  # there may be no standard input
        raise InvalidFile(f"{name} cannot be read: it is closed") from None
    if not data.strip():
        raise InvalidFile(f"{name} is empty; it must hold one value for each owner")
    return data


def _text(name: str, data: bytes) -> npt.NDArray[np.float64]:
    with explained(name, ".txt"):
        lines = data.decode("utf-8-sig").splitlines()
    numbers: list[float] = []
    for i, line in enumerate(lines, start=1):
        for word in line.partition("#")[0].split():
            try:
                numbers.append(float(word))
            except ValueError:
                raise InvalidFile(f"{name}, line {i}: {word[:40]!r} is not a number") from None
    return np.array(numbers)


def _is_plain(data: bytes) -> bool:
    """Say whether text starts with a single number, not with a row of a table."""
    lines = (line.partition(b"#")[0].split() for line in data.splitlines())
    first = next((words[0] for words in lines if words), b"")
    return is_number(first.decode("utf-8", "replace"))


def _npy(name: str, data: bytes) -> npt.NDArray[Any]:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # a damaged file fails in many ways
        reason = " ".join(str(error).split())[:160]
        raise InvalidFile(f"{name} is not a valid .npy file of numbers: {reason}") from None
    if not isinstance(array, np.ndarray):
        raise InvalidFile(f"{name} holds several arrays; it must be a .npy file of one column")
    return array


def _table(name: str, kind: str, data: bytes) -> Any:
    pa = arrow(kind)
    from pyarrow import csv, ipc, parquet

    with explained(name, kind):
        if kind == ".parquet":
            return parquet.read_table(pa.BufferReader(data))
        if kind in (".arrow", ".feather"):
            try:
                return ipc.open_file(data).read_all()
            except pa.ArrowInvalid:
                return ipc.open_stream(data).read_all()
        data = data.removeprefix(b"\xef\xbb\xbf").strip() + b"\n"
        lines = [line.decode("utf-8", "replace") for line in data.split(b"\n", 2)[:2]]
        first = lines[0]
        refuse_other_separators(name, [line for line in lines if line.strip()])
        headless = all(is_number(cell.strip(' "\r')) for cell in first.split(","))
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(autogenerate_column_names=headless),
            parse_options=csv.ParseOptions(ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(null_values=[""]),  # "nan" is refused later
        )
        return table.rename_columns([name.strip() for name in table.column_names])


def _numbers(name: str, table: Any, column_name: str) -> npt.NDArray[Any]:
    if not table.num_rows:
        raise InvalidFile(f"{name} has no rows; it must hold one number for each owner")
    column = table.column(column_name)
    refuse_nulls(name, column_name, column)
    if not is_numeric(column.type):
        cells = column.to_pylist()
        row = next((i for i, cell in enumerate(cells) if not is_number(str(cell))), 0)
        raise InvalidFile(
            f"{name}, column {column_name}, row {row}: {cells[row]!r:.60} is not a number"
        )
    return np.asarray(column.to_numpy(), dtype=np.float64)
