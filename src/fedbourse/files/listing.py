"""Which files a path means: one file, all tables in a directory, or all that a glob matches."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from fedbourse.errors import InvalidFile
from fedbourse.files.columns import cannot_be_read
from fedbourse.files.tables import READERS

_KINDS = f"{', '.join(list(READERS)[:-1])} or {list(READERS)[-1]}"


def tables_in(path: str) -> dict[str, str]:
    """Return the files that a path means, each by its path within the directory, in that order."""
    if os.path.isdir(path):
        files = list(_tables_below(path))
        if not files:
            raise InvalidFile(f"{path} must hold {_KINDS} files; found none")
        return _by_source(files, path)
    if os.path.exists(path) or not glob.has_magic(path):
        return {os.path.basename(path): _checked(path)}
    files = []
    for match in glob.glob(path, recursive=True):
        files += _tables_below(match) if os.path.isdir(match) else [_checked(match)]
    if not files:
        raise InvalidFile(f"{path} must match {_KINDS} files; it matches none")
    while glob.has_magic(path):  # up to the directory that all matches lie in
        path = os.path.dirname(path)
    return _by_source(files, path)


def _tables_below(directory: str) -> Iterator[str]:
    """Yield the tables in a directory and its subdirectories; names with . or _ are hidden.

    A file of another kind is refused: its owners would be left out silently.
    """

    def stop(error: OSError) -> None:
        raise cannot_be_read(error.filename, error) from None

    for folder, inner, files in os.walk(directory, onerror=stop):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "_")))
        for name in sorted(files):
            if name.startswith((".", "_")):
                continue
            if kind_of(name) not in READERS:
                raise InvalidFile(
                    f"{os.path.join(folder, name)} would be left out, as it does not end in "
                    f"{_KINDS}; unpack or convert it, take it out of the directory, let its name "
                    "start with _, or give a glob of those that count"
                )
            yield _checked(os.path.join(folder, name))


def kind_of(path: str) -> str:
    """Return the ending of a file's name."""
    return Path(path).suffix.lower()


def _checked(path: str) -> str:
    if not kind_of(path) and not os.path.lexists(path):
        raise InvalidFile(
            f"{path} does not exist; give a directory, or a file that ends in {_KINDS}"
        )
    if kind_of(path) not in READERS:
        raise InvalidFile(f"{path} must end in {_KINDS}; found {kind_of(path)!r}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InvalidFile(f"{path} must be a regular file; found a pipe, a socket or a device")
    return path


def _by_source(files: list[str], directory: str) -> dict[str, str]:
    by_path = {Path(os.path.relpath(file, directory or ".")).as_posix(): file for file in files}
    return dict(sorted(by_path.items()))
