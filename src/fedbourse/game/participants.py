"""Who takes part in a linear game, and the cutoff that decides it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import BoolArray, FloatArray, IntArray
from fedbourse.game.cutoff import CutoffRecord

_ROW_BITS = 40  # of a place; the bits above hold the number of the source
ROWS_MAX = 1 << _ROW_BITS
SOURCES_MAX = 1 << (63 - _ROW_BITS)


@dataclass(frozen=True)
class OwnerTable:
    """Individual owners: their values, places and names."""

    values: FloatArray
    places: IntArray
    """The row, and above its bits the number of the source."""
    names: npt.NDArray[Any] | None = None

    def only(self, inside: BoolArray) -> OwnerTable:
        """Return some of the owners."""
        return self.take(np.flatnonzero(inside))

    def take(self, rows: IntArray) -> OwnerTable:
        """Return these rows, in this order."""
        names = None if self.names is None else self.names.take(rows)
        return OwnerTable(self.values.take(rows), self.places.take(rows), names)

    @classmethod
    def concat(cls, tables: list[OwnerTable]) -> OwnerTable:
        """Return several tables as one."""
        if not tables:
            return cls(np.empty(0), np.empty(0, np.int64))
        named = {table.names is not None for table in tables}
        if len(named) > 1:
            raise InvalidGame("either all owners have names, or none; found both")
        return cls(
            np.concatenate([table.values for table in tables]),
            np.concatenate([table.places for table in tables]),
            np.concatenate([np.asarray(table.names) for table in tables])
            if True in named
            else None,
        )


@dataclass(frozen=True)
class ParticipantSet:
    """The linear game's participants and their cutoff."""

    owners: int
    """All of them, taking part or not."""
    cutoff: CutoffRecord
    cheapest_outsider: float
    """No owner who stays out has a value below this (infinite where everybody takes part)."""
    members: OwnerTable | Callable[[], OwnerTable]
    """The participants, or a function that lists them, or refuses where they are too many."""
    sources: dict[str, int] = field(default_factory=dict)
    """The number of rows of each source, in the order of reading; empty where there is only one."""
    read: Callable[[], Iterable[FloatArray]] | None = None
    """Reads all owners' values again, block by block, where they are too many to be held."""

    def table(self) -> OwnerTable:
        """List the participants."""
        return self.members if isinstance(self.members, OwnerTable) else self.members()

    def values(self) -> Iterable[FloatArray]:
        """Return the values of all of them, and maybe of others, block by block."""
        return [self.table().values] if self.read is None else self.read()


def checked_names(names: object, owners: int) -> npt.NDArray[Any] | None:
    """Return the owners' names as an array, one for each."""
    if names is None:
        return None
    array = np.asarray(names)
    if array.shape != (owners,):
        raise InvalidGame(f"names must hold one for each of {owners} owners; found {array.shape}")
    return array


def place_of(source: Any, row: Any) -> Any:
    """Return the place of a row of a source, both by number."""
    return (source << _ROW_BITS) + row


def source_and_row(place: Any) -> tuple[Any, Any]:
    """Return the number of the source and the row of a place."""
    return place >> _ROW_BITS, place & (ROWS_MAX - 1)


def smallest(values: FloatArray) -> float:
    """Return the smallest value, infinity where there is none."""
    return float(values.min()) if len(values) else math.inf
