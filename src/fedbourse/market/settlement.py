"""What a settlement publishes of budgets: their shares of P, and a bound on regret."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedbourse.game.columns import FloatArray


def shares_at(total_budget: float, budgets: Iterable[FloatArray]) -> tuple[int, float]:
    """Return how many budgets are above 0, and what they are of an announced total in all.

    >>> shares_at(2.0, [np.array([0.5, 0.0]), np.array([1.0, 9.0])])
    (3, 5.25)
    """
    positive = 0

    def shares() -> Iterable[float]:
        nonlocal positive
        for some in budgets:
            sold = some[some > 0]
            positive += len(sold)
            yield from (sold / total_budget).tolist()

    share_sum = math.fsum(shares())
    return positive, share_sum


def regret_bound(
    budgets: Iterable[FloatArray], *, announced: float, sold: float, reward: float
) -> float:
    """Return the most that any owner could gain by another budget, up to the next power of ten.

    Each reply r to the announced P says that a unit of budget is worth v = R (1 - r/P)/P to its
    owner (a zero: R/P at least). ``sold`` is what all plans sum to. A power of ten, because the
    exact number would tell one owner's budget.
    """
    largest = reward * (1.0 - math.sqrt(min(1.0, sold / announced))) ** 2  # an outsider's
    for some in budgets:
        r = some[some > 0]
        value = reward * (1.0 - r / announced) / announced
        # (sqrt(v P) - sqrt(R (1 - s)))^2, as in game.certificate
        gain = (np.sqrt(value * sold) - np.sqrt(reward * np.maximum(1.0 - r / sold, 0.0))) ** 2
        largest = max(largest, float(gain.max(initial=0.0)))
    return float(10.0 ** math.ceil(math.log10(largest))) if largest > 1e-300 else 0.0
