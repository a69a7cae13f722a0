"""Strategies: the honest device, and those that play another way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedbourse.game import share_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.study.deviations.play import PlayedOffer, PlayedTerms

Ending = Literal["delivers", "stays away", "declines", "does not sign", "leaves"]
"""What a name does once it has steered P."""
STEADY = 1e-3
"""Two totals in a row that lie this close together: discovery is about to converge."""


@dataclass(frozen=True)
class Honest:
    """The device as it is built: the best reply to each total, as a value says.

    ``acts_as`` is the value that its replies follow, and ``value`` the one that it signs by.
    """

    value: float
    acts_as: float | None = None
    min_budget: float = 0.0

    def plan(self, offer: PlayedOffer) -> float:
        """Return the best reply of an owner with the value that is acted."""
        value = self.value if self.acts_as is None else self.acts_as
        return linear_reply(value, offer, min_budget=self.min_budget)

    def replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Reply at once."""
        return (self.plan(offer),)

    def late_replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Say nothing more."""
        return ()

    def leaves(self, offer: PlayedOffer) -> bool:
        """Stay."""
        return False

    def signs(self, terms: PlayedTerms) -> bool | None:
        """Sign for the price that was replied to, and for no less than the value."""
        least = max(terms.min_payment, self.value * terms.budget - 1e-6)
        return terms.payment >= least

    def delivers(self, round: int) -> bool:
        """Deliver every round."""
        return True


@dataclass(frozen=True)
class Actor(Honest):
    """Acts as another value, and ends as it likes."""

    ending: Ending = "delivers"

    def replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Reply at once; where the rules do not allow that reply, with the nearest that they do.

        Who is about to leave keeps the tick open.
        """
        return () if self.leaves(offer) else _nearest(self.plan(offer), offer)

    def leaves(self, offer: PlayedOffer) -> bool:
        """Leave in the last tick, or when P is about to converge."""
        return self.ending == "leaves" and (offer.last or _steady_ticks(offer) > 0)

    def signs(self, terms: PlayedTerms) -> bool | None:
        """Sign anything, or not."""
        return None if self.ending == "does not sign" else self.ending != "declines"

    def delivers(self, round: int) -> bool:
        """Deliver, or stay away."""
        return self.ending == "delivers"


@dataclass(frozen=True)
class Quitter(Honest):
    """Delivers the first rounds only."""

    rounds: int = 0

    def delivers(self, round: int) -> bool:
        """Deliver until it has had enough."""
        return round < self.rounds


@dataclass(frozen=True)
class Sniper(Actor):
    """Steers P by acting as another value, and replies truly at the last moment.

    It keeps every tick open, and its lies swing, so that P does not converge before the end.
    """

    rivals: tuple[float, ...] = ()
    swing: float = 0.0
    accomplice: bool = False
    """Whether another name keeps ticks open, so that this one can reply at once as well."""

    def replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Reply with a lie at once, where somebody else keeps the tick open."""
        return _nearest(self._lie(offer), offer) if self.accomplice else ()

    def late_replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Reply truly in the last tick, and falsely in all others."""
        if not offer.last:
            return _nearest(self._lie(offer), offer)
        others = sum(linear_reply(rival, offer) for rival in self.rivals)
        return _nearest(best_reply(self.value, others, offer.reward), offer)

    def _lie(self, offer: PlayedOffer) -> float:
        value = (self.acts_as or self.value) * (1.0 + self.swing * (offer.tick % 2))
        return linear_reply(value, offer)


@dataclass(frozen=True)
class Jumper(Actor):
    """Replies with one share up to some total, and with a smaller one above it."""

    edge: float = math.inf
    below: float = 1.0
    above: float = 0.0

    def plan(self, offer: PlayedOffer) -> float:
        """Return the share on this side of the edge, as a budget."""
        share = self.below if offer.total_budget <= self.edge else self.above
        return share * offer.total_budget


@dataclass(frozen=True)
class Silent(Actor):
    """Replies with one budget to the first total, and to no other; or to none at all."""

    budget: float | None = None

    def replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Reply once."""
        return (self.budget,) if self.budget is not None and not offer.tick else ()


@dataclass(frozen=True)
class Latecomer(Actor):
    """Replies with nothing until a tick, and with one budget at its last moment."""

    budget: float = 0.0
    tick: int = 0

    def replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Reply zero at once before that tick; then keep it open."""
        return (0.0,) if offer.tick < self.tick else ()

    def late_replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Reply with the budget, whatever P is."""
        return _nearest(self.budget, offer)


@dataclass(frozen=True)
class Slow(Actor):
    """Replies at the end of each tick, by a cost that makes discovery take many of them.

    The cost is value * (r / scale)^power / power.
    """

    power: float = 2.0
    scale: float = 1.0
    swing: float = 0.0

    def plan(self, offer: PlayedOffer) -> float:
        """Return the best reply for that cost, which may swing from tick to tick."""
        total, value = offer.total_budget, self.value * (1.0 + self.swing * (offer.tick % 2))
        low, high = 0.0, 1.0
        for _ in range(60):
            share = (low + high) / 2
            cost = value * (share * total / self.scale) ** (self.power - 1) / self.scale
            low, high = (share, high) if offer.reward * (1 - share) / total > cost else (low, share)
        return low * total

    def replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Keep the tick open."""
        return ()

    def late_replies(self, offer: PlayedOffer) -> Sequence[float]:
        """Reply as late as possible."""
        return _nearest(self.plan(offer), offer)


@dataclass(frozen=True)
class Leaver(Slow):
    """One of several names that hold P up, and leave so that it does not converge with them in."""

    place: int | None = None
    """How many of them leave before this one; None where all wait for the last tick."""

    def leaves(self, offer: PlayedOffer) -> bool:
        """Leave when P is steady and it is this name's turn; all others go in the last tick."""
        turn = self.place is not None and _steady_ticks(offer) > self.place
        return offer.last or turn


def linear_reply(value: float, offer: PlayedOffer, *, min_budget: float = 0.0) -> float:
    """Return an owner's best reply to a total, by a linear cost; 0 where it pays too little."""
    total = offer.total_budget
    if value >= offer.reward / total:
        return 0.0
    return max(total * share_at(value, total, reward=offer.reward), min_budget)


def best_reply(value: float, others: float, reward: float) -> float:
    """Return the budget that is best against the others' budgets as they are."""
    if not 0 < value * others < reward:
        return 0.0
    return math.sqrt(reward * others / value) - others


def _steady_ticks(offer: PlayedOffer) -> int:
    """Return how many totals so far lay close to the one before."""
    pairs = zip(offer.totals, offer.totals[1:], strict=False)
    return sum(abs(math.log(after / before)) < STEADY for before, after in pairs)


def _nearest(budget: float, offer: PlayedOffer) -> tuple[float, float]:
    """Return a budget, and the nearest one that the activity rule allows after earlier replies.

    An earlier reply of r_b, with marginal pay m_b, allows all budgets between r_b and the one whose
    marginal pay at this total is m_b.
    """
    low, high = 0.0, math.inf
    for total, earlier in offer.own:
        same_margin = offer.total_budget * (
            1.0 - (1.0 - earlier / total) * offer.total_budget / total
        )
        low = max(low, min(earlier, same_margin))
        high = min(high, max(earlier, same_margin))
    return budget, max(min(max(budget, low), high), 0.0)
