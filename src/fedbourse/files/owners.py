"""Owners' values in files, as a stream of chunks, for more than memory holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidFile
from fedbourse.files.columns import arrow, chosen_column, is_numeric, refuse_nulls
from fedbourse.files.listing import kind_of, tables_in
from fedbourse.files.read_ahead import Piece, in_order
from fedbourse.files.tables import open_table
from fedbourse.game.outofcore.stream import ROWS, Chunk, Stream

USUAL = ("value", "values")
"""Usual names of a column of values."""

NAMED_ROWS = 1 << 17
"""Rows of a chunk with names, which as Python strings take ten times the memory."""


def owners_in(
    path: str | os.PathLike[str], *, column: str | None = None, names: str | None = None
) -> Stream:
    """Return the owners' values in files as a stream, to be read as often as needed.

    ``path`` is a file, a directory with all tables in it, or a glob: .parquet, .csv, .arrow and
    .feather. Values are the numbers in ``column``; where none is named, in the only one, or in
    the one called value or values. Owners are identified by file and row, from 0 in each file; or
    by the column ``names``.

    A few million rows are held at a time, some 100 MB, however large the files are; of Arrow files
    a few of the batches that they were written in.

    >>> import pathlib, tempfile
    >>> from fedbourse import equilibrium
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "north.csv"
    >>> _ = file.write_text("owner,value\\nann,1\\nben,5\\ncid,1.5\\n")
    >>> equilibrium(owners_in(folder.name), reward=10).who
    [('north.csv', 0), ('north.csv', 2)]
    >>> equilibrium(owners_in(file, names="owner"), reward=10).who
    ['ann', 'cid']
    >>> folder.cleanup()
    """
    files = tables_in(os.fspath(path))
    arrow(next(map(kind_of, files.values())))
    return Stream(lambda: _chunks(files, column, names))


@dataclass
class _Part:
    """A file whose rows are being read."""

    source: str
    path: str
    column: str
    row: int = 0


def _chunks(files: dict[str, str], column: str | None, names: str | None) -> Iterator[Chunk]:
    """Yield all rows, file by file."""
    step = ROWS if names is None else NAMED_ROWS
    for part, batch in in_order(_pieces(files, column, names)):
        for start in range(0, batch.num_rows, step):
            yield _chunk(part, batch.slice(start, step), names)


def _pieces(files: dict[str, str], column: str | None, names: str | None) -> Iterator[Piece]:
    for source, path in files.items():
        table = open_table(path, kind_of(path))
        column = chosen_column(path, table.names, column, USUAL, "with column=")  # of all files
        if names is not None:
            chosen_column(path, table.names, names, (), "")
        kind = table.types.get(column)
        if kind is not None and not is_numeric(kind):
            raise InvalidFile(f"{path}, column {column}, must hold numbers; found {kind}")
        part = _Part(source, path, column)
        for piece in table.pieces([column] if names in (None, column) else [column, names]):
            yield Piece(piece.rows, partial(_of, part, piece))


def _chunk(part: _Part, batch: Any, names: str | None) -> Chunk:
    first, part.row = part.row, part.row + batch.num_rows
    values = _cells(part, batch, part.column, first)
    if str(values.type).startswith("decimal"):
        values = values.cast("float64")
    owners = None if names is None else _objects(_cells(part, batch, names, first))
    return Chunk(values.to_numpy(zero_copy_only=False), owners, part.source)


def _cells(part: _Part, batch: Any, name: str, first_row: int) -> Any:
    column = batch.column(name)
    column = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
    refuse_nulls(part.path, name, column, first_row)
    return column


def _of(part: _Part, piece: Piece) -> list[tuple[_Part, Any]]:
    return [(part, batch) for batch in piece.read()]


def _objects(names: Any) -> npt.NDArray[Any]:
    """Return names as a NumPy array: whole numbers and texts as such, all else as objects."""
    array: npt.NDArray[Any] = names.to_numpy(zero_copy_only=False)
    if array.dtype.kind in "iuO":
        return array
    return np.asarray(names.to_pylist(), dtype=object)
