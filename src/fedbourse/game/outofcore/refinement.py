"""A bin's owners counted in finer bins, for a cutoff that lies within it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import FloatArray
from fedbourse.game.outofcore.bins import Bin, double_of

_STEP = 20
"""Bits that a refinement decides: what it leaves open of a bin is 2^-40 of the values."""


class Refinement:
    """A bin's owners counted by the next digits of their values: 16 MB."""

    def __init__(self, coarse: Bin) -> None:
        self.coarse = coarse
        self._shift = max(coarse.open_bits - _STEP, 0)
        self._counts = np.zeros(1 << (coarse.open_bits - self._shift), np.int64)
        self._offsets = np.zeros_like(self._counts)

    def add(self, values: FloatArray) -> None:
        """Count those of the values that belong to the bin."""
        offsets = (values.view(np.uint64) - np.uint64(self.coarse.first)).view(np.int64)
        members = offsets[self.coarse.contains(values)]
        parts = members >> self._shift
        np.add.at(self._counts, parts, 1)
        np.add.at(self._offsets, parts, members & ((1 << self._shift) - 1))

    def merge(self, other: Refinement) -> None:
        """Count another refinement's owners of the same bin too."""
        self._counts += other._counts
        self._offsets += other._offsets

    def parts(self, joins: Callable[[Bin], bool]) -> list[Bin]:
        """Return those who take part, as one bin, and the finer bin that is still undecided.

        ``joins`` says whether all owners of a bin take part. It is called some twenty times: if
        some owners do, so do all cheaper ones.
        """
        owners = int(self._counts.sum())
        if owners < self.coarse.count:  # it may be more: whoever was out already is counted again
            raise InvalidGame(
                f"a source must hold the same owners at every reading; found {owners} where there "
                f"were {self.coarse.count}, with values from {self.coarse.least:.17g} on"
            )
        filled = np.flatnonzero(self._counts)
        counts = self._counts[filled].astype(object)
        starts = (filled << self._shift).astype(object)
        inner = self._offsets[filled].astype(object)
        count_sums, offset_sums = np.cumsum(counts), np.cumsum(starts * counts + inner)
        origin, width = self.coarse.first, 1 << self._shift

        def cheapest(parts: int) -> Bin:
            """Return the owners of the first parts as one bin."""
            return replace(
                self.coarse,
                count=count_sums[parts - 1],
                offsets=offset_sums[parts - 1],
                least=double_of(origin + int(starts[0])),
                largest=double_of(origin + int(starts[parts - 1]) + width - 1),
            )

        low, high = 0, len(filled)  # parts before low take part; part high does not, wholly
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if joins(cheapest(middle + 1)) else (low, middle)
        inside = [cheapest(low)] if low else []
        if low == len(filled) or not self._shift:
            return inside
        first = origin + int(starts[low])
        ends = double_of(first), double_of(first + width - 1)
        return [*inside, Bin(first, self._shift, counts[low], inner[low], *ends)]
