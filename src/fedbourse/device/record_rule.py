"""What a record becomes: features and a label, by this record and the card alone.

``RecordRule.record`` is the rule. ``read_columns`` gives the same for whole columns, faster where
they are arrays of numbers; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fedbourse.device.cells import LabelRule, Range, Reason, number_in
from fedbourse.tasks.class_names import class_key
from fedbourse.tasks.layout import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    import numpy.typing as npt

    from fedbourse.game.columns import BoolArray, FloatArray
    from fedbourse.tasks.layout import Layout

    Cells = npt.NDArray[Any] | Sequence[object]

_RECORDS_MAX = 10_000_000
_EXAMPLES = 3
_SHOWN = 40


class RecordSpec(Protocol):
    """What a card, or a recipe, says of records."""

    @property
    def layout(self) -> Layout | None:
        """How an owner's table becomes records."""

    @property
    def features(self) -> int:
        """Numbers in a record, the constant 1 included."""

    @property
    def classes(self) -> int:
        """Classes that are told apart; 0 where labels are numbers."""

    @property
    def samples(self) -> int:
        """m: the divisor of an update."""


class Record(NamedTuple):
    """One record as a card counts it."""

    features: tuple[float, ...]
    """Scaled, with the constant 1 at the end."""
    label: float


class Misfit(NamedTuple):
    """Why one record does not fit."""

    reason: Reason
    column: str | None
    """The first column that does not fit; None where it is the record as a whole."""
    shown: str
    """What was found, for the owner's eyes."""


class RawRecord(NamedTuple):
    """One record as its source has it."""

    cells: Sequence[object]
    label: object


@dataclass(frozen=True)
class MisfitGroup:
    """Records that do not fit for one reason."""

    reason: str
    column: str | None
    count: int
    rows: tuple[int, ...]
    """Where the first of them stand."""
    shown: str
    """What the first of them holds."""


@dataclass(frozen=True, eq=False)
class RecordTable:
    """All records of an owner that fit a card, and what is to say of those that do not."""

    features: FloatArray
    labels: FloatArray
    count: int
    """All records, whether they fit or not."""
    misfits: tuple[MisfitGroup, ...]


_CONSTANT = Column("constant", low=1.0, high=1.0)


