"""Roots of falling functions: of one number to full precision, and of many numbers at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import FloatArray

LOG_LIMIT = 690.0
"""The largest |ln x| that is looked at: beyond lies what a double can hardly hold."""


def falling_root(excess: Callable[[float], float], start: float = 1.0) -> float:
    """Return the positive number at which a falling function is zero, by Brent's method in ln x."""
    from scipy.optimize import brentq

    def at(log_x: float) -> float:
        return excess(math.exp(log_x))

    low = high = math.log(start)
    step = 0.5
    while at(low) < 0:
        high, low, step = low, _within(low - step), 2 * step
    while at(high) > 0:
        low, high, step = high, _within(high + step), 2 * step
    return math.exp(brentq(at, low, high, xtol=1e-15, rtol=1e-15)) if low < high else math.exp(low)


def falling_roots(
    is_positive: Callable[[FloatArray], npt.NDArray[np.bool_]], shape: tuple[int, ...]
) -> FloatArray:
    """Return, entry by entry, where falling functions of a positive number stop being positive.

    Bisection in ln x: it needs the sign only, so overflow to infinity does no harm.
    """
    low, high = np.full(shape, -LOG_LIMIT), np.full(shape, LOG_LIMIT)
    with np.errstate(all="ignore"):
        for _ in range(64):
            middle = (low + high) / 2
            positive = is_positive(np.exp(middle))
            low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    roots: FloatArray = np.exp(low)
    return roots


def _within(log_x: float) -> float:
    if abs(log_x) >= 2 * LOG_LIMIT:
        raise InvalidGame(
            "the total budget lies beyond what a float can hold (1e-300 to 1e300); "
            "measure values and reward in other units"
        )
    return max(-LOG_LIMIT, min(log_x, LOG_LIMIT))
