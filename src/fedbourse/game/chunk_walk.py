"""One core's walk over a chunk of owners: who may still take part, and who joins a crowd."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.game.columns import FloatArray, IntArray, refuse_bad_bits
from fedbourse.game.crowd import empty_crowd
from fedbourse.game.participants import Kept, least
from fedbourse.game.spans import BLOCK, blocks, chosen
from fedbourse.game.threshold import SLACK, threshold

if TYPE_CHECKING:
    import numpy.typing as npt

SAMPLE = 1 << 14
"""How many owners of a chunk give a first bound; twice as many kept are worth a look at them."""


class ChunkWalk:
    """One core's walk over a span of the data, block by block."""

    def __init__(
        self,
        data: npt.NDArray[Any],
        room: FloatArray,
        bound: float,
        *,
        cells: list[int],
        lists_members: bool,
        where: str,
    ) -> None:
        """Take the data, room for what is kept, and the cells of the crowds that there are."""
        self.data, self.room, self.bound, self.outsider = data, room, bound, math.inf
        self.crowds = {first: empty_crowd(first) for first in cells}
        self._lists_members = lists_members
        self.members: list[tuple[int, FloatArray]] = []
        """Those who joined a crowd, with the crowd's cell."""
        self.kept, self.total, self.largest = 0, 0.0, 0.0
        self.rows: list[IntArray] = []
        self.prune_above = 4 * SAMPLE
        self._where = where
        self._mask = np.empty(BLOCK, np.bool_)

    def run(self, start: int, stop: int, first_row: int) -> ChunkWalk:
        """Walk over a span; ``first_row`` is that of the data's first owner."""
        self.first_row = first_row
        for low, high in blocks(start, stop):
            block = np.ascontiguousarray(self.data[low:high], dtype=np.float64)
            top = refuse_bad_bits("values", block, first_row + low, self._where)
            if self._is_of_one_crowd(block, top):
                continue
            inside = np.less_equal(block, self.bound, out=self._mask[: high - low])
            for first, crowd in self.crowds.items():
                belongs = crowd.contains(block) & inside
                if belongs.any():
                    self._join(first, block[belongs])
                    inside &= ~belongs
            count = int(np.count_nonzero(inside))
            if count == len(block):
                self._keep(block, np.arange(first_row + low, first_row + high), top)
            elif count:
                where = np.flatnonzero(inside)
                found = block.take(where)
                self._keep(found, where + (first_row + low), float(found.max()))
            if self.kept > self.prune_above:
                self._prune()
        return self

    def _is_of_one_crowd(self, block: FloatArray, top: float) -> bool:
        """Let all of a block join a crowd, if that is where they belong."""
        if top > self.bound:
            return False
        for first, crowd in self.crowds.items():
            ends = np.array([block.min(), top])
            if crowd.contains(ends).all():
                self._join(first, block)
                return True
        return False

    def _join(self, cell: int, members: FloatArray) -> None:
        self.crowds[cell] = self.crowds[cell].joined_by(members)
        if self._lists_members:
            self.members.append((cell, members))

    def result(self, to_place: int, names: npt.NDArray[Any] | None) -> Kept:
        """Return what is kept, in memory of its own: the room may be much larger."""
        rows = _joined(self.rows)
        called = None if names is None else names.take(rows - self.first_row)
        return Kept(self.room[: self.kept].copy(), rows + to_place, called)

    def _keep(self, values: FloatArray, rows: IntArray, largest: float) -> None:
        self.room[self.kept : self.kept + len(values)] = values
        self.rows.append(rows)
        self.kept += len(values)
        self.total += float(values.sum())
        self.largest = max(self.largest, largest)

    def _prune(self) -> None:
        """Lower the bound to the threshold of what is kept, unless that would drop nobody."""
        if self.largest * (self.kept - 1) >= self.total * (1 - SLACK):
            values = self.room[: self.kept]
            found = threshold(values)
            if not found.cheapest > 0:
                return  # who keeps all of them will say where
            inside = values <= found.dearest
            self.outsider = min(self.outsider, least(chosen(values, ~inside)))
            self.bound = min(self.bound, found.tau * (1 + SLACK), below(self.outsider))
            self.rows = [chosen(_joined(self.rows), inside)]
            left = chosen(values, inside)
            self.kept = len(left)
            self.room[: self.kept] = left
            self.total, self.largest = float(left.sum()), float(left.max())
        self.prune_above = 2 * max(self.kept, 2 * SAMPLE)


def below(outsider: float) -> float:
    """Return the bound that one who stays out sets: whoever is as dear stays out too."""
    return math.nextafter(outsider, 0.0)


def _joined(pieces: list[IntArray]) -> IntArray:
    return np.concatenate(pieces or [np.empty(0, np.int64)])
