"""The owners' values that ``FILE[:COLUMN]`` names: a column, or a stream of too many."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

from fedbourse.files.column_file import read_column, split_spec
from fedbourse.files.owners import USUAL, owners_in
from fedbourse.files.tables import READERS
from fedbourse.game.column_files import read_files_with
from fedbourse.game.outofcore.stream import Stream

STREAMED_ABOVE = 256 << 20
"""Bytes of a file that is not read as a whole."""


def is_streamed(path: str) -> bool:
    """Say whether values are read chunk by chunk: a directory, a glob, or a large table."""
    if os.path.exists(path):
        large = os.path.isfile(path) and os.path.getsize(path) > STREAMED_ABOVE
        return os.path.isdir(path) or (large and Path(path).suffix.lower() in READERS)
    return glob.has_magic(path)


def read_values(spec: str) -> Stream | Any:
    """Return the values as a column, or as a stream."""
    path, column = split_spec(spec)
    return owners_in(path, column=column) if is_streamed(path) else read_column(spec, *USUAL)


class FilesForTheGame:
    """What the game asks for columns in files."""

    def column(self, spec: str, *names: str) -> Any:
        """Return a column as an array."""
        return read_column(spec, *names)

    def values(self, spec: str) -> Any:
        """Return the owners' values: an array, or a ``Stream``."""
        return read_values(spec)


read_files_with(FilesForTheGame())
