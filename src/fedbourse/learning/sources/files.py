"""Records from a file: FILE[:LABEL_COLUMN], with FILE .csv, .parquet or .npz.

Every column but the label is a feature and must be numbers. Labels that are texts, booleans or
whole numbers are classes, in sorted order; labels with fractions are numbers to predict. A .npz
file holds the arrays X and y, or features and labels.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbourse.errors import FedbourseError, InvalidData, InvalidFile
from fedbourse.files.columns import arrow, explained, is_number, listed, refuse_nulls
from fedbourse.game.columns import FloatArray
from fedbourse.learning.records import Records
from fedbourse.learning.sources import Source, from_table, split

KINDS = (".csv", ".parquet", ".npz")
CLASSES_MAX = 1000


@dataclass(frozen=True, eq=False)
class SourceTable:
    """Columns of numbers and a column of labels, as a file holds them."""

    columns: tuple[str, ...]
    raw: FloatArray
    label: str
    labels: npt.NDArray[Any]


def load(path: str, label: str | None, *, seed: int, buyer_records: int | None) -> Source:
    """Return the records of a file, scaled by the buyer's own rows."""
    table = read_table(path, label)
    labels, names = _classes(path, table)
    rows = len(table.raw)
    if rows < 3:
        raise InvalidData(
            f"{path} must hold at least 3 records, 2 of them the buyer's; found {rows}"
        )
    usual = max(2, min(10_000, rows // 5))
    what = f"which of {', '.join(names)} it is" if names else "a number"
    return from_table(
        path,
        table.raw,
        labels,
        classes=len(names),
        columns=table.columns,
        description=f"A record is a row of {Path(path).name}; predicted is its {table.label}: "
        f"{what if len(what) <= 200 else f'one of {len(names)} classes'}.",
        default_samples=max(1, min(1000, (rows - usual) // 20)),
        rows=split(path, rows=rows, buyer_records=buyer_records, usual=usual, seed=seed),
        label=table.label,
        class_names=names,
    )


def records_like(source: Source, path: str) -> Records:
    """Return the records of another file with the columns, classes and scaling of a source."""
    table = read_table(path, source.label)
    columns = source.feature_names[:-1]  # the last is the constant 1
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise InvalidFile(
            f"{path} must have the columns of {source.name}; {listed(missing)} is not among "
            f"{listed(table.columns)}"
        )
    raw = table.raw[:, [table.columns.index(name) for name in columns]]
    labels = table.labels
    if source.class_names:
        numbers = {name: float(number) for number, name in enumerate(source.class_names)}
        names = [class_name(each) for each in labels.tolist()]
        other = next((name for name in names if name not in numbers), None)
        if other is not None:
            raise InvalidData(
                f"{path}, column {table.label}: {other!r:.60} is none of the classes of "
                f"{source.name}, {listed(source.class_names)}"
            )
        labels = np.array([numbers[name] for name in names])
    elif labels.dtype.kind != "f":
        raise InvalidData(f"{path}, column {table.label}: labels must be numbers")
    return Records(source.scaling.apply(raw), labels, source.buyer.classes)


def read_table(path: str, label: str | None) -> SourceTable:
    """Return the columns of a file and its labels, of types that are inferred from the columns.

    It is for whoever owns the whole file. A device must not: there one record would decide how all
    others are read.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidFile(f"{path} cannot be read: {reason}") from None
    if not data.strip():
        raise InvalidFile(f"{path} is empty; it must hold records")
    kind = Path(path).suffix.lower()
    if kind == ".npz":
        return _npz(path, data, label)
    return _columns(path, kind, data, label)


def _classes(path: str, table: SourceTable) -> tuple[FloatArray, tuple[str, ...]]:
    """Return the labels as numbers, and the classes' names; none where labels are numbers."""
    labels = table.labels
    if labels.dtype.kind == "f":
        wrong = ~np.isfinite(labels)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InvalidData(f"{path}, column {table.label}, row {row}: found {labels[row]}")
        if (labels != np.floor(labels)).any():
            return labels.astype(np.float64), ()
    elif labels.dtype.kind == "U" and (labels == "").any():
        row = int(np.argmax(labels == ""))
        raise InvalidData(f"{path}, column {table.label}, row {row}: the cell is empty")
    names, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    classes = tuple(map(class_name, names.tolist()))
    if len(names) < 2:
        raise InvalidData(
            f"{path} must hold at least two classes; every label is {classes[0]!r:.60}"
        )
    if len(names) > CLASSES_MAX:
        raise InvalidData(
            f"{path}, column {table.label}: at most {CLASSES_MAX} classes can be told apart, and "
            f"it has {len(names)} different labels; numbers to predict must have fractions"
        )
    if counts.min() < 2:
        rare = classes[int(np.argmin(counts))]
        raise InvalidData(f"{path} must hold at least 2 records of each class; {rare!r:.60} has 1")
    return numbers.astype(np.float64), classes


def class_name(label: object) -> str:
    """Return how a label is spelled where classes have names.

    >>> class_name(3.0), class_name(True), class_name("late")
    ('3', 'True', 'late')
    """
    return f"{label:.0f}" if isinstance(label, float) and label.is_integer() else str(label)


def array_names(path: str, names: set[str]) -> tuple[str, str]:
    """Return the names of the arrays of features and labels in a .npz file."""
    for pair in (("X", "y"), ("features", "labels")):
        if names >= set(pair):
            return pair
    raise InvalidFile(
        f"{path} must hold the arrays X and y, or features and labels; "
        f"found {', '.join(sorted(names)) or 'none'}"
    )


@contextmanager
def explained_arrays(path: str) -> Iterator[None]:
    """Turn whatever a damaged .npz file raises into one sentence."""
    try:
        yield
    except FedbourseError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise InvalidFile(f"{path} is not a valid .npz file of arrays: {reason}") from None


def _npz(path: str, data: bytes, label: str | None) -> SourceTable:
    if label is not None:
        raise InvalidFile(f"{path} has no named columns, so :{label} must go")
    with explained_arrays(path), np.load(io.BytesIO(data), allow_pickle=False) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise TypeError("it holds one array without a name")
        pair = array_names(path, set(archive.files))
        raw, labels = (np.asarray(archive[name]) for name in pair)
    if raw.ndim != 2 or labels.shape != raw.shape[:1]:
        raise InvalidFile(
            f"{path} must hold a table of features and one label for each row; "
            f"found arrays of shape {raw.shape} and {labels.shape}"
        )
    if raw.dtype.kind not in "fiub" or labels.dtype.kind not in "fiubU":
        raise InvalidFile(
            f"{path} must hold numbers, and labels that are numbers or texts; "
            f"found the types {raw.dtype} and {labels.dtype}"
        )
    return _checked(
        path, tuple(f"x{i}" for i in range(raw.shape[1])), raw.astype(np.float64), pair[1], labels
    )


def _columns(path: str, kind: str, data: bytes, label: str | None) -> SourceTable:
    pa = arrow(kind)
    with explained(path, kind):
        table = _read(kind, data, pa)
    names = list(table.column_names)
    label = "label" if label is None else label
    if names.count(label) != 1:
        raise InvalidFile(
            f"{path} must have one label column {label!r:.60}; it has {listed(names)}; "
            "name another one as FILE:COLUMN"
        )
    features = [name for name in names if name != label]
    if len(set(features)) != len(features):
        raise InvalidFile(f"{path} must have columns of different names; it has {listed(names)}")
    if not table.num_rows:
        raise InvalidFile(f"{path} has no rows; it must hold records")
    raw = np.empty((table.num_rows, len(features)))
    for i, name in enumerate(features):
        raw[:, i] = _numbers(path, name, table.column(name), pa)
    return _checked(
        path, tuple(features), raw, label, _labels(path, label, table.column(label), pa)
    )


def _read(kind: str, data: bytes, pa: Any) -> Any:
    from pyarrow import csv, parquet

    if kind == ".parquet":
        return parquet.read_table(pa.BufferReader(data))
    data = data.removeprefix(b"\xef\xbb\xbf")
    data.decode()  # pyarrow reads other bytes as binary columns
    table = csv.read_csv(
        pa.BufferReader(data),
        convert_options=csv.ConvertOptions(null_values=[""]),
    )
    return table.rename_columns([name.strip() for name in table.column_names])


def _numbers(path: str, name: str, column: Any, pa: Any) -> FloatArray:
    refuse_nulls(path, name, column)
    kind, types = column.type, pa.types
    if types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        wrong = next((cell for cell in column.to_pylist() if not is_number(str(cell))), kind)
        raise InvalidFile(
            f"{path}, column {name}: features must be numbers, and {str(wrong)!r:.60} is not one; "
            "leave the column out or turn it into numbers"
        )
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _labels(path: str, name: str, column: Any, pa: Any) -> npt.NDArray[Any]:
    refuse_nulls(path, name, column)
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array([cell.strip() for cell in column.to_pylist()], dtype=np.str_)
    if types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)):
        raise InvalidFile(f"{path}, column {name}: labels must be texts or numbers; found {kind}")
    return np.asarray(column.to_numpy())


def _checked(
    path: str,
    columns: tuple[str, ...],
    raw: FloatArray,
    label: str,
    labels: npt.NDArray[Any],
) -> SourceTable:
    if not raw.size:
        raise InvalidData(f"{path} must hold records with at least one feature; found {raw.shape}")
    finite = np.isfinite(raw)
    if not finite.all():
        row, i = np.unravel_index(int(np.argmin(finite)), raw.shape)
        raise InvalidData(f"{path}, column {columns[i]}, row {row}: found {raw[row, i]}")
    return SourceTable(columns, raw, label, labels)
