"""The clock on the market: one lot from each device, at a price that falls from tick to tick.

A tick announces a total P, as under every mechanism, and with it the price of a unit of budget,
R/P. Of a lot that is R lot/P, in whole micro-credits. A device replies with its lot while that is
worth more than the lot is to its owner, and with zero from then on: it says "in" or "out", and
nothing of who sells is ever learned but that it stayed. When the clock stops, and who then sells at
which of the last two prices, is decided by ``game.mechanisms.clock``. The order in which replies
count follows from the hash of the first offer, which nobody knows who registers interest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fedbourse.game.mechanisms import DescendingClock, exit_order
from fedbourse.game.mechanisms.clock import STEP
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from fedbourse.tasks.card import TaskCard

TICKS = 50
"""The most ticks that a clock takes, where the card leaves time for them: with many owners the
price falls faster."""


def lot_price(card: TaskCard, *, reward: MicroCredits, total_budget: float) -> MicroCredits:
    """Return what a lot is paid at an announced total."""
    return MicroCredits(round(card.max_rho * reward / total_budget))


def total_at(card: TaskCard, *, reward: MicroCredits, price: MicroCredits) -> float:
    """Return the total to announce for a price of a lot.

    >>> from fedbourse.tasks.builder import task_card
    >>> lots = {"compensation": "clock", "min_budget": 0.3, "max_rho": 0.3}
    >>> card = task_card(goal="g", data="d", features=9, reward=10.0, **lots)
    >>> total = total_at(card, reward=MicroCredits(10_000_000), price=MicroCredits(333_333))
    >>> total, lot_price(card, reward=MicroCredits(10_000_000), total_budget=total)
    (9.000009000009, 333333)
    """
    return card.max_rho * reward / price


def first_clock_total(card: TaskCard) -> float:
    """Return the first total: the reward then pays for the fewest lots that the card wants."""
    reward = MicroCredits(round(float(card.reserve) * MICRO_CREDITS_PER_CREDIT))
    price = MicroCredits(max(1, reward // card.min_participants))
    return total_at(card, reward=reward, price=price)


@dataclass(frozen=True)
class ClockOffers:
    """What a clock on the market starts from."""

    card: TaskCard
    reward: MicroCredits
    interested: int
    first: str
    """The hash of the first offer."""

    def price_at(self, total_budget: float) -> MicroCredits:
        """Return the price of a lot at an announced total."""
        return lot_price(self.card, reward=self.reward, total_budget=total_budget)

    @property
    def step(self) -> float:
        """Return how much of its price a lot loses with a tick, so that the ticks suffice."""
        deadlines = self.card.deadlines
        ticks = max(1, min(TICKS, int(deadlines.plans_s // deadlines.tick_s)) - 2)
        span = self.card.min_participants / max(self.interested, self.card.min_participants)
        return max(STEP, 1.0 - float(span ** (1.0 / ticks)))


@dataclass(frozen=True)
class LotTick:
    """A tick as the clock sees it."""

    total_budget: float
    stayed: Set[str]
    """Who replied with a lot, and is not out of the task."""


@dataclass(frozen=True)
class LotDiscovery:
    """Where a clock stands after some ticks."""

    offers: ClockOffers
    ticks: Sequence[LotTick]

    @cached_property
    def _stop(self) -> tuple[DescendingClock, int, list[str], list[bool]]:
        """Return the clock, its last tick, and who was in before it, with what each replied."""
        first, *later = self.ticks
        inside = exit_order(bytes.fromhex(self.offers.first), first.stayed)
        clock = DescendingClock.opened(
            reward=self.offers.reward,
            lots=len(inside),
            price=self.offers.price_at(first.total_budget),
        )
        replies, last = [True] * len(inside), 0
        for number, tick in enumerate(later, 1):
            if clock.stopped:
                break
            inside = [owner for owner, stays in zip(inside, replies, strict=True) if stays]
            replies, last = [owner in tick.stayed for owner in inside], number
            clock = clock.ticked(self.offers.price_at(tick.total_budget), replies)
        return clock, last, inside, replies

    @property
    def converged(self) -> bool:
        """Say whether the clock has stopped."""
        return self._stop[0].stopped

    @property
    def tick(self) -> int:
        """Return the tick at which everybody who sells was in: the last one but one, or the first.

        Whoever's reply to the next tick counted has accepted that one's price too.
        """
        return max(0, self._stop[1] - 1)

    @cached_property
    def payments(self) -> Mapping[str, int]:
        """Return what each seller is paid for its lot; nobody before the clock has stopped."""
        clock, _, inside, replies = self._stop
        if not clock.stopped:
            return {}
        paid = zip(inside, clock.payments(replies).tolist(), strict=True)
        return {owner: payment for owner, payment in paid if payment}

    @property
    def total_budget(self) -> float:
        """Return the total to announce next."""
        price = self._stop[0].next_price(step=self.offers.step)
        return total_at(
            self.offers.card, reward=self.offers.reward, price=MicroCredits(max(1, price))
        )


def accepted_tick(
    card: TaskCard, totals: Sequence[float], *, reward: MicroCredits, payment: int, tick: int
) -> int:
    """Return the tick whose price a seller's payment is: the one settled at, or the next."""
    price = lot_price(card, reward=reward, total_budget=totals[tick])
    return tick if payment == price else tick + 1


def stayed(replies: Iterable[tuple[str, float | None]]) -> frozenset[str]:
    """Return who replied with a lot."""
    return frozenset(owner for owner, budget in replies if budget)
