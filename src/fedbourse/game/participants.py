"""Who takes part in a linear game, and the threshold that made them so."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidGame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy.typing as npt

    from fedbourse.game.columns import BoolArray, FloatArray, IntArray
    from fedbourse.game.threshold import Threshold

_ROW_BITS = 40  # of a place; those above count the source
ROWS_MAX = 1 << _ROW_BITS
SOURCES_MAX = 1 << (63 - _ROW_BITS)


@dataclass(frozen=True)
class Kept:
    """Owners one by one: their values, where they stand, and what they are called."""

    values: FloatArray
    places: IntArray
    """The row, and above its bits the number of the source."""
    names: npt.NDArray[Any] | None = None

    def only(self, inside: BoolArray) -> Kept:
        """Return some of the owners."""
        where = np.flatnonzero(inside)
        names = None if self.names is None else self.names.take(where)
        return Kept(self.values.take(where), self.places.take(where), names)


@dataclass(frozen=True)
class Participants:
    """The linear game's participants and the threshold that made them so."""

    owners: int
    """All of them, taking part or not."""
    threshold: Threshold
    cheapest_outsider: float
    """No owner who stays out has a value below this (infinite where everybody takes part)."""
    kept: Callable[[], Kept]
    """Returns them one by one, or refuses where they are too many."""
    sources: dict[str, int] = field(default_factory=dict)
    """How many rows each source had, in the order of reading; empty where there is but one."""
    read: Callable[[], Iterable[FloatArray]] | None = None
    """Reads all owners' values again, block by block, where they are too many to be held."""

    def values(self) -> Iterable[FloatArray]:
        """Return the values of all of them, and maybe of others, block by block."""
        return [self.kept().values] if self.read is None else self.read()


def together(pieces: list[Kept]) -> Kept:
    """Return several lots of owners as one."""
    if not pieces:
        return Kept(np.empty(0), np.empty(0, np.int64))
    named = {piece.names is not None for piece in pieces}
    if len(named) > 1:
        raise InvalidGame("either all owners have names, or none; found both")
    return Kept(
        np.concatenate([piece.values for piece in pieces]),
        np.concatenate([piece.places for piece in pieces]),
        np.concatenate([np.asarray(piece.names) for piece in pieces]) if True in named else None,
    )


def names_of(names: object, owners: int) -> npt.NDArray[Any] | None:
    """Return the owners' names as an array, one for each."""
    if names is None:
        return None
    found = np.asarray(names)
    if found.shape != (owners,):
        raise InvalidGame(f"names must hold one for each of {owners} owners; found {found.shape}")
    return found


def place_of(source: Any, row: Any) -> Any:
    """Return the place of a row of a source, both by number."""
    return (source << _ROW_BITS) + row


def source_of(place: Any) -> Any:
    """Return the number of the source that a place lies in."""
    return place >> _ROW_BITS


def row_of(place: Any) -> Any:
    """Return the row of a place."""
    return place & ((1 << _ROW_BITS) - 1)


def least(values: FloatArray) -> float:
    """Return the smallest value, infinity where there is none."""
    return float(values.min()) if len(values) else math.inf
