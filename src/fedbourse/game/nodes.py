"""Many budgets as few: what accuracy models need of them.

An accuracy model sums a smooth function over the participants' budgets. Where they are many, those
of a cell of relative width 2^-14 are replaced by two budgets with the same mean and spread, half
the cell's owners each: such a sum then changes by less than a relative 1e-12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.game.profile import Equilibrium

FEW = 1 << 12
"""Participants that are taken one by one."""

_OPEN = np.uint64(38)
"""Bits of a double that a cell leaves open."""
_OCTAVES = 64
"""Budgets below the largest by more powers of two than this are few, and taken one by one."""


def budget_nodes(found: Equilibrium) -> tuple[FloatArray, FloatArray]:
    """Return budgets, and how many participants each of them stands for."""
    if found.count <= FEW:
        return found.budgets, np.ones(found.count)
    if found.cheapest is None:
        cells = _Cells(float(found.budgets.max()))
        cells.add(found.budgets)
        return cells.nodes()
    cells = _Cells(float(found.budgets_of([found.cheapest])[0]))
    for values in found.values():
        budgets = found.budgets_of(values)
        cells.add(budgets[budgets > 0])
    return cells.nodes()


class _Cells:
    def __init__(self, largest: float) -> None:
        self._last = int(np.float64(largest).view(np.uint64) >> _OPEN)
        self._first = max(self._last - (_OCTAVES << 14), 0)
        size = self._last - self._first + 1
        self._counts, self._means, self._squares = np.zeros(size), np.zeros(size), np.zeros(size)
        self._small: list[FloatArray] = []

    def add(self, budgets: FloatArray) -> None:
        """Add budgets above 0."""
        bits = budgets.view(np.uint64)
        cells = (bits >> _OPEN).astype(np.int64) - self._first
        if len(cells) and cells.min() < 0:
            self._small.append(budgets[cells < 0])
            bits, cells = bits[cells >= 0], cells[cells >= 0]
        if not len(cells):
            return
        # Places within the cell, from -1/2 to 1/2 of it.
        places = (bits & np.uint64((1 << 38) - 1)).astype(np.float64) / (1 << 38) - 0.5
        low, high = int(cells.min()), min(int(cells.max()), self._last - self._first) + 1
        cells = np.minimum(cells, high - 1) - low
        self._counts[low:high] += np.bincount(cells, minlength=high - low)
        self._means[low:high] += np.bincount(cells, weights=places, minlength=high - low)
        self._squares[low:high] += np.bincount(cells, weights=places**2, minlength=high - low)

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Return two budgets for each cell, and half its owners for each."""
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
