"""The correctly rounded sum of many doubles, at the speed of arrays.

``math.fsum`` is exact but walks one Python number at a time. Knuth's two-sum splits a + b into its
rounded value and the exact rest, so whole blocks can be added lane by lane with nothing lost: a
lane's rest goes to a second lane, and the second's rest to a third. While the third stays empty the
first two hold the exact sum, and fsum has only the lanes to add.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game.spans import BLOCK, blocks, on_every_core

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray


def exact_sum(values: FloatArray, *extra: float) -> float:
    """Return the correctly rounded sum of ``values`` and ``extra``: its sign is exact."""
    if len(values) <= 4 * BLOCK:
        return _fsum([*values.tolist(), *extra])
    lanes: list[float] = []
    for part in on_every_core(lambda start, stop: _lanes(values, start, stop), len(values)):
        if part is None:
            return _fsum([*values.tolist(), *extra])
        lanes += part
    return _fsum([*lanes, *extra])


def _lanes(values: FloatArray, start: int, stop: int) -> list[float] | None:
    """Return a few numbers with exactly the sum of values[start:stop], or None."""
    first, second = np.zeros(BLOCK), np.zeros(BLOCK)
    with np.errstate(over="ignore", invalid="ignore"):
        for low, high in blocks(start, stop):
            width = high - low
            first[:width], rest = _two_sum(first[:width], values[low:high])
            second[:width], lost = _two_sum(second[:width], rest)
            if np.any(lost):
                return None  # also when a lane overflows: its rest is NaN
    return [*first.tolist(), *second.tolist()]


def _two_sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return fl(a + b) and the exact rest."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def _fsum(terms: list[float]) -> float:
    try:
        return math.fsum(terms)
    except OverflowError:  # a partial sum passed 1.8e308; fractions have no such limit
        exact = sum(map(Fraction, terms), Fraction(0))
        return float(exact) if abs(exact) < Fraction(sys.float_info.max) else math.inf
