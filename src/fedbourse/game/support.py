"""The linear game's participants from one pass over any number of owners, without a sort.

Adding owners can only lower the threshold: whoever stays out of a subset's equilibrium stays out of
the whole one. So the participants of a union are the participants of the parts' participants put
together: a summary that can be merged in any order, grouping and number of machines, and holds only
those who may still take part.

One pass: a small sample gives a first bound; blocks stream through the cache, and only values below
the bound are kept; when what is kept has doubled, its own threshold is the next bound, and whoever
it keeps out, decided exactly, is dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import BoolArray, FloatArray, IntArray, column, refuse_first
from fedbourse.game.rules import too_few
from fedbourse.game.spans import BLOCK, blocks, chosen, on_every_core
from fedbourse.game.threshold import SLACK, Threshold, if_everybody_joins, threshold

if TYPE_CHECKING:
    import numpy.typing as npt

SAMPLE = 1 << 14

# Read as integers, the bits of positive finite doubles lie below those of infinity, and those of
# NaN and of every negative number (-0.0 too) above them: one maximum finds them all.
_INFINITY_BITS = np.float64(np.inf).view(np.uint64)


@dataclass(frozen=True)
class Participants:
    """The linear game's participants and the threshold that made them so."""

    positions: IntArray | range
    values: FloatArray
    threshold: Threshold
    cheapest_outsider: float
    """No owner who stays out has a value below this (infinite where everybody takes part)."""


class Support:
    """Those owners of a linear game who may still take part; grows and merges."""

    def __init__(self, *, first_position: int = 0) -> None:
        """Start with nobody; the first owner added gets the position ``first_position``."""
        self.owners = 0
        self._next = first_position
        self._bound = math.inf
        self._outsider = math.inf
        self._largest = 0.0
        self._kept: list[_Kept] = []
        self._prune_above = 4 * SAMPLE

    def add(self, values: object) -> None:
        """Add a column of owners' values; positions go on from those added before."""
        data = column("values", values)
        self._bound = min(self._bound, _bound_by_sample(data))
        room = np.empty(len(data))  # pages that are never written cost nothing

        def work(start: int, stop: int) -> _Scan:
            return _Scan(data, room[start:stop], self._bound).run(start, stop, self._next)

        scans = on_every_core(work, len(data))
        if sum(scan.kept for scan in scans) == len(data):
            self._kept.append(_Kept(room, range(self._next, self._next + len(data))))
        else:
            self._kept += [scan.result() for scan in scans]
        self._bound = min([self._bound, *(scan.bound for scan in scans)])
        self._outsider = min([self._outsider, *(scan.outsider for scan in scans)])
        self._largest = max([self._largest, *(scan.largest for scan in scans)])
        self.owners += len(data)
        self._next += len(data)
        self._prune_if_doubled()

    def merge(self, other: Support) -> None:
        """Take over another summary's owners; positions stay as they are."""
        if other is self:
            raise InvalidGame(
                "a support cannot be merged with itself: its owners would count twice"
            )
        self._kept += other._kept
        self._bound = min(self._bound, other._bound)
        self._outsider = min(self._outsider, other._outsider)
        self._largest = max(self._largest, other._largest)
        self.owners += other.owners
        self._next = max(self._next, other._next)
        self._prune_if_doubled()

    def participants(self) -> Participants:
        """Return who takes part, decided strictly: an owner at the threshold stays out."""
        if self.owners < 2:
            raise InvalidGame(too_few(self.owners))
        kept, found = self._collect(), None
        if len(kept.values) == self.owners:  # nobody was ever dropped
            found = if_everybody_joins(kept.values, self._largest)
        found = found or _threshold_of(kept)
        if found.count == self.owners:
            return Participants(kept.positions, kept.values, found, math.inf)
        kept, outsider = kept.without_outsiders(found)
        outsider = min(outsider, self._outsider, self._bound)
        return Participants(kept.positions, kept.values, found, outsider)

    def _collect(self) -> _Kept:
        """Return all that is kept as one column, in the order of positions."""
        if len(self._kept) > 1:
            values = np.concatenate([kept.values for kept in self._kept])
            positions = np.concatenate([array_of(kept.positions) for kept in self._kept])
            if (np.diff(positions) < 0).any():  # merged out of order
                queue = np.argsort(positions)
                values, positions = values[queue], positions[queue]
            if (np.diff(positions) == 0).any():
                twice = int(positions[np.argmin(np.diff(positions))])
                raise InvalidGame(f"position {twice} was added twice: give parts a first_position")
            self._kept = [_Kept(values, positions)]
        return self._kept[0]

    def _prune_if_doubled(self) -> None:
        size = sum(len(kept.values) for kept in self._kept)
        if len(self._kept) == 1 or size <= self._prune_above:
            return
        kept = self._collect()
        found = _threshold_of(kept)
        kept, outsider = kept.without_outsiders(found)
        self._kept, self._outsider = [kept], min(self._outsider, outsider)
        self._bound = min(self._bound, found.tau * (1 + SLACK))
        self._prune_above = 2 * max(len(self._kept[0].values), 2 * SAMPLE)


