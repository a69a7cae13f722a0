"""How results are held: as a frame, as plain JSON types, as a figure, and shown in a notebook.

A result says what its facts and its rows are, and what its figure shows; everything else is here,
once for all results. The game draws nothing itself: ``fedbourse.figures``, a layer above, says here
that it draws when it is imported, which importing ``fedbourse`` does.
"""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidInput, MissingExtra

Library = Literal["pandas", "polars"]
LIBRARIES: tuple[Library, ...] = ("pandas", "polars")
Columns = Mapping[str, Any]
"""Names to columns of one length: arrays or lists."""

SHOWN = 10
"""Rows that a notebook shows."""
_SHORT = 60


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    label: str
    x: npt.NDArray[Any]
    y: npt.NDArray[Any]


@dataclass(frozen=True)
class Chart:
    """What a figure shows, whoever draws it."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    kind: Literal["lines", "points", "histogram"] = "lines"
    """A histogram counts the y of its lines."""


Draw = Callable[[Chart, Any], Any]
"""Draws a chart into the axes given, or into new ones, and returns them."""
_draw: list[Draw] = []


def draw_with(draw: Draw) -> None:
    """Let this function draw the charts of results."""
    _draw[:] = [draw]


class Presentable(ABC):
    """A result that can be held as a frame, as plain JSON types or as a figure."""

    @abstractmethod
    def _facts(self) -> dict[str, object]:
        """Return what a line says of it: numbers and texts by name."""

    @abstractmethod
    def _rows(self) -> Columns:
        """Return its rows, column by column."""

    @abstractmethod
    def _chart(self) -> Chart:
        """Return what its figure shows."""

    def to_frame(self, library: Library | None = None) -> Any:
        """Return the rows as a frame, of pandas or Polars: by default whichever is installed."""
        return frame(self._rows(), library)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it: the kind, the facts, and the rows as a list.

        Numbers are in full; what is no finite number is None.
        """
        columns = {name: [plain(each) for each in column] for name, column in self._rows().items()}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        facts = {name: plain(fact) for name, fact in self._facts().items()}
        return {"kind": type(self).__name__, **facts, "rows": rows}

    def plot(self, axes: Any = None) -> Any:
        """Draw the figure into matplotlib's axes, or into new ones, and return them."""
        if not _draw:
            raise MissingExtra("a figure needs fedbourse.figures, which is not imported")
        return _draw[0](self._chart(), axes)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={_short(fact)}" for name, fact in self._short_facts().items())
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        """Return the facts and the first rows, for a notebook."""
        title = html.escape(type(self).__name__)
        facts = {name: [fact] for name, fact in self._short_facts().items()}
        return f"<p><b>{title}</b></p>{_html(facts)}{self._first_rows()}"

    def _short_facts(self) -> dict[str, object]:
        """Return the facts that a line has: those that say something."""
        return {name: fact for name, fact in self._facts().items() if fact not in ("", None)}

    def _first_rows(self) -> str:
        columns = self._rows()
        count = max((len(column) for column in columns.values()), default=0)
        if not count:
            return ""
        more = f"<p>and {count - SHOWN} rows more</p>" if count > SHOWN else ""
        return _html({name: column[:SHOWN] for name, column in columns.items()}) + more


def frame(columns: Columns, library: Library | None = None) -> Any:
    """Return columns as a frame of the library, or of the first that is installed."""
    if library not in (None, *LIBRARIES):
        raise InvalidInput(f"library must be 'pandas' or 'polars'; found {library!r:.60}")
    installed = [each for each in LIBRARIES if find_spec(each) is not None]
    if not installed or library not in (None, *installed):
        raise MissingExtra(
            f"a frame needs {library or 'pandas or Polars'}, which is not installed: pip install "
            f"{library or 'pandas'}"
        )
    if (library or installed[0]) == "polars":
        import polars

        return polars.DataFrame(dict(columns))
    import pandas

    return pandas.DataFrame(dict(columns))


def plain(thing: object) -> Any:
    """Return a number, a text or None for what may be NumPy's, or of a caller's own kind."""
    if isinstance(thing, np.generic):
        thing = thing.item()
    if isinstance(thing, float) and not math.isfinite(thing):
        return None
    return thing if thing is None or isinstance(thing, (bool, int, float, str)) else str(thing)


def _short(thing: object) -> str:
    thing = plain(thing)
    return f"{thing:.6g}" if isinstance(thing, float) else f"{thing!r:.{_SHORT}}"


def _html(columns: Columns) -> str:
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    rows = zip(*columns.values(), strict=True)
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(each))}</td>" for each in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>"


def _cell(thing: object) -> str:
    return thing if isinstance(thing, str) else "" if plain(thing) is None else _short(thing)
