"""A descending clock over equal lots, tick by tick, in whole micro-credits.

The price of a lot starts at R and falls. At each price every device that is still in says whether
it stays. A device that leaves is out for good. Where the last price times the lots that are left
exceeds R, those who leave are removed one by one, in an order that was fixed before anybody was
asked; as soon as what is left can be paid at the last price, the clock stops, and all who have not
been removed sell at it: they had accepted it. So nobody who sells ever says more than "I am in".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedbourse.errors import InvalidGame
from fedbourse.units import MICRO_CREDITS_MAX, MicroCredits, number, whole_number

STEP = 0.05
"""How much of its last price a lot loses at each tick."""


@dataclass(frozen=True)
class DescendingClock:
    """A clock between two ticks.

    >>> clock = DescendingClock.opened(reward=MicroCredits(10), lots=4)
    >>> clock.price, clock.stopped, clock.next_price(step=0.5)
    (10, False, 5)
    >>> clock = clock.ticked(MicroCredits(5), exits=1)  # 3 lots at 5 exceed 10
    >>> clock = clock.ticked(MicroCredits(4), exits=2)  # one exit is enough: 2 lots at 5
    >>> clock.stopped, clock.price, clock.lots, clock.removed
    (True, 5, 2, 1)
    """

    reward: MicroCredits
    """R, the most that all lots together may cost."""
    price: MicroCredits
    """The last price of a lot that all who are in have accepted."""
    lots: int
    """How many are in; once the clock has stopped, how many sell."""
    stopped: bool
    removed: int
    """How many of those who left at the last tick were removed, the first in the order of exits.
    The others sell too."""

    @classmethod
    def opened(
        cls, *, reward: MicroCredits, lots: int, price: MicroCredits | None = None
    ) -> DescendingClock:
        """Return a clock whose first price, R unless it is given, was accepted by so many."""
        total = whole_number("reward", reward, at_least=1)
        if total > MICRO_CREDITS_MAX:
            raise InvalidGame(f"reward must be at most {MICRO_CREDITS_MAX}; found {total}")
        first = whole_number("price", total if price is None else price, at_least=1)
        count = whole_number("lots", lots, at_least=0)
        clock = cls(MicroCredits(total), MicroCredits(first), count, False, 0)
        return replace(clock, stopped=clock._can_be_paid)

    @property
    def _can_be_paid(self) -> bool:
        return self.price * self.lots <= self.reward

    def next_price(self, *, step: float = STEP) -> MicroCredits:
        """Return the price to announce next.

        It is never below the one at which all who are in could be paid: to ask for less would tell
        more of their values than is needed.
        """
        fall = number("step", step, above=0, at_most=1, error=InvalidGame)
        lower = min(int(self.price * (1.0 - fall)), self.price - 1)
        return MicroCredits(max(lower, self.reward // self.lots)) if self.lots else self.price

    def ticked(self, price: MicroCredits, *, exits: int) -> DescendingClock:
        """Return the clock after a tick: so many of those who were in leave at this price."""
        if self.stopped:
            raise InvalidGame(f"the clock has stopped at {self.price}; it takes no further price")
        lower = whole_number("price", price, at_least=0)
        leaving = whole_number("exits", exits, at_least=0)
        if lower >= self.price:
            raise InvalidGame(f"the price must fall below {self.price}; found {lower}")
        if leaving > self.lots:
            raise InvalidGame(f"at most {self.lots} who are in can leave; found {leaving}")
        affordable = self.reward // self.price
        if self.lots - leaving <= affordable:
            return replace(self, lots=affordable, stopped=True, removed=self.lots - affordable)
        clock = replace(self, price=MicroCredits(lower), lots=self.lots - leaving, removed=leaving)
        return replace(clock, stopped=clock._can_be_paid)


def exit_order(secret: bytes, owners: Iterable[str]) -> list[str]:
    """Return the order in which those who leave at one tick are removed.

    It follows from the secret alone, whose hash is published before anybody is asked
    (``order_commitment``): so nobody can choose who is removed, or dispute it afterwards.

    >>> exit_order(b"a secret", ["ann", "ben", "eve"])
    ['ben', 'ann', 'eve']
    """

    def rank(owner: str) -> bytes:
        return hashlib.sha256(b"fedbourse exit\0" + secret + b"\0" + owner.encode()).digest()

    return sorted(owners, key=rank)


def order_commitment(secret: bytes) -> str:
    """Return the hash that commits to an order of exits."""
    return hashlib.sha256(b"fedbourse exit order\0" + secret).hexdigest()