def array_of(positions: IntArray | range) -> IntArray:
    """Write a range of positions out as an array."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, dtype=np.int64)
    return positions


@dataclass(frozen=True)
class _Kept:
    values: FloatArray
    positions: IntArray | range

    def only(self, inside: BoolArray) -> _Kept:
        where = np.flatnonzero(inside)
        if isinstance(self.positions, range):
            return _Kept(self.values.take(where), where + self.positions.start)
        return _Kept(self.values.take(where), self.positions.take(where))

    def without_outsiders(self, found: Threshold) -> tuple[_Kept, float]:
        """Return who takes part in the equilibrium of these alone, and the cheapest other."""
        inside = self.values <= found.dearest
        outsiders = chosen(self.values, ~inside)
        return self.only(inside), float(outsiders.min()) if len(outsiders) else math.inf


class _Scan:
    """One core's walk over a span of the data, block by block."""

    def __init__(self, data: npt.NDArray[Any], room: FloatArray, bound: float) -> None:
        self.data, self.room, self.bound, self.outsider = data, room, bound, math.inf
        self.kept, self.total, self.largest = 0, 0.0, 0.0
        self.positions: list[IntArray | range] = []
        self.prune_above = 4 * SAMPLE
        self._mask = np.empty(BLOCK, np.bool_)

    def run(self, start: int, stop: int, offset: int) -> _Scan:
        for low, high in blocks(start, stop):
            block = np.ascontiguousarray(self.data[low:high], dtype=np.float64)
            top = block.view(np.uint64).max()
            if top >= _INFINITY_BITS:
                wrong = ~((block > 0) & np.isfinite(block))
                refuse_first("values", block, wrong, "a finite number above 0", offset + low)
            inside = np.less_equal(block, self.bound, out=self._mask[: high - low])
            count = int(np.count_nonzero(inside))
            if count == len(block):
                self._keep(block, range(offset + low, offset + high), float(top.view(np.float64)))
            elif count:
                where = np.flatnonzero(inside)
                found = block.take(where)
                self._keep(found, where + (offset + low), float(found.max()))
            if self.kept > self.prune_above:
                self._prune()
        return self

    def result(self) -> _Kept:
        """Return what is kept, in memory of its own: the room may be much larger."""
        return _Kept(self.room[: self.kept].copy(), _joined(self.positions))

    def _keep(self, values: FloatArray, positions: IntArray | range, largest: float) -> None:
        self.room[self.kept : self.kept + len(values)] = values
        self.positions.append(positions)
        self.kept += len(values)
        self.total += float(values.sum())
        self.largest = max(self.largest, largest)

    def _prune(self) -> None:
        """Lower the bound to the threshold of what is kept, unless that would drop nobody."""
        if self.largest * (self.kept - 1) >= self.total * (1 - SLACK):
            kept = _Kept(self.room[: self.kept], _joined(self.positions))
            found = _threshold_of(kept)
            kept, outsider = kept.without_outsiders(found)
            self.outsider = min(self.outsider, outsider)
            self.bound = min(self.bound, found.tau * (1 + SLACK))
            self.kept, self.positions = len(kept.values), [kept.positions]
            self.room[: self.kept] = kept.values
            self.total, self.largest = float(kept.values.sum()), float(kept.values.max())
        self.prune_above = 2 * max(self.kept, 2 * SAMPLE)


def _bound_by_sample(data: npt.NDArray[Any]) -> float:
    """Return a bound on the threshold from a few values spread over the data."""
    if len(data) <= 4 * SAMPLE:
        return math.inf
    sample = np.array(data[:: len(data) // SAMPLE], dtype=np.float64)
    if not (np.isfinite(sample).all() and sample.min() > 0):  # the scan will say where
        return math.inf
    return threshold(sample).tau * (1 + SLACK)


def _threshold_of(kept: _Kept) -> Threshold:
    found = threshold(kept.values)
    if not found.cheapest > 0:  # zeros are never dropped, so every zero is found here
        first = int(np.argmin(kept.values))
        raise InvalidGame(
            f"values[{kept.positions[first]}] must be a finite number above 0; "
            f"found {kept.values[first]}"
        )
    return found


def _joined(pieces: list[IntArray | range]) -> IntArray:
    return np.concatenate([array_of(piece) for piece in pieces] or [np.empty(0, np.int64)])
