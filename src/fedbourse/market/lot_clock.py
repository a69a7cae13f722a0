"""The clock on the market: one lot from each device, at a price that falls from tick to tick.

A tick announces a total P, as under every mechanism, and with it the price of a unit of budget,
R/P. Of a lot that is R lot/P, in whole micro-credits. A device replies with its lot while that is
worth more than the lot is to its owner, and with zero from then on: it says "in" or "out", and
nothing of who sells is ever learned but that it stayed. When the clock stops is decided by
``game.mechanisms.clock``; the order in which those who leave are removed follows from the hash of
the first offer, which nobody knows who registers interest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fedbourse.game.mechanisms import DescendingClock, exit_order
from fedbourse.game.mechanisms.clock import STEP
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fedbourse.game.price_discovery import TickSum
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
class LotDiscovery:
    """What the ticks of a clock led to; it has what ``PriceDiscovery`` has."""

    card: TaskCard
    reward: MicroCredits
    interested: int
    ticks: tuple[TickSum, ...]

    @cached_property
    def _clock(self) -> tuple[DescendingClock, int]:
        """Return the clock after all ticks, and the tick at whose price it stands."""
        first, *later = self.ticks
        clock = DescendingClock.opened(
            reward=self.reward, lots=first.positive, price=self._price(first)
        )
        lots, stands_at = first.positive, 0
        for number, tick in enumerate(later, 1):
            if clock.stopped:
                break
            price = self._price(tick)
            clock = clock.ticked(price, exits=lots - tick.positive)
            stands_at = number if clock.price == price else number - 1
            lots = tick.positive
        return clock, stands_at

    def _price(self, tick: TickSum) -> MicroCredits:
        return lot_price(self.card, reward=self.reward, total_budget=tick.total_budget)

    @property
    def converged(self) -> bool:
        """Say whether the clock has stopped."""
        return self._clock[0].stopped

    @property
    def qualifying(self) -> TickSum | None:
        """Return the tick whose price sellers have accepted, once the clock has stopped."""
        clock, stands_at = self._clock
        return self.ticks[stands_at] if clock.stopped else None

    @property
    def sellers(self) -> int:
        """Return how many sell."""
        return self._clock[0].lots

    @property
    def removed(self) -> int:
        """Return how many replied with their lot to the tick settled at, and do not sell."""
        tick = self.qualifying
        return 0 if tick is None else tick.positive - self.sellers

    @property
    def total_budget(self) -> float:
        """Return the total to announce next; the one settled at once the clock has stopped."""
        tick = self.qualifying
        if tick is not None:
            return tick.total_budget
        price = self._clock[0].next_price(step=self._step)
        return total_at(self.card, reward=self.reward, price=MicroCredits(max(1, price)))

    @property
    def _step(self) -> float:
        """Return how much of its price a lot loses with a tick, so that the ticks suffice."""
        deadlines = self.card.deadlines
        ticks = max(1, min(TICKS, int(deadlines.plans_s // deadlines.tick_s)) - 2)
        span = self.card.min_participants / max(self.interested, self.card.min_participants)
        return max(STEP, 1.0 - float(span ** (1.0 / ticks)))


def removed_owners(
    offer: str, *, accepted: Iterable[str], stayed: Sequence[str], removed: int
) -> frozenset[str]:
    """Return who is removed, of those who accepted the price settled at and left at the next.

    ``offer`` is the hash of the first offer.
    """
    leaving = set(accepted).difference(stayed)
    return frozenset(exit_order(bytes.fromhex(offer), leaving)[:removed])
