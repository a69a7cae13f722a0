"""An owner's data: from a file, arrays or an iterator to the records that updates come from.

What a device says to anybody never depends on its records, nor on how many there are. Joining looks
at the schema alone; a record that does not fit the card contributes nothing; how many fit is for
the owner's own eyes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbourse.device.arrays import NpzFile, read_pair, read_pairs
from fedbourse.device.arrow_tables import ArrowFile, read_arrow
from fedbourse.device.record_rule import RecordRule
from fedbourse.device.table_files import CsvFile, TableFile
from fedbourse.errors import InvalidData, InvalidFile
from fedbourse.files.column_file import split_spec
from fedbourse.learning.device_records import DeviceRecords

if TYPE_CHECKING:
    from fedbourse.device.record_rule import MisfitGroup, RecordSpec, RecordTable

KINDS: dict[str, type[TableFile]] = {
    ".csv": CsvFile,
    ".parquet": ArrowFile,
    ".arrow": ArrowFile,
    ".npz": NpzFile,
}
DataSource = Callable[[Any], Any]
"""Given a card, returns a pair (features, labels) of arrays or sequences, pairs one by one, or an
Arrow table. It may have a method ``check_schema``, which takes the card and raises where the task
cannot be joined; that must not depend on records."""


class FileData:
    """A table in a file, FILE[:LABEL_COLUMN] with FILE .csv, .parquet, .arrow or .npz.

    Where the card has a layout, its columns are found by their names and others are not looked at.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, card: RecordSpec) -> TableFile:
        """Return the records."""
        path, label = split_spec(self.name)
        kind = KINDS.get(Path(path).suffix.lower())
        if kind is None:
            raise InvalidFile(
                f"data must be a {', '.join(KINDS)} file; found {Path(path).name!r:.80}"
            )
        return kind(path, label)

    def check_schema(self, card: RecordSpec) -> None:
        """Refuse a card whose columns the file does not have; no record is looked at."""
        self(card).check_schema(card)


@dataclass(frozen=True)
class DataCheck:
    """How an owner's records fit a card: for the owner alone."""

    records: int
    """All that there are."""
    fit: int
    samples: int
    """m: what an update is divided by."""
    used: int
    """How many records an update is computed from: m of those that fit, or all of them."""
    misfits: tuple[MisfitGroup, ...]
    """Why the others do not fit, the commonest reason first."""


def check_schema(card: RecordSpec, data: DataSource) -> None:
    """Refuse a card that the source says it has no data for, without looking at any record."""
    check = getattr(data, "check_schema", None)
    if check is not None:
        check(card)


def device_records(card: RecordSpec, data: DataSource, *, secret: bytes) -> DeviceRecords:
    """Return the records that updates are computed from: at most m of those that fit."""
    table = _read(card, data)
    return DeviceRecords.choose(
        table.features, table.labels, classes=card.classes, samples=card.samples, secret=secret
    )


def check_data(card: RecordSpec, data: DataSource) -> DataCheck:
    """Return how many records fit a card, and why the others do not."""
    table = _read(card, data)
    fit = len(table.labels)
    return DataCheck(table.count, fit, card.samples, min(fit, card.samples), table.misfits)


def _read(card: RecordSpec, data: DataSource) -> RecordTable:
    rule = RecordRule(card)
    source = data(card)
    if isinstance(source, TableFile):
        return source.read(rule, card)
    if (pa := sys.modules.get("pyarrow")) is not None and isinstance(source, pa.Table):
        return read_arrow(source, rule, card, name="the table")
    if isinstance(source, tuple) and len(source) == 2:
        return read_pair(*source, rule)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        return read_pairs(source, rule)
    raise InvalidData(
        "a data source returns (features, labels), pairs of them one by one, or an Arrow table; "
        f"found {type(source).__name__}"
    )
