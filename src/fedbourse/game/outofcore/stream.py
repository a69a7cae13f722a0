"""Owners' values that come in chunks: more of them than memory holds.

A stream is anything that can be read chunk by chunk: a list or iterator of arrays, a function that
starts such an iterator, an Arrow or Parquet dataset, a table read from a database. Owners keep
their identity: the place among all, the file and row, or a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.column_files import loaded_values

ROWS = 1 << 20
"""How many values a chunk holds where the source does not say: 8 MB."""


ONCE_ONLY = (
    "an iterator can be read once only, and this game needs another reading; give a list, a "
    "dataset or a function that starts the iterator"
)


@dataclass(frozen=True)
class Chunk:
    """Some owners' values, in the order of the source."""

    values: object
    """A column of numbers."""
    names: object = None
    """The names of these owners, if they have any."""
    source: str = ""
    """Where rows are counted: a file, say. Chunks of one source follow each other."""


@dataclass(frozen=True)
class Stream:
    """A source of chunks."""

    read: Callable[[], Iterable[object]]
    """Starts at the first chunk: of ``Chunk``, or of plain columns."""
    again: bool = True
    """Whether it can be called a second time."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks, from the first."""
        for chunk in self.read():
            yield chunk if isinstance(chunk, Chunk) else Chunk(_plain(chunk))


def stream_or_column(data: object) -> object:
    """Return the ``Stream`` that ``data`` is, or the column of numbers."""
    data = loaded_values(data)
    if isinstance(data, Stream):
        return data
    if hasattr(data, "to_batches"):  # Arrow's datasets, tables and scanners
        return Stream(lambda: _batches(data))
    if callable(data):
        return Stream(lambda: _started(data))
    if isinstance(data, (list, tuple)) and data and _is_column(data[0]):
        return Stream(lambda: data)
    return _of_iterator(data) if isinstance(data, Iterator) else data


def _of_iterator(data: Iterator[object]) -> object:
    """Look at the first thing that an iterator yields: a chunk, or a number."""
    first = next(data, None)
    if not (_is_column(first) or isinstance(first, (list, tuple))):
        return [] if first is None else [first, *data]
    used = False

    def read() -> Iterator[object]:
        nonlocal used
        if used:
            raise InvalidGame(ONCE_ONLY)
        used = True
        yield first
        yield from data

    return Stream(read, again=False)


def _is_column(item: object) -> bool:
    return isinstance(item, Chunk) or (hasattr(item, "__array__") and hasattr(item, "__len__"))


def _started(function: Callable[[], Any]) -> Iterable[object]:
    chunks = function()
    if not isinstance(chunks, Iterable):
        raise InvalidGame(
            f"a function of owners' values must return an iterator of arrays; found "
            f"{type(chunks).__name__}"
        )
    return chunks


def _batches(data: Any) -> Iterator[object]:
    """Yield the one column of Arrow data, batch by batch."""
    for batch in data.to_batches():
        columns = getattr(batch, "num_columns", 1)
        if columns != 1:
            raise InvalidGame(
                f"a dataset of owners' values must have one column; found {columns}: "
                f"{', '.join(map(str, batch.schema.names[:5]))}"
            )
        yield batch.column(0) if hasattr(batch, "column") else batch


def _plain(chunk: object) -> object:
    """Return a chunk of Arrow data as NumPy sees it, without copying where that can be."""
    if hasattr(chunk, "null_count") and not chunk.null_count and hasattr(chunk, "to_numpy"):
        return np.asarray(chunk.to_numpy(zero_copy_only=False))
    return chunk
