"""An owner's data: from a file, arrays or an iterator to the m records that a card asks about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidData
from fedbourse.learning.records import Records, Scaling, matrix
from fedbourse.learning.sources.files import class_name, read_table, split_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedbourse.game.columns import FloatArray
    from fedbourse.wire.card import TaskCard

_RECORDS_MAX = 10_000_000
DataSource = Callable[["TaskCard"], "Records | tuple[Any, Any] | Iterable[tuple[Any, Any]]"]
"""Given a card, returns records, a pair of arrays (features, labels), or pairs one by one."""


class FileData:
    """A table in a file, FILE[:LABEL_COLUMN] with FILE .csv, .parquet or .npz.

    Where the card has a layout, its columns are found by their names and others are not looked at.
    """

    def __init__(self, name: str) -> None:
        """Remember the file; it is read for each task anew."""
        self.name = name

    def __call__(self, card: TaskCard) -> tuple[FloatArray, npt.NDArray[Any]]:
        """Return the columns that the card asks about, and the labels."""
        path, label = split_name(self.name)
        layout = card.layout
        if layout is None or path.lower().endswith(".npz"):
            table = read_table(path, label)
        else:
            names = [column.name for column in layout.columns]
            table = read_table(path, label or layout.label, only=names)
        return table.raw, table.labels


def records_for(card: TaskCard, data: DataSource, *, secret: bytes) -> Records:
    """Return the records that answers are computed from: m of the owner's, the same ones always.

    Which they are depends on the device's secret, so that nobody learns how many it has.
    """
    features, labels = _pair(data(card))
    features, labels = _features(card, features), _labels(card, labels)
    if len(features) != len(labels):
        raise InvalidData(f"found {len(features)} records and {len(labels)} labels; one for each")
    if len(features) < card.samples:
        raise InvalidData(
            f"the card asks for {card.samples} records of each owner; found {len(features)}"
        )
    # Each row has a number of its own, so that a table that grows by a row loses one at most.
    keys = np.random.default_rng(list(secret)).random(len(features))
    rows = np.sort(np.argpartition(keys, card.samples - 1)[: card.samples])
    return Records(features, labels, card.classes).take(rows)


def _pair(found: object) -> tuple[Any, Any]:
    """Return features and labels, whichever way they came."""
    if isinstance(found, Records):
        return found.features, found.labels
    if isinstance(found, tuple) and len(found) == 2:
        return found
    if isinstance(found, Iterable):
        rows = list(islice(found, _RECORDS_MAX + 1))
        if len(rows) > _RECORDS_MAX:
            raise InvalidData(f"a data source returns at most {_RECORDS_MAX} records; it has more")
        if rows and all(isinstance(row, tuple) and len(row) == 2 for row in rows):
            return [row[0] for row in rows], [row[1] for row in rows]
        raise InvalidData(f"records must come as pairs (features, label); found {rows[:1]!r:.60}")
    raise InvalidData(f"a data source returns records or arrays; found {type(found).__name__}")


def _features(card: TaskCard, raw: object) -> FloatArray:
    """Return the features as the card counts them, with the constant 1 at the end."""
    table = matrix("the owner's records", raw)
    width = table.shape[1]
    if width == card.features and (table[:, -1] == 1).all():
        return table  # they are ready
    if width != card.features - 1:
        raise InvalidData(
            f"the card asks for {card.features - 1} columns and the constant 1; found {width}"
        )
    if card.layout is None:
        return Scaling.none(width).apply(table)
    shifts = np.array([column.shift for column in card.layout.columns])
    scales = np.array([column.scale for column in card.layout.columns])
    return Scaling(shifts, scales).apply(table)


def _labels(card: TaskCard, raw: object) -> FloatArray:
    """Return the labels as numbers; names of classes are those of the card."""
    try:
        labels = np.asarray(raw)
    except ValueError:
        raise InvalidData("labels must be one for each record; found rows of them") from None
    if labels.ndim != 1:
        raise InvalidData(f"labels must be one column; found an array of shape {labels.shape}")
    classes = card.layout.classes if card.layout else ()
    numbers = {name: number for number, name in enumerate(classes)}
    named = [class_name(label) for label in labels.tolist()]
    unknown = next((row for row, name in enumerate(named) if name not in numbers), None)
    if unknown is None:
        return np.array([numbers[name] for name in named], dtype=np.float64)
    if labels.dtype.kind in "fiub":
        return labels.astype(np.float64)  # the class numbers themselves, or any numbers
    raise InvalidData(
        f"record {unknown} has the label {named[unknown]!r:.60}; the card has "
        f"{', '.join(classes) or 'numbers only'}"
    )
