"""One winner at the second-lowest value: R buys R / v_(2)."""

from __future__ import annotations

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import FloatArray
from fedbourse.game.game import too_few
from fedbourse.game.mechanisms.protocol import Outcome, Purchase


def second_price_outcome(
    values: FloatArray, purchase: Purchase, rng: np.random.Generator
) -> Outcome:
    """Buy from the lowest-value owner, at the value of the next: R of it, or as the cap allows."""
    owners = len(values)
    if owners < 2:
        raise InvalidGame(too_few(owners))
    order = rng.permutation(owners)
    first, second = order[np.argsort(values[order], kind="stable")[:2]]
    price = float(values[second])
    cap = float(purchase.caps(owners)[first])
    result = Outcome.nothing(owners)
    budget = min(purchase.reward / price, cap)
    result.budgets[first] = budget
    result.payments[first] = purchase.reward if budget < cap else price * budget
    return result
