"""The one list of mechanisms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game.columns import FloatArray
from fedbourse.game.equilibrium import equilibrium
from fedbourse.game.mechanisms.all_in import all_in_outcome
from fedbourse.game.mechanisms.equal_lots import clock_outcome
from fedbourse.game.mechanisms.fairquery import fairquery_outcome
from fedbourse.game.mechanisms.optimal import optimal_outcome
from fedbourse.game.mechanisms.protocol import (
    Guarantees,
    Mechanism,
    MechanismRule,
    Outcome,
    Purchase,
    checked_mechanism,
    is_clock,
    settlement_of,
)
from fedbourse.game.mechanisms.second_price import second_price_outcome
from fedbourse.game.mechanisms.settlement import Settlement, proportional
from fedbourse.registry import Choice, Registry


def proportional_outcome(
    values: FloatArray, purchase: Purchase, rng: np.random.Generator
) -> Outcome:
    """Sell the equilibrium of the owners' game with linear costs, for pay in proportion."""
    caps = purchase.caps(len(values))
    limits = caps if np.isfinite(caps).any() else None
    solution = equilibrium(values, reward=purchase.reward, caps=limits)
    result = Outcome.nothing(len(values))
    result.budgets[solution.participants] = solution.budgets
    result.payments[solution.participants] = solution.payments
    return result


_TRUTHFUL = Guarantees(
    truthful=True,
    individually_rational=True,
    within_reward=True,
    monotone=True,
    hides_winners=False,
)
MECHANISMS: Registry[Mechanism] = Registry(
    "mechanism",
    Choice(
        "proportional",
        "in proportion to budgets",
        "who sells twice the budget is paid twice as much",
        MechanismRule(
            "budget",
            replace(_TRUTHFUL, truthful=False),
            proportional_outcome,
            settlement=proportional,
        ),
    ),
    Choice(
        "clock",
        "equal lots at a falling price",
        "all sell the same budget, at the price at which the reward pays for those who stay",
        MechanismRule(
            "price",
            replace(_TRUTHFUL, hides_winners=True),
            clock_outcome,
            runs_clock=True,
        ),
    ),
    Choice(
        "optimal",
        "the best for a buyer who knows the distribution",
        "truthful, and spends what is best for the buyer whatever the reward",
        MechanismRule("value", replace(_TRUTHFUL, within_reward=False), optimal_outcome),
    ),
    Choice(
        "second-price",
        "one seller, at the second-lowest value",
        "the lowest-value owner sells all, at the value of the next",
        MechanismRule("value", _TRUTHFUL, second_price_outcome),
    ),
    Choice(
        "fairquery",
        "FairQuery: the more sell, the more each sells",
        "the auction of Ghosh and Roth",
        MechanismRule("value", _TRUTHFUL, fairquery_outcome),
    ),
    Choice(
        "all-in",
        "All-in: every cap or nothing",
        "the baseline of FL-Market: the cheapest sell their caps and share the reward",
        MechanismRule("value", replace(_TRUTHFUL, truthful=False), all_in_outcome),
    ),
    group="mechanisms",
)
"""What each asks, sells, pays and promises. The market runs those with a settlement or a
clock."""


def market_choices() -> list[Choice[Mechanism]]:
    """Return the mechanisms that the market can run."""
    return [each for each in MECHANISMS.choices if _runs_on_market(each.value)]


def market_mechanism(name: object) -> Mechanism:
    """Return the mechanism that a card's compensation names; refuse what the market cannot run."""
    reason = ""
    if isinstance(name, str) and name in MECHANISMS:
        if _runs_on_market(MECHANISMS[name]):
            return MECHANISMS[name]
        reason = ", which is for studies: the market cannot run it"
    able = ", ".join(choice.name for choice in market_choices())
    raise InvalidInput(f"compensation must be one of {able}; found {name!r:.60}{reason}")


def market_settlement(name: object) -> Settlement:
    """Return how plans become payments under a card's compensation that needs no clock."""
    settlement = settlement_of(market_mechanism(name))
    assert settlement is not None, f"{name} sells by a clock"
    return settlement


def _runs_on_market(mechanism: Mechanism) -> bool:
    return settlement_of(mechanism) is not None or is_clock(mechanism)


def choose_mechanism(mechanism: object) -> Mechanism:
    """Return the mechanism of a name, or an object that follows the protocol."""
    if isinstance(mechanism, str):
        return checked_mechanism(MECHANISMS.choose(mechanism))
    return checked_mechanism(mechanism)
