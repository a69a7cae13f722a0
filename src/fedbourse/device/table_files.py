"""Tables in files, read so that no record has a say in how another one is read.

A file's **schema** (that it is there, and which columns it has) is looked at without any record.
Cells come as they are: text in CSV; in Parquet, Arrow and NPZ whatever the owner's program
declared. Nothing is inferred from what a column holds.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedbourse.device.cells import Reason
from fedbourse.device.record_rule import Misfit, RawRecord
from fedbourse.errors import InvalidFile
from fedbourse.files.columns import cannot_be_read, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fedbourse.device.record_rule import RecordRule, RecordSpec, RecordTable

_HEADER_BYTES_MAX = 2**20


class TableFile(ABC):
    """One owner's table in a file."""

    def __init__(self, path: str, label: str | None) -> None:
        self.path, self.label = path, label

    @abstractmethod
    def check_schema(self, spec: RecordSpec) -> None:
        """Refuse a file that is not there, or lacks columns of the card; no record is looked at."""

    @abstractmethod
    def read(self, rule: RecordRule, spec: RecordSpec) -> RecordTable:
        """Read all records."""


def chosen_columns(
    table: str, names: Sequence[str], spec: RecordSpec, label: str | None = None
) -> list[int]:
    """Return where the card's columns stand in a table, the label's last."""
    label = label or (spec.layout.label if spec.layout else "label")
    if spec.layout is not None:
        features = [column.name for column in spec.layout.columns]
    else:
        features = [name for name in names if name != label]
        if len(features) != spec.features - 1:
            raise InvalidFile(
                f"{table} has {len(features)} columns besides {label!r:.60}; the card asks for "
                f"{spec.features - 1}"
            )
    for name in (*features, label):
        if list(names).count(name) != 1:
            hint = "; name another label as FILE:COLUMN" if name == label else ""
            raise InvalidFile(
                f"{table} must have one column {name!r:.60}; it has {listed(names)}{hint}"
            )
    return [list(names).index(name) for name in (*features, label)]


class CsvFile(TableFile):
    """A .csv file: UTF-8, commas, a first line of names, and each further line one record.

    Each line is parsed by itself. So a quote that is opened and never closed spoils its own line
    and no other; and a cell cannot hold a line break.
    """

    def check_schema(self, spec: RecordSpec) -> None:
        """Look at the first line alone."""
        chosen_columns(self.path, self._names(), spec, self.label)

    def read(self, rule: RecordRule, spec: RecordSpec) -> RecordTable:
        """Read all records, line by line."""
        names = self._names()
        chosen = chosen_columns(self.path, names, spec, self.label)
        return rule.read_rows(self._rows(chosen, width=len(names)))

    def _names(self) -> list[str]:
        with system_errors(self.path), Path(self.path).open("rb") as file:
            line = file.readline(_HEADER_BYTES_MAX)
        try:
            text = _text(line.removeprefix(b"\xef\xbb\xbf"), errors="strict")
            (cells,) = csv.reader([text], strict=True)
        except (csv.Error, ValueError) as error:  # ValueError: not UTF-8
            raise InvalidFile(
                f"{self.path} must begin with a line that names its columns, in UTF-8 and with "
                f"commas between them: {error}"
            ) from None
        return [cell.strip() for cell in cells]

    def _rows(self, chosen: list[int], *, width: int) -> Iterator[tuple[int, RawRecord | Misfit]]:
        *features, label = chosen
        with system_errors(self.path), Path(self.path).open("rb") as file:
            file.readline()
            for number, line in enumerate(file, start=2):
                if not line.strip():
                    continue  # no record
                cells = _cells(line)
                if isinstance(cells, Misfit):
                    yield number, cells
                elif len(cells) != width:
                    shown = f"{len(cells)} cells instead of {width}"
                    yield number, Misfit(Reason.WRONG_CELLS, None, shown)
                else:
                    yield number, RawRecord([cells[i] for i in features], cells[label])


def _cells(line: bytes) -> list[str] | Misfit:
    """Return the cells of one line, by itself."""
    # Bytes that are not UTF-8 spoil their own cell only: they become characters that fit nothing.
    text = _text(line, errors="surrogateescape")
    try:
        (cells,) = csv.reader([text], strict=True)
    except csv.Error as error:
        return Misfit(Reason.UNREADABLE, None, str(error))
    return cells


def _text(line: bytes, *, errors: str) -> str:
    return line.removesuffix(b"\n").removesuffix(b"\r").decode(errors=errors)


@contextmanager
def system_errors(path: str) -> Iterator[None]:
    """Turn what the system says about a file into one sentence."""
    try:
        yield
    except OSError as error:
        raise cannot_be_read(path, error) from None
    except ValueError as error:  # a name with a null character
        raise InvalidFile(f"{path} cannot be read: {error}") from None
