"""Privacy loss in zero-concentrated differential privacy (zCDP), and the noise that spends it.

Every number here is about neighbours that differ in ONE RECORD of an owner. The same noise
protects the owner's m records as a whole too, at m^2 times the budget: see ``whole_owner``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import overload

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidNumber
from fedbourse.units import number, rounded_up, whole_number

FloatArray = npt.NDArray[np.float64]

DELTA = 1e-5
"""The delta of every epsilon that people are shown."""

_KNOTS = 256  # budgets at which a long column of epsilons is computed; see _lines
_LEAST_DELTA = 1e-300
_SMALLEST, _LARGEST = 1e-30, 1e5  # budgets that are given to dp-accounting


@overload
def noise_scale(rho: float, *, clip: float, samples: float, iterations: int) -> float: ...
@overload
def noise_scale(
    rho: FloatArray, *, clip: float, samples: float | FloatArray, iterations: int
) -> FloatArray: ...


def noise_scale(
    rho: float | FloatArray, *, clip: float, samples: float | FloatArray, iterations: int
) -> float | FloatArray:
    """Return the standard deviation of the noise in each coordinate of each update.

    An update is the mean of ``samples`` gradients, each clipped to norm ``clip``: exchanging ONE
    RECORD moves it by at most 2 clip / samples. Gaussian noise of this scale then costs
    rho / iterations of zCDP an update, rho in all, and samples^2 times as much about a whole owner.

    >>> noise_scale(0.1, clip=1.0, samples=1000, iterations=500)
    0.1
    """
    clip = number("clip", clip, above=0)
    iterations = whole_number("iterations", iterations, at_least=1)
    try:
        budgets, records = np.asarray(rho, float), np.asarray(samples, float)
        np.broadcast_shapes(budgets.shape, records.shape)
    except (TypeError, ValueError):
        raise InvalidNumber("rho and samples must be numbers, or arrays of one length") from None
    _refuse_not_positive("rho", budgets)
    _refuse_not_positive("samples", records)
    # Two roots, not the root of a quotient, which overflows for the smallest budgets.
    scale = clip / records * (np.sqrt(2.0 * iterations) / np.sqrt(budgets))
    return scale if scale.ndim else float(scale)


def compose(rhos: Iterable[float]) -> float:
    """Return the zCDP of several releases about the same record: their sum, rounded up.

    >>> compose([0.1, 0.2])
    0.30000000000000004
    """
    return rounded_up(sum((Fraction(number("rho", rho, at_least=0)) for rho in rhos), Fraction(0)))


def whole_owner(rho: float, *, samples: int) -> float:
    """Return what a budget about one record costs when all of an owner's records may change.

    Exchanging m records moves an update m times as far, and zCDP grows with the square.

    >>> whole_owner(0.1, samples=1000)
    100000.0
    """
    return number("rho", rho, at_least=0) * whole_number("samples", samples, at_least=1) ** 2


@overload
def epsilon(*, rho: float, delta: float) -> float: ...
@overload
def epsilon(*, rho: FloatArray, delta: float) -> FloatArray: ...


def epsilon(*, rho: float | FloatArray, delta: float) -> float | FloatArray:
    """Return an epsilon such that every rho-zCDP mechanism is (epsilon, delta)-DP: proved.

    Computed by dp-accounting, over Renyi orders chosen around the best one.

    >>> round(epsilon(rho=0.1, delta=1e-5), 3)
    1.914
    """
    delta = _delta(delta)
    budgets = _budgets(rho)
    distinct, places = np.unique(np.clip(budgets, _SMALLEST, _LARGEST), return_inverse=True)
    knots = distinct
    if len(distinct) > _KNOTS:
        knots = np.geomspace(distinct[0], distinct[-1], _KNOTS)
    bounds = _lines(distinct, *_tangents(knots, delta), knots) if len(distinct) else distinct
    proved = bounds[places].reshape(budgets.shape)
    # Bun and Steinke's bound: looser, but for huge budgets, beyond those given to dp-accounting.
    plain = budgets + 2.0 * np.sqrt(budgets) * math.sqrt(-math.log(delta))
    result = np.where(budgets > _LARGEST, plain, np.minimum(proved, plain))
    return result if result.ndim else float(result)


def gaussian_epsilon(*, rho: float, delta: float) -> float:
    """Return the smallest epsilon of continuous Gaussian noise that costs rho: exact, not a bound.

    A device's noise is discrete, so ``epsilon`` is the one to promise; this one shows how loose
    that bound is.

    >>> round(gaussian_epsilon(rho=0.1, delta=1e-5), 3)
    1.76
    """
    from dp_accounting import gaussian_mechanism

    sigma = 1.0 / math.sqrt(2.0 * float(_budgets(rho)))
    with np.errstate(divide="ignore"):
        return float(gaussian_mechanism.get_epsilon_gaussian(sigma, _delta(delta)))


def rho_for(*, epsilon: float, delta: float) -> float:
    """Return the largest budget whose proved epsilon stays within ``epsilon``: the inverse.

    >>> round(rho_for(epsilon=1.0, delta=1e-5), 4)
    0.0306
    """
    target, delta = number("epsilon", epsilon, above=0), _delta(delta)
    low, high = math.log(_SMALLEST), math.log(_LARGEST)
    least, most = _epsilon(_SMALLEST, delta), _epsilon(_LARGEST, delta)
    if not least <= target <= most:
        raise InvalidNumber(
            f"epsilon must lie between {least:.3g} and {most:.6g} at delta {delta:g}; "
            f"found {epsilon:g}"
        )
    for _ in range(100):  # down to neighbouring doubles; the low end always keeps the promise
        middle = (low + high) / 2
        if _epsilon(math.exp(middle), delta) <= target:
            low = middle
        else:
            high = middle
    return math.exp(low)


def _epsilon(rho: float, delta: float) -> float:
    return _tangents(np.array([rho]), delta)[0][0]


def _tangents(rhos: FloatArray, delta: float) -> tuple[list[float], list[float]]:
    """Return the epsilon of each budget and the Renyi order that proves it."""
    import dp_accounting
    from dp_accounting import rdp

    epsilons, orders = [], []
    for rho in rhos.tolist():
        # The best order lies a little below this one (far below where rho is tiny).
        about = math.sqrt(-math.log(delta) / rho)
        grid = 1.0 + np.maximum(about * np.geomspace(0.05, 2.0, 400), 0.0101)
        accountant = rdp.RdpAccountant(grid.tolist(), dp_accounting.NeighboringRelation.REPLACE_ONE)
        accountant.compose(dp_accounting.ZCDpEvent(rho))
        best, order = accountant.get_epsilon_and_optimal_order(delta)
        epsilons.append(float(best))
        orders.append(float(order))
    return epsilons, orders


def _lines(
    rhos: FloatArray, epsilons: list[float], orders: list[float], knots: FloatArray
) -> FloatArray:
    """Return a proved epsilon for every budget from those at the knots.

    At a fixed order a, epsilon is rho a plus a constant: the order that is best at a knot proves
    an epsilon for its neighbours too, on a line of slope a. The better of two lines is taken.
    """
    right = np.clip(np.searchsorted(knots, rhos), 0, len(knots) - 1)
    left = np.maximum(right - 1, 0)
    height, slope = np.array(epsilons), np.array(orders)
    candidates = [height[k] + slope[k] * (rhos - knots[k]) for k in (left, right)]
    # A knot of epsilon 0 has been cut off at 0: no line starts there.
    candidates = [
        np.where((height[k] > 0) | (rhos <= knots[k]), np.maximum(line, 0.0), np.inf)
        for k, line in zip((left, right), candidates, strict=True)
    ]
    return np.minimum(*candidates)


def _budgets(rho: float | FloatArray) -> FloatArray:
    try:
        budgets = np.asarray(rho, float)
    except (TypeError, ValueError):
        raise InvalidNumber(f"rho must be a number or an array; found {rho!r:.60}") from None
    _refuse_not_positive("rho", budgets)
    return budgets


def _refuse_not_positive(name: str, array: FloatArray) -> None:
    wrong = array[~((array > 0) & np.isfinite(array))]
    if wrong.size:
        raise InvalidNumber(f"{name} must be a finite number above 0; found {wrong[0]:g}")


def _delta(delta: float) -> float:
    if not _LEAST_DELTA <= number("delta", delta, above=0) < 1:
        raise InvalidNumber(f"delta must lie between {_LEAST_DELTA:g} and 1; found {delta:g}")
    return float(delta)
