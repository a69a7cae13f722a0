"""Many budgets as few: what accuracy models need of them.

An accuracy model sums a smooth function over the participants' budgets. Where they are many, those
of a bin of relative width 2^-14 are replaced by two budgets with the same mean and spread, half the
bin's owners each: such a sum then changes by less than a relative 1e-12.
"""

from __future__ import annotations

import numpy as np

from fedbourse.game.columns import FloatArray
from fedbourse.game.profile import Equilibrium

FEW = 1 << 12
"""Participants that are taken individually."""

_OPEN = np.uint64(38)
"""Bits of a double that a bin leaves open."""
_OCTAVES = 64
"""Budgets below the largest by more powers of two than this are few, and taken individually."""


def budget_quadrature(equilibrium: Equilibrium) -> tuple[FloatArray, FloatArray]:
    """Return budgets, and how many participants each of them stands for."""
    if equilibrium.count <= FEW:
        return equilibrium.budgets, np.ones(equilibrium.count)
    if equilibrium.cheapest is None:
        histogram = _BudgetHistogram(float(equilibrium.budgets.max()))
        histogram.add(equilibrium.budgets)
        return histogram.points()
    histogram = _BudgetHistogram(float(equilibrium.budgets_of([equilibrium.cheapest])[0]))
    for values in equilibrium.values():
        budgets = equilibrium.budgets_of(values)
        histogram.add(budgets[budgets > 0])
    return histogram.points()


class _BudgetHistogram:
    def __init__(self, largest: float) -> None:
        self._last = int(np.float64(largest).view(np.uint64) >> _OPEN)
        self._first = max(self._last - (_OCTAVES << 14), 0)
        size = self._last - self._first + 1
        self._counts, self._means, self._squares = np.zeros(size), np.zeros(size), np.zeros(size)
        self._small: list[FloatArray] = []

    def add(self, budgets: FloatArray) -> None:
        """Add budgets above 0."""
        bits = budgets.view(np.uint64)
        bins = (bits >> _OPEN).astype(np.int64) - self._first
        if len(bins) and bins.min() < 0:
            self._small.append(budgets[bins < 0])
            bits, bins = bits[bins >= 0], bins[bins >= 0]
        if not len(bins):
            return
        # Places within the bin, from -1/2 to 1/2 of it.
        places = (bits & np.uint64((1 << 38) - 1)).astype(np.float64) / (1 << 38) - 0.5
        low, high = int(bins.min()), min(int(bins.max()), self._last - self._first) + 1
        bins = np.minimum(bins, high - 1) - low
        self._counts[low:high] += np.bincount(bins, minlength=high - low)
        self._means[low:high] += np.bincount(bins, weights=places, minlength=high - low)
        self._squares[low:high] += np.bincount(bins, weights=places**2, minlength=high - low)

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Return two budgets for each bin, and half its owners for each."""
        filled = np.flatnonzero(self._counts)
        counts = self._counts[filled]
        means = self._means[filled] / counts
        spreads = np.sqrt(np.maximum(self._squares[filled] / counts - means**2, 0.0))
        lows = ((filled + self._first).astype(np.uint64) << _OPEN).view(np.float64)
        widths = np.spacing(lows) * 2.0**38
        both = [lows + widths * (0.5 + means + side * spreads) for side in (-1.0, 1.0)]
        small = np.concatenate([*self._small, np.empty(0)])
        return (
            np.concatenate([*both, small]),
            np.concatenate([counts / 2, counts / 2, np.ones(len(small))]),
        )
