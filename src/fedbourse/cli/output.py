"""How commands print: one JSON document for programs, or lines, facts and tables for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from string import Formatter
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fedbourse.cli.files import check_writable, write_bytes
from fedbourse.privacy.loss import EPSILON_HEADS, epsilon_text
from fedbourse.units import credits_text

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = Group("Output")  # without a sort key: it comes last on every help page
_FILE_WIDTH = 160
_PATIENCE_S = 1.0
_WORDS_WIDTH = 24  # what a column of words keeps in a narrow terminal

Block = str | Mapping[str, object] | Table | Text
"""What people read: a line, facts by name, a table, or a text in colours."""

Blocks = Iterator[Block]
Column = str | Callable[[Any], object]
"""A column of a table: a format string such as {budget:.6f}, or a function of a row."""


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True, kw_only=True)
class Output:
    """For whom a command prints.

    Parameters
    ----------
    json
        Print one JSON document.
    """

    json: Annotated[bool, Parameter(negative=())] = False

    def show(self, document: Any, in_words: Callable[[Any], Block | Iterable[Block]]) -> None:
        """Print a document at once, as it is or in words."""
        if self.json:
            print(json.dumps(document, allow_nan=False), flush=True)
            return
        shown = in_words(document)
        print_blocks(*([shown] if isinstance(shown, (str, Mapping, Table, Text)) else shown))

    def event_notes(
        self, in_words: Callable[[dict[str, Any]], str]
    ) -> Callable[[dict[str, Any]], None]:
        """Return a function that notes an event on standard error; none without words."""

        def note(event: dict[str, Any]) -> None:
            if line := json.dumps(event) if self.json else in_words(event):
                print_note(line)

        return note


PEOPLE = Output()
"""What a command prints without --json."""


def print_blocks(*blocks: Block) -> None:
    """Print for people, on standard output."""
    for block in blocks:
        if isinstance(block, str):
            console().print(plain(block), soft_wrap=True)
        elif isinstance(block, Mapping):
            width = max(map(len, block))
            print_blocks(*(f"{name:>{width}}  {fact}" for name, fact in block.items()))
        else:
            console().print(block, crop=False)


def write_document(document: object, out: Path | None, what: str, *notes: str) -> None:
    """Write a document to a file, or print it where none is named; notes are for people."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if out is None:
        print(text, end="")
        for note in notes:
            print_note(note)
    else:
        check_writable(out, new=not out.exists() or out.is_file())
        write_bytes(out, text.encode())
        print_blocks(f"{what} is in {out}", *notes)


def print_note(line: str) -> None:
    """Print a line about the work that goes on, on standard error."""
    with suppress(OSError, ValueError):  # nobody listens: the work goes on
        print(plain(line), file=sys.stderr, flush=True)


@contextmanager
def progress_bar(what: str, *, transient: bool = False) -> Iterator[Callable[..., None]]:
    """Show a bar while the block runs; it yields ``advance(done, of, what)``."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=transient) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of, now=what: progress.update(
            task, completed=done, total=of, description=now
        )


@contextmanager
def late_progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar, gone at the end, of work that mostly takes less than a second, if it takes more.

    It yields ``advance(done, of)``. Where nobody watches a terminal, nothing is shown: what a
    command prints does not depend on how fast it is.
    """
    since = monotonic()
    if not Console(stderr=True).is_terminal:
        yield lambda _done, _of: None
        return
    with ExitStack() as stack:
        advance: Callable[..., None] | None = None

        def late(done: int, of: int) -> None:
            nonlocal advance
            if advance is None and monotonic() - since > _PATIENCE_S:
                advance = stack.enter_context(progress_bar(what, transient=True))
            if advance is not None:
                advance(done, of)

        yield late


def table(rows: Iterable[Any], columns: Mapping[str, Column]) -> Table:
    """Return a table; a column is aligned to the right, or to the left if its head starts with <.

    Ids and amounts, on the right, stay in one piece, to be read and copied; words make room, but
    stay readable however narrow the terminal is.
    """
    shown = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[_cell(row, column) for column in columns.values()] for row in rows]
    for i, head in enumerate(columns):
        if head.startswith("<"):
            widest = max([len(head) - 1, *(len(row[i]) for row in cells)])
            shown.add_column(head[1:], overflow="fold", min_width=min(widest, _WORDS_WIDTH))
        else:
            widths = [*map(len, head.split("\n")), *(len(row[i]) for row in cells)]
            shown.add_column(head, justify="right", min_width=max(widths))
    for row in cells:
        shown.add_row(*row)
    return shown


def _cell(row: Any, column: Column) -> Text:
    cell = column(row) if callable(column) else _CELLS.vformat(column, (), row)
    return cell if isinstance(cell, Text) else Text(plain(cell))


class _Cells(Formatter):
    """Python's format strings, which also know how people read credits, moments and epsilons."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value as its specification says; a dash for none."""
        if format_spec in _FORMS:
            return _FORMS[format_spec](value)
        return "-" if value is None else str(super().format_field(value, format_spec))


def epsilon_columns(prefix: str = "") -> dict[str, str]:
    """Return the columns of both epsilons of a document; ``prefix`` is that of their names."""
    one_record, whole_owner = EPSILON_HEADS
    return {
        one_record: f"{{{prefix}epsilon_one_record:epsilon}}",
        whole_owner: f"{{{prefix}epsilon_whole_owner:epsilon}}",
    }


def console() -> Console:
    """Return where people read; a file or a pipe has room for whole lines."""
    if sys.stdout is None:
        raise BrokenPipeError  # nobody reads
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return _Console(
        width=None if narrow else _FILE_WIDTH, markup=False, highlight=False, emoji=False
    )


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, which knows that a reader may have seen enough."""
        raise BrokenPipeError


def plain(value: object) -> str:
    """Return a text that a terminal shows as it is, whoever wrote it.

    >>> plain("a\\x1b[2Jb")
    'a [2Jb'
    """
    return "".join(c if c.isprintable() else " " for c in str(value))


def moment(at_ms: int | None, *, seconds: bool = True) -> str:
    """Return a moment as people write it, in UTC.

    >>> moment(0)
    '1970-01-01 00:00:00'
    """
    if at_ms is None:
        return "-"
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(at_ms // 1000, tz=UTC).strftime(form)


def credits_or_dash(micro: int | None) -> str:
    """Return an amount in credits."""
    return "-" if micro is None else credits_text(micro)


_CELLS = _Cells()
_FORMS: dict[str, Callable[[Any], str]] = {
    "credits": credits_or_dash,
    "epsilon": epsilon_text,
    "minute": lambda at_ms: moment(at_ms, seconds=False),
    "second": moment,
}
