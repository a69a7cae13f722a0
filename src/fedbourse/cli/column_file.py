"""Columns of numbers from files: FILE[:COLUMN], with FILE .csv, .parquet, .npy, .txt, or -."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidFile, MissingExtra

if TYPE_CHECKING:
    import numpy.typing as npt

KINDS = (".csv", ".parquet", ".npy", ".txt")


def read_column(spec: str, *names: str) -> npt.NDArray[Any]:
    """Return the column that ``FILE[:COLUMN]`` names; - reads plain numbers or CSV from stdin.

    Where no column is named and there are several, it is the one called by one of ``names``.
    """
    path, wanted = _split(spec)
    name = "standard input" if path == "-" else path
    kind = ".csv" if path == "-" else Path(path).suffix.lower()
    if kind not in KINDS:
        raise InvalidFile(f"{name} must end in one of {', '.join(KINDS)}, or be -; found {kind!r}")
    if wanted is not None and kind in (".npy", ".txt"):
        raise InvalidFile(f"{name} has no named columns, so :{wanted} must go")
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (OSError, AttributeError) as error:  # there may be no standard input
        reason = getattr(error, "strerror", None) or "it is closed"
        raise InvalidFile(f"{name} cannot be read: {reason}") from None
    if not data.strip():
        raise InvalidFile(f"{name} is empty; it must hold one value for each owner")
    if kind == ".txt" or (path == "-" and wanted is None and _is_plain(data)):
        return _text(name, data)
    if kind == ".npy":
        return _npy(name, data)
    return _column(name, *_table(name, kind, data), wanted, names)


def _split(spec: str) -> tuple[str, str | None]:
    """Split off the column, unless the whole is a file whose name has a colon."""
    if ":" in spec and not os.path.exists(spec):
        path, column = spec.rsplit(":", 1)
        return path, column
    return spec, None


def _text(name: str, data: bytes) -> npt.NDArray[np.float64]:
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{name} is not UTF-8 text: byte {error.start} is wrong") from None
    numbers: list[float] = []
    for i, line in enumerate(lines, start=1):
        for word in line.partition("#")[0].split():
            try:
                numbers.append(float(word))
            except ValueError:
                raise InvalidFile(f"{name}, line {i}: {word[:40]!r} is no number") from None
    return np.array(numbers)


def _is_plain(data: bytes) -> bool:
    """Say whether text starts with a number that stands alone, not with a line of a table."""
    lines = (line.partition(b"#")[0].split() for line in data.splitlines())
    first = next((words[0] for words in lines if words), b"")
    return _is_number(first.decode("utf-8", "replace"))


def _npy(name: str, data: bytes) -> npt.NDArray[Any]:
    try:
        found = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # a damaged file fails in many ways, each as little our fault
        reason = " ".join(str(error).split())[:160]
        raise InvalidFile(f"{name} is not a whole .npy file of numbers: {reason}") from None
    if not isinstance(found, np.ndarray):
        raise InvalidFile(f"{name} holds several arrays; it must be a .npy file of one column")
    return found


def _table(name: str, kind: str, data: bytes) -> tuple[Any, Any]:
    """Return a pyarrow table and pyarrow itself."""
    try:
        import pyarrow as pa
        from pyarrow import csv, parquet
    except ImportError:
        raise MissingExtra(
            f"reading {kind} files needs pyarrow, which is not installed: "
            "pip install 'fedbourse[files]'"
        ) from None
    try:
        if kind == ".parquet":
            return parquet.read_table(pa.BufferReader(data)), pa
        data = data.removeprefix(b"\xef\xbb\xbf").strip() + b"\n"
        first = data.splitlines()[0].decode("utf-8", "replace")
        headless = all(_is_number(cell.strip(' "')) for cell in first.split(","))
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(autogenerate_column_names=headless),
            parse_options=csv.ParseOptions(ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(null_values=[""]),  # nan is a number, if no value
        )
        return table.rename_columns([name.strip() for name in table.column_names]), pa
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InvalidFile(f"{name} is not a whole {kind} file: {reason}") from None


def _column(
    name: str, table: Any, pa: Any, wanted: str | None, usual: tuple[str, ...]
) -> npt.NDArray[Any]:
    names = list(table.column_names)
    if wanted is None:
        candidates = [n for n in names if n in usual] if len(names) > 1 else names
        if len(candidates) != 1:
            raise InvalidFile(
                f"{name} has the columns {', '.join(names)}; say which one, as FILE:COLUMN"
            )
        wanted = candidates[0]
    if names.count(wanted) != 1:
        raise InvalidFile(f"{name} must have one column {wanted!r}; it has {', '.join(names)}")
    if not table.num_rows:
        raise InvalidFile(f"{name} has no rows; it must hold one number for each owner")
    column = table.column(wanted)
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise InvalidFile(f"{name}, column {wanted}, row {row}: the cell is empty")
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        cells = column.to_pylist()
        row = next((i for i, cell in enumerate(cells) if not _is_number(str(cell))), 0)
        raise InvalidFile(f"{name}, column {wanted}, row {row}: {cells[row]!r:.60} is no number")
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
