"""Columns that are still in files: the game names a file, and a layer above reads it.

The game knows no file format. ``fedbourse.files`` reads tables, and says so here when it is
imported, which importing ``fedbourse`` does. Only functions that a caller gives columns to look at
paths; what market and devices compute from never does.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

from fedbourse.errors import InvalidGame


class ColumnFiles(Protocol):
    """What reads columns of numbers from ``FILE[:COLUMN]``."""

    def column(self, spec: str, *names: str) -> Any:
        """Return a column as an array; ``names`` are its usual names, where none is named."""
        ...

    def values(self, spec: str) -> Any:
        """Return the owners' values: an array, or a ``Stream`` of more than memory holds."""
        ...


_readers: list[ColumnFiles] = []


def read_files_with(reader: ColumnFiles) -> None:
    """Let this reader read the columns that callers name by their files."""
    _readers[:] = [reader]


def loaded(name: str, data: object, *usual: str) -> Any:
    """Return the column of a file that a caller named; anything else as it is."""
    if not isinstance(data, (str, os.PathLike)):
        return data
    return _reader(name).column(os.fspath(data), name, *usual)


def loaded_values(data: object) -> Any:
    """Return the owners' values in the files that a caller named; anything else as it is."""
    if not isinstance(data, (str, os.PathLike)):
        return data
    return _reader("values").values(os.fspath(data))


def _reader(name: str) -> ColumnFiles:
    if not _readers:
        raise InvalidGame(f"{name} cannot be read from a file before fedbourse.files is imported")
    return _readers[0]
