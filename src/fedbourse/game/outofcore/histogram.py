"""How many owners have which value, roughly: enough to place a total budget and its slope."""

from __future__ import annotations

import math

import numpy as np

from fedbourse.game.columns import FloatArray


class Histogram:
    """Owners counted in bins of relative width 2^-10: 48 MB, whatever their number."""

    _SHIFT = np.uint64(42)

    def __init__(self) -> None:
        self.owners, self.least, self.largest = 0, math.inf, 0.0
        self._counts, self._offsets = np.zeros(1 << 21), np.zeros(1 << 21)

    def add(self, values: FloatArray) -> None:
        """Count more owners."""
        bits = values.view(np.uint64)
        bins = (bits >> self._SHIFT).astype(np.int64)
        offsets = (bits & np.uint64((1 << 42) - 1)).astype(np.float64)
        low, high = int(bins.min()), int(bins.max()) + 1
        bins -= low
        self._counts[low:high] += np.bincount(bins, minlength=high - low)
        self._offsets[low:high] += np.bincount(bins, weights=offsets, minlength=high - low)
        self.owners += len(values)
        self.least = min(self.least, float(values.min()))
        self.largest = max(self.largest, float(values.max()))

    def others(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean value of each bin and its number of owners, the cheapest left out."""
        counts, offsets = self._counts.copy(), self._offsets.copy()
        bits = int(np.float64(self.least).view(np.uint64))
        counts[bits >> 42] -= 1
        offsets[bits >> 42] -= bits & ((1 << 42) - 1)
        filled = np.flatnonzero(counts)
        lows = (filled.astype(np.uint64) << self._SHIFT).view(np.float64)
        return lows + np.spacing(lows) * (offsets[filled] / counts[filled]), counts[filled]


class FineHistogram:
    """The same between two values, in a million bins of equal width."""

    def __init__(self, least: float, top: float) -> None:
        self.least, self._top = least, top
        self._width = (top - least) / (1 << 20)
        self._counts, self._sums = np.zeros((1 << 20) + 1), np.zeros((1 << 20) + 1)

    def add(self, values: FloatArray) -> None:
        """Count those who do not lie above the upper end."""
        gaps = values[values <= self._top] - self.least
        bins = (gaps / self._width).astype(np.int64)
        self._counts += np.bincount(bins, minlength=len(self._counts))
        self._sums += np.bincount(bins, weights=gaps, minlength=len(self._counts))

    def others(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean value of each bin and its number of owners, the cheapest left out."""
        counts = self._counts.copy()
        counts[0] -= 1  # its gap is 0
        filled = np.flatnonzero(counts)
        return self.least + self._sums[filled] / counts[filled], counts[filled]
