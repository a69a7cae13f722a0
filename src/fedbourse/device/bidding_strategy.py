"""How a device chooses the budget that it replies to an announced total with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import InvalidInput
from fedbourse.game import share_at
from fedbourse.units import number

if TYPE_CHECKING:
    from fedbourse.tasks.card import TaskCard


@dataclass(frozen=True)
class BiddingStrategy:
    """How a device bids in one task."""

    budget: float | None = None
    """rho to sell whatever others do; None for what is best at each announced total."""
    most: float | None = None
    """The largest rho to sell; None for as much as the card and the lifetime cap allow."""
    report_value: bool = False
    """Whether the market is told what privacy is worth to the owner."""

    def __post_init__(self) -> None:
        for name in ("budget", "most"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number(name, getattr(self, name), above=0))
        if self.budget is not None and self.most is not None and self.budget > self.most:
            raise InvalidInput(
                f"a budget of {self.budget:g} is more than the most to sell, {self.most:g}"
            )

    def cap(self, card: TaskCard, *, left: float) -> float:
        """Return the most to sell to a task; ``left`` is left of the lifetime cap.

        It is fixed when the owner joins: replies that follow another cap each tick would
        contradict each other.
        """
        return float(min(card.max_rho, left, *([self.most] if self.most else [])))

    def plan(
        self, card: TaskCard, *, value: float, reward: float, total: float, cap: float
    ) -> float:
        """Return the budget to reply to an announced total with; 0 where it pays too little."""
        if value >= reward / total:
            return 0.0
        if self.budget is not None:
            budget = min(self.budget, cap)
        else:
            best = total * share_at(value, total, reward=reward)
            budget = min(max(best, card.min_budget), cap)
        return float(budget) if budget >= card.min_budget else 0.0
