"""A descending clock over equal lots, tick by tick, in whole micro-credits.

The price of a lot starts at R and falls. At each tick a lower price is announced, and every device
that is still in replies whether it stays. Replies count one after another, in an order that was
fixed before anybody was asked: who stays has accepted the lower price, who leaves is out for good,
and whoever's turn has not come still has the last price. As soon as all who are in can be paid what
each has accepted, the clock stops, and they sell. So sellers' prices differ by one step at most.

A device's own reply decides only between nothing and a price that it is offered, and never what
the price is. Were the replies of those who leave counted alone, and all others paid the last price,
a device whose value lies between two prices would gain by staying.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import IntArray
from fedbourse.units import MICRO_CREDITS_MAX, MicroCredits, number, whole_number

STEP = 0.05
"""How much of its last price a lot loses at each tick."""


@dataclass(frozen=True)
class DescendingClock:
    """A clock between two ticks.

    >>> clock = DescendingClock.opened(reward=MicroCredits(10), lots=4)
    >>> clock.price, clock.stopped, clock.next_price(step=0.5)
    (10, False, 5)
    >>> clock = clock.ticked(MicroCredits(5), [True, True, True, False])  # 3 lots at 5 exceed 10
    >>> clock = clock.ticked(MicroCredits(3), [True, False, True])
    >>> clock.stopped, clock.payments([True, False, True]).tolist()  # at 3, out, not asked: at 5
    (True, [3, 0, 5])
    """

    reward: MicroCredits
    """R, the most that all lots together may cost."""
    price: MicroCredits
    """The price of a lot that all who are in have accepted."""
    lots: int
    """How many are in; once the clock has stopped, how many sell."""
    stopped: bool
    lower_price: MicroCredits
    """What those sell at who were asked at the last tick, once the clock has stopped."""
    asked: int = 0
    """How many replies of the last tick counted, before the clock stopped."""

    @classmethod
    def opened(
        cls, *, reward: MicroCredits, lots: int, price: MicroCredits | None = None
    ) -> DescendingClock:
        """Return a clock whose first price, R unless it is given, was accepted by so many."""
        total = whole_number("reward", reward, at_least=1)
        if total > MICRO_CREDITS_MAX:
            raise InvalidGame(f"reward must be at most {MICRO_CREDITS_MAX}; found {total}")
        first = MicroCredits(whole_number("price", total if price is None else price, at_least=1))
        count = whole_number("lots", lots, at_least=0)
        return cls(MicroCredits(total), first, count, first * count <= total, first)

    def next_price(self, *, step: float = STEP) -> MicroCredits:
        """Return the price to announce next.

        It is never below the one at which all who are in could be paid: to ask for less would tell
        more of their values than is needed.
        """
        fall = number("step", step, above=0, at_most=1, error=InvalidGame)
        lower = min(int(self.price * (1.0 - fall)), self.price - 1)
        return MicroCredits(max(lower, self.reward // self.lots)) if self.lots else self.price

    def ticked(self, price: MicroCredits, stays: Iterable[bool]) -> DescendingClock:
        """Return the clock after a tick: who of those who are in stays at this price.

        ``stays`` is in the order in which replies count (``exit_order``).
        """
        if self.stopped:
            raise InvalidGame(f"the clock has stopped at {self.price}; it takes no further price")
        lower = MicroCredits(whole_number("price", price, at_least=0))
        replies = np.array(list(stays), dtype=bool)
        if lower >= self.price:
            raise InvalidGame(f"the price must fall below {self.price}; found {lower}")
        if len(replies) != self.lots:
            raise InvalidGame(f"each of {self.lots} who are in must reply; found {len(replies)}")
        staying = np.cumsum(replies)
        waiting = np.arange(self.lots - 1, -1, -1)
        # Exact in Python's integers: a price times many lots may exceed 64 bits.
        dues = lower * staying.astype(object) + self.price * waiting.astype(object)
        payable = np.flatnonzero(dues <= self.reward)
        if not len(payable):
            return replace(self, price=lower, lower_price=lower, lots=int(staying[-1]))
        last = int(payable[0])
        lots = int(staying[last] + waiting[last])
        return replace(self, lots=lots, stopped=True, lower_price=lower, asked=last + 1)

    def payments(self, stays: Iterable[bool]) -> IntArray:
        """Return what each is paid for its lot, given the replies of the tick that stopped it."""
        if not self.stopped:
            raise InvalidGame("the clock has not stopped yet, so nobody is paid")
        replies = np.array(list(stays), dtype=bool)
        paid = np.full(len(replies), self.price, dtype=np.int64)
        paid[: self.asked] = np.where(replies[: self.asked], self.lower_price, 0)
        return paid


def exit_order(secret: bytes, owners: Iterable[str]) -> list[str]:
    """Return the order in which replies to a tick count.

    It follows from the secret alone, whose hash is published before anybody is asked
    (``order_commitment``): so nobody can choose who is asked first, or dispute it afterwards.

    >>> exit_order(b"a secret", ["ann", "ben", "eve"])
    ['ben', 'ann', 'eve']
    """

    def rank(owner: str) -> bytes:
        return hashlib.sha256(b"fedbourse exit\0" + secret + b"\0" + owner.encode()).digest()

    return sorted(owners, key=rank)


def order_commitment(secret: bytes) -> str:
    """Return the hash that commits to an order."""
    return hashlib.sha256(b"fedbourse exit order\0" + secret).hexdigest()
