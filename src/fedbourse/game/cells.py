"""How many owners have which value, roughly: enough to place a total budget and its slope."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray


class Cells:
    """How many owners have which value, to a relative 2^-10: 48 MB, whatever their number."""

    _SHIFT = np.uint64(42)

    def __init__(self) -> None:
        """Start with nobody."""
        self.owners, self.least, self.largest = 0, math.inf, 0.0
        self._counts = np.zeros(1 << 21)
        self._offsets = np.zeros(1 << 21)

    def add(self, values: FloatArray) -> None:
        """Count more owners."""
        bits = values.view(np.uint64)
        cells = (bits >> self._SHIFT).astype(np.int64)
        offsets = (bits & np.uint64((1 << 42) - 1)).astype(np.float64)
        low, high = int(cells.min()), int(cells.max()) + 1
        cells -= low
        self._counts[low:high] += np.bincount(cells, minlength=high - low)
        self._offsets[low:high] += np.bincount(cells, weights=offsets, minlength=high - low)
        self.owners += len(values)
        self.least = min(self.least, float(values.min()))
        self.largest = max(self.largest, float(values.max()))

    def others(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean value of each cell and its number of owners, the cheapest left out."""
        counts, offsets = self._counts.copy(), self._offsets.copy()
        bits = int(np.float64(self.least).view(np.uint64))
        counts[bits >> 42] -= 1
        offsets[bits >> 42] -= bits & ((1 << 42) - 1)
        filled = np.flatnonzero(counts)
        lows = (filled.astype(np.uint64) << self._SHIFT).view(np.float64)
        return lows + np.spacing(lows) * (offsets[filled] / counts[filled]), counts[filled]


class FineCells:
    """The same between two values, in a million cells of equal width."""

    def __init__(self, least: float, top: float) -> None:
        """Start with nobody."""
        self.least, self._top = least, top
        self._width = (top - least) / (1 << 20)
        self._counts, self._sums = np.zeros((1 << 20) + 1), np.zeros((1 << 20) + 1)

    def add(self, values: FloatArray) -> None:
        """Count those who do not lie above the upper end."""
        gaps = values[values <= self._top] - self.least
        cells = (gaps / self._width).astype(np.int64)
        self._counts += np.bincount(cells, minlength=len(self._counts))
        self._sums += np.bincount(cells, weights=gaps, minlength=len(self._counts))

    def others(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean value of each cell and its number of owners, the cheapest left out."""
        counts = self._counts.copy()
        counts[0] -= 1  # its gap is 0
        filled = np.flatnonzero(counts)
        return self.least + self._sums[filled] / counts[filled], counts[filled]
