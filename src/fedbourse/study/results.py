"""What studies return, as rows: a sequence of records that is a frame and a figure too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from fedbourse.game.presentation import Presentable

if TYPE_CHECKING:
    from fedbourse.game.presentation import Columns

Row = TypeVar("Row")


@dataclass(frozen=True, repr=False)
class StudyRows(Presentable, Sequence[Row], Generic[Row]):
    """The rows of a finished study."""

    rows: tuple[Row, ...]

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, place: int | slice) -> Row | tuple[Row, ...]:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def _facts(self) -> dict[str, object]:
        return {"records": len(self.rows)}

    def _rows(self) -> Columns:
        return columns_of([flat(asdict(row)) for row in self.rows])  # type: ignore[call-overload]


def flat(record: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Return a record of records as one, with the names joined.

    >>> flat({"reward": 1, "measured": {"value": 0.5, "margin": 0.1}})
    {'reward': 1, 'measured_value': 0.5, 'measured_margin': 0.1}
    """
    result: dict[str, object] = {}
    for name, thing in record.items():
        if isinstance(thing, dict):
            result |= flat(thing, f"{prefix}{name}_")
        else:
            result[f"{prefix}{name}"] = thing
    return result


def columns_of(records: Sequence[dict[str, Any]]) -> Columns:
    """Return records that all have the same names, column by column."""
    return {name: [record[name] for record in records] for name in (records or [{}])[0]}