class RecordRule:
    """A card's rule for records."""

    def __init__(self, spec: RecordSpec) -> None:
        layout = spec.layout
        columns = layout.columns if layout else ()
        if layout is None:
            columns = tuple(Column(f"column {i}") for i in range(1, spec.features))
        self._columns = tuple(columns)
        self._ranges = [Range.between(each.low, each.high) for each in (*columns, _CONSTANT)]
        # Where the card has no layout the constant 1 may stand at the end.
        self._with_constant = None if layout else (*self._columns, _CONSTANT)
        self._label = layout.label if layout else "label"
        names = layout.classes if layout else ()
        self._label_rule = LabelRule(
            names={class_key(name): number for number, name in enumerate(names)},
            classes=spec.classes,
            range=Range.between(layout.label_low, layout.label_high) if layout else Range(),
        )

    @property
    def width(self) -> int:
        """How many cells a record has besides its label."""
        return len(self._columns)

    def allows(self, width: int) -> bool:
        """Say whether a record may have so many cells besides its label."""
        return self._of_width(width) is not None

    def _of_width(self, width: int) -> tuple[Column, ...] | None:
        if width == len(self._columns):
            return self._columns
        constant = self._with_constant
        return constant if constant is not None and width == len(constant) else None

    def record(self, raw: RawRecord) -> Record | Misfit:
        """Return what a record becomes, or why it does not fit."""
        columns = self._of_width(len(raw.cells))
        if columns is None:
            shown = f"{len(raw.cells)} cells instead of {len(self._columns)}"
            return Misfit(Reason.WRONG_CELLS, None, shown)
        features = []
        for column, allowed, cell in zip(columns, self._ranges, raw.cells, strict=False):
            number = number_in(cell, allowed)
            if isinstance(number, Reason):
                return Misfit(number, column.name, _shown(cell))
            features.append((number - column.shift) / column.scale)
        label = self._label_rule.label_in(raw.label)
        if isinstance(label, Reason):
            return Misfit(label, self._label, _shown(raw.label))
        return Record((*features[: len(self._columns)], 1.0), label)

    def read_rows(self, rows: Iterable[tuple[int, RawRecord | Misfit]]) -> RecordTable:
        """Read records one after another, each with its place in the source.

        A source has ten million at most; what follows is not looked at.
        """
        records, tally = [], _Tally()
        for row, raw in islice(rows, _RECORDS_MAX):
            record = raw if isinstance(raw, Misfit) else self.record(raw)
            if isinstance(record, Misfit):
                tally.add(row, record)
            else:
                records.append((*record.features, record.label))
        table = np.array(records, dtype=np.float64).reshape(-1, len(self._columns) + 2)
        count = len(records) + sum(group.count for group in tally.groups)
        return RecordTable(table[:, :-1], table[:, -1], count, tally.groups)

    def read_columns(self, cells: Sequence[Cells], labels: Cells) -> RecordTable:
        """Read records whose cells come column by column, as many as there are labels.

        There must be as many columns as the card allows.
        """
        columns = self._of_width(len(cells))
        assert columns is not None
        count = len(labels)
        table = np.ones((count, len(self._columns) + 1))
        numbers, fits = self._labels(labels)
        for i, (column, column_cells) in enumerate(zip(columns, cells, strict=True)):
            raw, in_range = _numbers(column_cells, self._ranges[i])
            fits &= in_range
            if i < len(self._columns):
                with np.errstate(all="ignore"):  # cells that do not fit are left out below
                    table[:, i] = (raw - column.shift) / column.scale
        tally = _Tally()
        for row in np.flatnonzero(~fits).tolist():
            misfit = self.record(RawRecord([each[row] for each in cells], labels[row]))
            assert isinstance(misfit, Misfit)
            tally.add(row + 1, misfit)
        return RecordTable(table[fits], numbers[fits], count, tally.groups)

    def _labels(self, labels: Cells) -> tuple[FloatArray, BoolArray]:
        if not self._label_rule.names and not self._label_rule.classes:
            return _numbers(labels, self._label_rule.range)
        return _each(self._label_rule.label_in(label) for label in _list(labels))


def _numbers(cells: Cells, range: Range) -> tuple[FloatArray, BoolArray]:
    """Return a column's numbers, and which cells fit: for each what ``number_in`` returns."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            numbers = cells.astype(np.float64)
        return numbers, (numbers >= range.low) & (numbers <= range.high)
    return _each(number_in(cell, range) for cell in _list(cells))


def _each(outcomes: Iterable[float | Reason]) -> tuple[FloatArray, BoolArray]:
    numbers = [np.nan if isinstance(each, Reason) else each for each in outcomes]
    array = np.array(numbers, dtype=np.float64)
    return array, ~np.isnan(array)  # no number that fits is NaN


def _list(cells: Cells) -> Sequence[object]:
    return cells.tolist() if isinstance(cells, np.ndarray) else cells


class _Tally:
    """Counts records that do not fit, by reason and column."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Reason, str | None], MisfitGroup] = {}

    def add(self, row: int, misfit: Misfit) -> None:
        reason, column, shown = misfit
        empty = MisfitGroup(reason.value, column, 0, (), shown)
        group = self._groups.get((reason, column), empty)
        rows = (*group.rows, row)[:_EXAMPLES]
        self._groups[reason, column] = replace(group, count=group.count + 1, rows=rows)

    @property
    def groups(self) -> tuple[MisfitGroup, ...]:
        """Return them, the largest first."""
        return tuple(sorted(self._groups.values(), key=lambda group: -group.count))


def _shown(cell: object) -> str:
    """Return a cell as text that a terminal can show, whatever it is."""
    try:
        text = cell.value if isinstance(cell, Reason) else repr(cell)
    except Exception:  # an object of the application's own
        text = f"a {type(cell).__name__}"
    shown = "".join(c if c.isprintable() else "?" for c in text[: _SHOWN + 1])
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
