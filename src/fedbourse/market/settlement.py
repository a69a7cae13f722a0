"""Plans turned into payments, in whole micro-credits that sum to the reward exactly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import per_owner
from fedbourse.units import MicroCredits, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fedbourse.game.columns import IntArray


def settle(plans: object, *, reward: MicroCredits) -> IntArray:
    """Return each owner's payment: R r_i / P, rounded so that the sum is R (largest remainder).

    Ties between equal remainders go to the owner who comes first.

    >>> settle([0.1, 0.1, 0.1, 0.0], reward=MicroCredits(100))
    array([34, 33, 33,  0])
    """
    budgets = per_owner("plans", plans, len(np.atleast_1d(np.asarray(plans))))
    total = whole_number("reward", reward, at_least=1)
    if total >= 2**53:
        raise InvalidGame(f"reward must be below 2^53 micro-credits; found {total}")
    if not budgets.any():
        raise InvalidGame("a settlement needs at least one plan above 0; found none")
    # Exact: doubles are fractions with a power of two below, so all of them scale to integers.
    fractions, exponents = np.frexp(budgets)
    mantissas = (fractions * 2.0**53).astype(np.int64).astype(object)
    shifts = (exponents - exponents[budgets > 0].min()).astype(object)
    weights = [m << s if m else 0 for m, s in zip(mantissas, shifts, strict=True)]
    everything = sum(weights)
    parts = [divmod(total * weight, everything) for weight in weights]
    payments = np.array([whole for whole, _ in parts], dtype=np.int64)
    missing = total - int(payments.sum())
    largest = sorted(range(len(parts)), key=lambda i: (-parts[i][1], i))[:missing]
    payments[largest] += 1
    return payments


def shares_at(total_budget: float, budgets: Iterable[float | None]) -> tuple[int, float]:
    """Return how many budgets are above 0, and what they are of an announced total in all.

    A budget above the total counts as all of it: no best reply is larger.

    >>> shares_at(2.0, [0.5, 0.0, 1.0, 9.0])
    (3, 1.75)
    """
    shares = [min(budget / total_budget, 1.0) for budget in budgets if budget]
    return len(shares), math.fsum(shares)


def proportional(budgets: Sequence[float], reward: MicroCredits) -> list[int]:
    """Pay in proportion to budgets: the paper's compensation function."""
    payments: list[int] = settle(budgets, reward=reward).tolist()
    return payments


COMPENSATIONS: dict[str, Callable[[Sequence[float], MicroCredits], list[int]]] = {
    "proportional": proportional
}
"""Each turns budgets and the reward into payments that sum to the reward."""
