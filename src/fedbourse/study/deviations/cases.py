"""A row of the table: who deviates how, in which market, and what that is compared with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fedbourse.study.deviations.play import Scenario, TradeOutcome
    from fedbourse.study.deviations.search import Axis, Point

Party = Literal["owner", "owners", "buyer"]
Score = Callable[["Scenario", "TradeOutcome"], float]
"""What the deviator has from an outcome: the more the better."""


@dataclass(frozen=True)
class Case:
    """One deviation."""

    key: str
    party: Party
    deviation: str
    where: str
    """The market that it is tried in."""
    reference: str
    """What it is compared with."""
    intended: Scenario
    """The same as a scenario."""
    axes: tuple[Axis, ...]
    scenario: Callable[[Point], Scenario]
    score: Score
    owners: Mapping[str, float]
    """The names of those who play as intended, and their values."""
    remains: str = ""
    """Why a gain is left under the rules; empty where none may be."""
    was_possible: bool = True
    """Whether the old protocol had what this is about."""
    effort: float = 1.0
    """The part of the plays that this search gets: some take long."""


def utility_of(value: float, owners: Collection[str]) -> Score:
    """Score the utility of one owner who acts under all names but those of the others."""

    def score(scenario: Scenario, outcome: TradeOutcome) -> float:
        own = [name for name in scenario.names if name not in owners]
        return outcome.utility(*own, value=value)

    return score


def cost_of(budget: float, price: float, owners: Collection[str]) -> Score:
    """Score, below zero, what so much budget costs the buyer.

    What is missing is bought elsewhere at the honest price; of more than that, a part is paid. What
    names of its own earn stays in its pocket, and what they deliver is worth nothing to it.
    """

    def score(scenario: Scenario, outcome: TradeOutcome) -> float:
        bought = outcome.sold(*owners)
        puppets = [name for name in scenario.names if name not in owners]
        spent = scenario.setting.reward - outcome.refunded - outcome.earned(*puppets)
        if bought > budget:
            return -spent * budget / bought
        return -spent - price * (budget - bought)

    return score
