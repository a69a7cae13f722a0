"""Tables in files, some columns of which are read piece by piece: Parquet, CSV and Arrow."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fedbourse.errors import InvalidFile
from fedbourse.files.columns import arrow, explained, is_number, refuse_other_separators
from fedbourse.files.read_ahead import Piece, one_ahead
from fedbourse.game.outofcore.stream import ROWS

LARGE = 4 * ROWS
"""Rows of a Parquet row group that is too large to be read at once."""

BUFFER = 1 << 20
BLOCK = 1 << 24
"""Bytes of a CSV file that are parsed at a time: half a million rows or so."""


class TableFile(Protocol):
    """A file with named columns."""

    names: list[str]
    types: dict[str, Any]
    """The Arrow types of its columns; empty where the file does not say."""

    def pieces(self, columns: list[str]) -> Iterator[Piece]:
        """Yield the rows of these columns, the first of which holds numbers, in order."""
        ...


def open_table(path: str, kind: str) -> TableFile:
    """Open a file of one of the ``READERS``."""
    with explained(path, kind):
        with open(path, "rb") as file:  # reports the system's error if it cannot be read
            if not file.read(1):
                raise InvalidFile(f"{path} is empty; it must hold one value for each owner")
        return READERS[kind](path)


class ParquetTable:
    """A Parquet file: runs of row groups, which threads can read independently."""

    def __init__(self, path: str) -> None:
        arrow(".parquet")
        import pyarrow.parquet as pq

        self._open = partial(pq.ParquetFile, path, pre_buffer=False)
        self._path = path
        with self._open() as file:
            self._metadata, schema = file.metadata, file.schema_arrow
        self.names, self.types = schema.names, dict(zip(schema.names, schema.types, strict=True))

    def pieces(self, columns: list[str]) -> Iterator[Piece]:
        """Yield runs of row groups of about ``ROWS`` rows; of large row groups, their batches."""
        groups = [
            self._metadata.row_group(i).num_rows for i in range(self._metadata.num_row_groups)
        ]
        if max(groups, default=0) > LARGE:
            yield from _read_already(self._batches(columns))
            return
        start = 0
        while start < len(groups):
            stop, rows = start + 1, groups[start]
            while stop < len(groups) and rows + groups[stop] <= ROWS:
                rows += groups[stop]
                stop += 1
            yield Piece(rows, partial(self._groups, range(start, stop), columns))
            start = stop

    def _groups(self, run: range, columns: list[str]) -> list[Any]:
        with explained(self._path, ".parquet"), self._open(metadata=self._metadata) as file:
            table = file.read_row_groups(list(run), columns=columns, use_threads=False)
            batches: list[Any] = table.to_batches()
            return batches

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        with (
            explained(self._path, ".parquet"),
            self._open(metadata=self._metadata, buffer_size=BUFFER) as file,
        ):
            yield from file.iter_batches(ROWS, columns=columns, use_threads=False)


class ArrowTable:
    """An Arrow file or stream, Feather too, in the batches that it was written in."""

    def __init__(self, path: str) -> None:
        self._path = path
        schema = self._open(None).schema
        self.names, self.types = schema.names, dict(zip(schema.names, schema.types, strict=True))

    def pieces(self, columns: list[str]) -> Iterator[Piece]:
        """Yield the batches, cut where they are long."""
        yield from _read_already(self._batches(columns))

    def _open(self, columns: list[str] | None) -> Any:
        pa = arrow(".arrow")
        from pyarrow import ipc

        fields = [self.names.index(name) for name in columns] if columns else None
        options = ipc.IpcReadOptions(included_fields=fields)
        try:
            return ipc.open_file(pa.OSFile(self._path), options=options)
        except pa.ArrowInvalid:
            return ipc.open_stream(pa.OSFile(self._path), options=options)

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        with explained(self._path, ".arrow"):
            reader = self._open(columns)
            count = getattr(reader, "num_record_batches", None)
            batches = reader if count is None else map(reader.get_batch, range(count))
            for batch in batches:
                for start in range(0, batch.num_rows, ROWS):
                    yield batch.slice(start, ROWS)


@dataclass(frozen=True)
class _Span:
    """Where the table lies in a CSV file, between blank lines and a byte order mark."""

    start: int
    stop: int
    names: list[str]
    """Of its columns: f0, f1, ... where it has no header."""
    header: bool
    empty: bool
    """Whether there is nothing but a header."""
    lines_before: int
    """Blank lines above it."""


class CsvTable:
    """A CSV file, parsed block by block; a first line of numbers means that it has no header."""

    def __init__(self, path: str) -> None:
        self._path, self._span = path, _span(path)
        self.names = self._span.names
        self.types: dict[str, Any] = {}  # each cell is parsed by itself

    def pieces(self, columns: list[str]) -> Iterator[Piece]:
        """Yield the rows, block by block."""
        if not self._span.empty:
            yield from _read_already(self._batches(columns))

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        pa = arrow(".csv")
        from pyarrow import csv as arrow_csv

        span = self._span
        types = dict.fromkeys(columns, pa.string()) | {columns[0]: pa.float64()}
        with explained(self._path, ".csv"), pa.OSFile(self._path) as file:
            try:
                yield from arrow_csv.open_csv(
                    file.get_stream(span.start, span.stop - span.start),
                    arrow_csv.ReadOptions(
                        use_threads=False,  # which lets errors name the row
                        block_size=BLOCK,
                        column_names=span.names,
                        skip_rows=int(span.header),
                    ),
                    arrow_csv.ParseOptions(ignore_empty_lines=False),
                    arrow_csv.ConvertOptions(
                        column_types=types,
                        include_columns=columns,
                        null_values=[""],  # "nan" is refused later
                        strings_can_be_null=True,
                    ),
                )
            except pa.ArrowInvalid as error:
                raise self._in_words(error, columns[0]) from None

    def _in_words(self, error: Exception, column: str) -> Exception:
        """Count rows from 0 below the header, as everywhere, and add the line."""
        match = re.search(r"Row #(\d+): (.*)", str(error), re.S)
        if match is None:
            return error
        row = int(match[1]) - 1 - self._span.header
        where = f"row {row} (line {self._span.lines_before + int(match[1])})"
        cell = re.search(r"CSV conversion .*invalid value '(.*)'", match[2], re.S)
        if cell is not None:
            return InvalidFile(
                f"{self._path}, column {column}, {where}: {cell[1]!r:.60} is not a number"
            )
        reason = " ".join(match[2].split())[:160]
        return InvalidFile(f"{self._path} is not a valid .csv file: {where}: {reason}")


def _read_already(batches: Iterator[Any]) -> Iterator[Piece]:
    """Yield batches that one thread must read in order, one batch ahead."""
    for batch in one_ahead(batches):
        yield Piece(batch.num_rows, partial(list, [batch]))


def _span(path: str) -> _Span:
    blank, edge = b" \t\r\n", 1 << 20
    with open(path, "rb") as file:
        head = file.read(edge)
        size = file.seek(0, 2)
        file.seek(max(0, size - edge))
        stop = (
            size - edge + len(file.read().rstrip(blank)) if size > edge else len(head.rstrip(blank))
        )
    mark = len(head) - len(head.removeprefix(b"\xef\xbb\xbf"))
    start = mark + len(head[mark:]) - len(head[mark:].lstrip(blank))
    if stop <= start:
        raise InvalidFile(f"{path} is empty; it must hold one value for each owner")
    lines = head[start:stop].splitlines()
    line = lines[0]
    refuse_other_separators(path, [each.decode("utf-8", "replace") for each in lines[:2]])
    names = [cell.strip() for cell in next(csv.reader([line.decode()]))]
    header = not all(map(is_number, names))
    return _Span(
        start,
        stop,
        names if header else [f"f{i}" for i in range(len(names))],
        header=header,
        empty=header and start + len(line) >= stop,
        lines_before=len(head[:start].splitlines()),
    )


READERS: dict[str, Callable[[str], TableFile]] = {
    ".parquet": ParquetTable,
    ".csv": CsvTable,
    ".arrow": ArrowTable,
    ".feather": ArrowTable,
}
