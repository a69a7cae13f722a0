"""One core's scan of a chunk of owners: who may still take part, and who is counted in a bin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbourse.game.array_spans import BLOCK, blocks, select
from fedbourse.game.columns import FloatArray, IntArray, refuse_bad_bits
from fedbourse.game.cutoff import SLACK, find_cutoff
from fedbourse.game.outofcore.bins import Bin
from fedbourse.game.participants import OwnerTable, smallest

SAMPLE = 1 << 14
"""How many owners of a chunk give a first bound; twice as many candidates are worth pruning."""


class ChunkScan:
    """One core's scan of a span of the data, block by block."""

    def __init__(
        self,
        data: npt.NDArray[Any],
        buffer: FloatArray,
        bound: float,
        *,
        bins: list[int],
        lists_members: bool,
        where: str,
    ) -> None:
        self.data, self.buffer, self.bound, self.outsider = data, buffer, bound, math.inf
        self.bins = {first: Bin.empty(first) for first in bins}
        self._lists_members = lists_members
        self.members: list[tuple[int, FloatArray]] = []
        """Those who are counted in a bin, with the bin's first bits."""
        self.count, self.total, self.largest = 0, 0.0, 0.0
        self.rows: list[IntArray] = []
        self.prune_above = 4 * SAMPLE
        self._where = where
        self._mask = np.empty(BLOCK, np.bool_)

    def run(self, start: int, stop: int, first_row: int) -> ChunkScan:
        """Scan a span; ``first_row`` is that of the data's first owner."""
        self.first_row = first_row
        for low, high in blocks(start, stop):
            block = np.ascontiguousarray(self.data[low:high], dtype=np.float64)
            top = refuse_bad_bits("values", block, first_row + low, self._where)
            if self._lies_in_one_bin(block, top):
                continue
            inside = np.less_equal(block, self.bound, out=self._mask[: high - low])
            for first, one in self.bins.items():
                belongs = one.contains(block) & inside
                if belongs.any():
                    self._count(first, block[belongs])
                    inside &= ~belongs
            count = int(np.count_nonzero(inside))
            if count == len(block):
                self._append(block, np.arange(first_row + low, first_row + high), top)
            elif count:
                where = np.flatnonzero(inside)
                values = block.take(where)
                self._append(values, where + (first_row + low), float(values.max()))
            if self.count > self.prune_above:
                self._prune()
        return self

    def result(self, to_place: int, names: npt.NDArray[Any] | None) -> OwnerTable:
        """Return the candidates, in memory of their own: the buffer may be much larger."""
        rows = _joined(self.rows)
        row_names = None if names is None else names.take(rows - self.first_row)
        return OwnerTable(self.buffer[: self.count].copy(), rows + to_place, row_names)

    def _lies_in_one_bin(self, block: FloatArray, top: float) -> bool:
        """Count all of a block in one bin, if that is where they belong."""
        if top > self.bound:
            return False
        ends = np.array([block.min(), top])
        for first, one in self.bins.items():
            if one.contains(ends).all():
                self._count(first, block)
                return True
        return False

    def _count(self, first: int, members: FloatArray) -> None:
        self.bins[first] = self.bins[first].with_values(members)
        if self._lists_members:
            self.members.append((first, members))

    def _append(self, values: FloatArray, rows: IntArray, largest: float) -> None:
        self.buffer[self.count : self.count + len(values)] = values
        self.rows.append(rows)
        self.count += len(values)
        self.total += float(values.sum())
        self.largest = max(self.largest, largest)

    def _prune(self) -> None:
        """Lower the bound to the cutoff of the candidates, unless that would drop nobody."""
        if self.largest * (self.count - 1) >= self.total * (1 - SLACK):
            values = self.buffer[: self.count]
            cutoff = find_cutoff(values)
            if not cutoff.cheapest > 0:
                return  # a value of 0 is refused later, by its row
            inside = values <= cutoff.highest
            self.outsider = min(self.outsider, smallest(select(values, ~inside)))
            self.bound = min(self.bound, cutoff.tau * (1 + SLACK), below(self.outsider))
            self.rows = [select(_joined(self.rows), inside)]
            left = select(values, inside)
            self.count = len(left)
            self.buffer[: self.count] = left
            self.total, self.largest = float(left.sum()), float(left.max())
        self.prune_above = 2 * max(self.count, 2 * SAMPLE)


def below(outsider: float) -> float:
    """Return the bound that an outsider sets: everybody of its value stays out too."""
    return math.nextafter(outsider, 0.0)


def _joined(pieces: list[IntArray]) -> IntArray:
    return np.concatenate(pieces or [np.empty(0, np.int64)])
