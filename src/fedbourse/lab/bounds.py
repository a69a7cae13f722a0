"""What must hold on every draw: what mechanisms promise, and what is proved of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.game import Mechanism, Outcome, Purchase
    from fedbourse.game.columns import FloatArray

SLACK = 1e-9
"""Of the amount in question: rounding."""


def broken_promises(
    mechanism: Mechanism, values: FloatArray, purchase: Purchase, outcome: Outcome
) -> Iterator[str]:
    """Yield what one outcome breaks of its mechanism's promises."""
    promises = mechanism.guarantees
    scale = max(outcome.spend, purchase.reward)
    if promises.within_reward and outcome.spend > purchase.reward * (1 + SLACK):
        yield f"spends {outcome.spend:.6g}, more than the reward {purchase.reward:.6g}"
    utilities = outcome.utilities(values)
    if promises.individually_rational and utilities.min() < -SLACK * scale:
        worst = int(np.argmin(utilities))
        yield f"the owner of value {values[worst]:.6g} loses {-utilities[worst]:.6g}"
    excess = outcome.budgets - purchase.caps(len(values)) * (1 + SLACK)
    if np.any(excess > 0):
        yield "an owner sells more than its cap"


def broken_truth(mechanism: Mechanism, gain: float, purchase: Purchase) -> Iterator[str]:
    """Yield a gain by misreport that a truthful mechanism would not have."""
    if mechanism.guarantees.truthful and gain > SLACK * max(purchase.reward, purchase.gain):
        yield f"an owner gains {gain:.6g} by acting as if its value were another one"


def broken_bounds(
    name: str, values: FloatArray, purchase: Purchase, outcome: Outcome
) -> Iterator[str]:
    """Yield the proven bounds of a mechanism of this name that one outcome breaks."""
    uncapped = bool(np.all(np.isinf(purchase.caps(len(values)))))
    first, second = np.sort(values)[:2]
    total, most = outcome.total_budget, purchase.reward / second
    if name == "proportional" and uncapped:
        if not most / 2 * (1 - SLACK) <= total < most * (1 + SLACK):
            yield f"buys {total:.6g}, outside of R/(2 v_2) = {most / 2:.6g} to {most:.6g}"
        efficiency = float((outcome.budgets / total / values).sum() * first)
        if not 0.75 - SLACK <= efficiency <= 1 + SLACK:
            yield f"the sum of s v_1/v is {efficiency:.6g}, below 3/4"
    if name == "second-price" and uncapped and abs(total - most) > SLACK * most:
        yield f"buys {total:.6g}; R/v_2 is {most:.6g}"
    if name == "clock" and outcome.sellers:
        price = outcome.payments.max()
        if np.ptp(outcome.payments[outcome.budgets > 0]) > SLACK * price:
            yield "sellers of equal lots are paid differently"
        if outcome.sellers * price > purchase.reward * (1 + SLACK):
            yield f"{outcome.sellers} lots at {price:.6g} exceed the reward"
