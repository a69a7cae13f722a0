"""Which column of a table holds the numbers, and errors where a file has none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedbourse.errors import InvalidFile, MissingExtra


def arrow(kind: str) -> Any:
    """Return pyarrow, which is an extra."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra(
            f"reading {kind} files needs pyarrow, which is not installed: "
            "pip install 'fedbourse[files]'"
        ) from None
    return pyarrow


@contextmanager
def explained(name: str, kind: str) -> Iterator[None]:
    """Turn errors of pyarrow and of the system about a file into one sentence."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{name} is not UTF-8 text: byte {error.start} is wrong") from None
    except (arrow(kind).ArrowException, OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise cannot_be_read(name, error) from None
        reason = " ".join(str(error).split())[:160]
        raise InvalidFile(f"{name} is not a valid {kind} file: {reason}") from None


def cannot_be_read(name: str, error: OSError) -> InvalidFile:
    """Return the error for a file that the system does not let us read."""
    return InvalidFile(f"{name} cannot be read: {os.strerror(error.errno or 0)}")


def refuse_other_separators(name: str, lines: Sequence[str]) -> None:
    """Refuse text whose first two lines are cut by semicolons or tabs, as many spreadsheets do."""
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if lines and all(separator in line for line in lines[:2]) and not _has_commas(lines[0]):
            raise InvalidFile(
                f"{name} separates its columns by {word}, and must by commas; its first line is "
                f"{lines[0]!r:.60}: write it again with commas, and decimals with a point"
            )


def _has_commas(line: str) -> bool:
    """Say whether commas separate columns, rather than the decimals of numbers."""
    cells = line.replace("\t", ";").split(";")
    return "," in line and not all(is_number(cell.strip().replace(",", ".")) for cell in cells)


def chosen_column(
    name: str, names: Sequence[str], wanted: str | None, usual: Sequence[str], how: str
) -> str:
    """Return the requested column, or the only one, or the only one with a usual name."""
    if wanted is None:
        candidates = [n for n in names if n in usual] if len(names) > 1 else list(names)
        if len(candidates) != 1:
            raise InvalidFile(f"{name} has the columns {listed(names)}; name one, {how}")
        wanted = candidates[0]
    if list(names).count(wanted) != 1:
        raise InvalidFile(f"{name} must have one column {wanted!r}; it has {listed(names)}")
    return wanted


def is_numeric(kind: Any) -> bool:
    """Say whether an Arrow type is numeric, or null (a column of empty cells)."""
    types = arrow("Arrow").types
    if types.is_dictionary(kind):
        return is_numeric(kind.value_type)
    tests = (types.is_floating, types.is_integer, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def refuse_nulls(name: str, column_name: str, column: Any, first_row: int = 0) -> None:
    """Refuse a column of Arrow data with an empty cell."""
    if column.null_count:
        import pyarrow.compute as pc

        row = first_row + pc.index(column.is_null(), True).as_py()
        raise InvalidFile(f"{name}, column {column_name}, row {row}: the cell is empty")


def is_number(cell: str) -> bool:
    """Say whether text reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def listed(names: Sequence[str]) -> str:
    """Return the first twenty names as text."""
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
