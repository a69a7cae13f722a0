"""The files that commands read and write."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fedbourse.errors import CannotWrite, InvalidFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TOKEN_BYTES_MAX = 4096


def read_bytes(path: Path, *, at_most: int) -> bytes:
    """Return what is in a file; - is standard input."""
    try:
        if str(path) == "-":
            content = sys.stdin.buffer.read(at_most + 1)
        else:
            with path.open("rb") as file:
                content = file.read(at_most + 1)
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > at_most:
        raise InvalidFile(f"{path} is longer than the {at_most} bytes that are read")
    return content


def read_token(path: Path) -> str:
    """Return the one token that a file holds; - is standard input."""
    words = read_bytes(path, at_most=_TOKEN_BYTES_MAX).split()
    if len(words) != 1 or not words[0].isascii():
        raise InvalidFile(f"{path} must hold one token and nothing else; it does not")
    return words[0].decode("ascii")


def write_bytes(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file, whole or not at all; a private one only where there is none yet.

    Links are followed, and what is no plain file, such as a pipe, is written into.
    """
    path = path if private else path.resolve()
    try:
        if not private and path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _write_whole(path, content, private=private)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None


def _write_whole(path: Path, content: bytes, *, private: bool) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if private:
            os.link(draft, path)
        else:
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def check_writable(path: Path, *, new: bool = False) -> None:
    """Refuse a file that cannot be written before anything is done that cannot be undone."""
    if new and path.exists():
        raise CannotWrite(f"{path} exists already; name another file")
    if path.is_file() and not os.access(path, os.W_OK):
        raise CannotWrite(f"{path} cannot be written: it is read-only")
    if path.is_dir() or not (path.exists() or os.access(path.parent, os.W_OK)):
        raise CannotWrite(f"{path} cannot be written; its folder must exist and be yours")


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make a folder before the work begins, and remove it again if it is empty when that fails."""
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException as error:
        if new:
            with suppress(OSError):  # something is in it
                folder.rmdir()
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise CannotWrite(f"{folder} cannot be written to: {reason}") from None
        raise
