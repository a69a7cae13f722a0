"""The best reward where budgets scale with a power of it: linear and quadratic costs.

With c = v r^g all budgets grow as w = R^(1/g), so one solve of the owners' game serves every R, and
the buyer's utility, accuracy value * accuracy - R, is strictly concave in R. Its maximum is where

    gain * quality * elasticity / g = R,     gain = accuracy value * (ceiling - chance),

solved by Newton's method in ln w, many games at once, within a bracket: quality * elasticity is at
most 1/4, so R* <= gain / (4 g). A buyer who knows only a distribution solves the same with the mean
over draws.
"""

from __future__ import annotations

import numpy as np

from fedbourse.game.accuracy import Accuracy
from fedbourse.game.columns import FloatArray, IntArray

_LOWEST = -300.0  # ln w at which a reward counts as none


def best_rewards(
    unit_precisions: FloatArray,
    counts: IntArray,
    *,
    owners: int,
    accuracy: Accuracy,
    accuracy_value: float,
    degree: float,
    multiplicities: FloatArray | None = None,
    together: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Return the best reward for each row of precisions (those at R = 1), and the marginal value
    of the first unit of reward; with ``together``, the one reward that is best on average.
    ``multiplicities`` says how many owners each precision stands for, if not one.

    Where that marginal value is not above 1, no reward pays and the best is 0.
    """
    gain = accuracy_value * accuracy.range

    def log_value(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ln(quality * elasticity) and its derivative at ln w = x."""
        precisions = unit_precisions * np.exp(x)[:, None]
        quality = accuracy.quality(precisions, counts, owners, multiplicities)
        with np.errstate(divide="ignore"):
            log = quality.log + np.log(quality.elasticity)
            slope = quality.elasticity + quality.slope / quality.elasticity
        if not together:
            return log, slope
        from scipy.special import logsumexp, softmax

        shares = softmax(log)
        return logsumexp(log, keepdims=True) - np.log(len(log)), (shares * slope).sum(keepdims=True)

    def excess(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ln of the marginal value of reward at ln w = x, which falls, and its slope."""
        log, slope = log_value(x)
        return np.log(gain / degree) + log - degree * x, slope - degree

    rows = 1 if together else len(unit_precisions)
    first_unit = np.exp(np.minimum(excess(np.full(rows, _LOWEST))[0], 700.0))
    if accuracy.sums_noise and degree == 1.0 and not together:
        quality = accuracy.quality(unit_precisions, counts, owners, multiplicities)
        # 1 / quality = floor + noise / R, where the floor is 1 and what sampling leaves.
        noise = quality.elasticity * np.exp(-quality.log)
        floor = (1.0 - quality.elasticity) * np.exp(-quality.log)
        return np.maximum(0.0, np.sqrt(gain * noise) - noise) / floor, first_unit

    high = np.full(rows, np.log(gain / (4.0 * degree)) / degree)
    low, x = np.full(rows, _LOWEST), high - 1.0
    for _ in range(200):
        height, slope = excess(x)
        low, high = np.where(height > 0, x, low), np.where(height > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = x - height / slope
        step = np.where((step > low) & (step < high), step, (low + high) / 2)
        moved = np.abs(step - x).max()
        x = step
        if moved <= 1e-13:
            break
    return np.where(first_unit > 1.0, np.exp(degree * x), 0.0), first_unit
