"""The model of one task: what was said, what follows from it, and what it pays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from fedbourse.market.records import State

if TYPE_CHECKING:
    from fedbourse.tasks.evidence import EvidenceSpec

CONVERGED = 1e-6
TICKS_MAX = 60
PLANS_MS = 3_600_000
TICK_MS = 60_000


@dataclass
class Sale:
    """The model of a task."""

    id: str
    buyer: str
    reward: int
    vesting: str
    unearned: str
    rounds: int
    least: int
    review_ms: int
    least_total: float
    evidence: EvidenceSpec | None = None
    hollow: frozenset = frozenset()
    """Who sends noise alone to a task with evidence."""
    state: State = State.DRAFT
    deadline: int | None = None
    totals: list = field(default_factory=list)
    """P of each tick, as the market announced it."""
    first_tick: int = 0
    tick_ends: int | None = None
    review_ends: int | None = None
    held: bool = False
    interested: set = field(default_factory=set)
    out: dict = field(default_factory=dict)
    """owner: why it is out"""
    zero_from: dict = field(default_factory=dict)
    """owner: the smallest total that it replied zero to"""
    replies: dict = field(default_factory=dict)
    """(tick, owner): budget"""
    settled_tick: int | None = None
    pay: dict = field(default_factory=dict)
    decided: dict = field(default_factory=dict)
    bonus: dict = field(default_factory=dict)
    released: dict = field(default_factory=dict)
    """Of a task with evidence: owner: what left escrow when blocks ended"""
    fallen: set = field(default_factory=set)
    """Who is dismissed in the open block"""
    lost: dict = field(default_factory=dict)
    """owner: the held pay that it lost when its block ended"""
    trained: bool = False
    round: int = 0
    updates: dict = field(default_factory=dict)
    """(round, owner): (bytes, receipt)"""

    @property
    def tick(self) -> int:
        return max(len(self.totals) - 1, 0)

    def left(self) -> set:
        """Who is interested, and not out."""
        return self.interested - self.out.keys()

    def asked(self) -> set:
        """Whom this tick waits for: a zero stands for every larger total."""
        total = self.totals[-1]
        return {owner for owner in self.left() if self.zero_from.get(owner, math.inf) > total}

    def replied(self) -> set:
        return {owner for tick, owner in self.replies if tick == self.tick}

    def too_few(self) -> bool:
        return len(self.left()) < self.least

    def signed(self) -> list:
        return [owner for owner, said in self.decided.items() if said == "signed"]

    def waiting(self) -> list:
        return [owner for owner, said in self.decided.items() if said == "offered"]

    def is_due(self, now: int) -> bool:
        if self.deadline is not None and now >= self.deadline:
            return True
        if self.state is State.ANNOUNCED:
            return now >= self.tick_ends or self.asked() <= self.replied() or self.too_few()
        if self.state is State.SETTLED:
            return self.review_ends is None and not self.waiting()
        if self.state is State.TRAINING:
            return all((self.round, owner) in self.updates for owner in self.signed())
        return False

    # -- ticks -------------------------------------------------------------------------------------

    def budgets(self, tick: int) -> dict:
        """What those who are still in replied to a tick."""
        left = self.left()
        return {
            who: r for (number, who), r in self.replies.items() if number == tick and who in left
        }

    def too_small(self, tick: int) -> bool:
        total = self.totals[tick]
        return math.fsum(budget / total for budget in self.budgets(tick).values()) > 1.0

    def qualifying(self) -> int | None:
        """The tick with the lowest total whose replies sum to at most it."""
        fits = [tick for tick in range(len(self.totals)) if not self.too_small(tick)]
        return min(fits, key=lambda tick: self.totals[tick], default=None)

    def converged(self) -> bool:
        small = [self.totals[t] for t in range(len(self.totals)) if self.too_small(t)]
        high = self.qualifying()
        if not small or high is None:
            return False
        return math.log(self.totals[high] / max(small)) <= math.log1p(CONVERGED)

    def close_tick(self) -> bool:
        """Who had to reply and did not is out; a zero stands. Say whether anybody is out now."""
        total, replied, asked = self.totals[-1], self.replied(), self.asked()
        for owner in asked:
            if owner not in replied:
                self.out[owner] = "missed"
            elif not self.replies[self.tick, owner]:
                self.zero_from[owner] = total
        return not asked <= replied

    def renew(self, now: int, first_tick: int) -> None:
        """Somebody is out: the others have all ticks and all time again."""
        self.first_tick, self.deadline = first_tick, now + PLANS_MS

    def strike_out(self) -> None:
        """Who declined, or did not sign in time, is out."""
        for owner, said in self.decided.items():
            if said != "signed":
                self.out[owner] = "declined" if said == "declined" else "unsigned"
        self.pay, self.decided, self.settled_tick = {}, {}, None

    def sellers(self) -> dict | None:
        """Who sells what at the qualifying tick; None where the task cannot be settled."""
        tick = self.qualifying()
        if tick is None:
            return None
        sold = {owner: budget for owner, budget in self.budgets(tick).items() if budget}
        few = len(sold) < self.least
        return None if few or math.fsum(sold.values()) < self.least_total else sold

    # -- pay ---------------------------------------------------------------------------------------

    def count(self, owner: str) -> int:
        return sum(1 for _, who in self.updates if who == owner)

    def vested(self, owner: str, rounds: int) -> int:
        return int(Fraction(self.pay[owner] * rounds, self.rounds))

    def earned(self, owner: str) -> int:
        if not self.trained or self.decided[owner] not in ("signed", "dismissed"):
            return 0
        if self.vesting == "upfront":
            return self.pay[owner]
        vested = self.vested(owner, self.count(owner))
        return vested + self.bonus.get(owner, 0) - self.lost.get(owner, 0)

    def held_pay(self, owner: str) -> int:
        """What is earned and not released."""
        return self.earned(owner) - self.released.get(owner, 0) if self.evidence else 0

    def absent_pay(self) -> int:
        """What closed rounds would have brought those who did not deliver them."""
        if not self.trained or self.vesting == "upfront":
            return 0
        delivered = {
            owner: sum((number, owner) in self.updates for number in range(self.round))
            for owner in self.pay
        }
        return sum(
            self.vested(owner, self.round) - self.vested(owner, delivered[owner])
            for owner in self.pay
        )

    def share_out(self, absent: int) -> None:
        """Each round's pay goes to those who delivered it, in proportion to their payments."""
        exact = dict.fromkeys(sorted(self.pay), Fraction(0))
        delivered = dict.fromkeys(exact, 0)
        for number in range(self.round):
            there = [owner for owner in exact if (number, owner) in self.updates]
            for owner in there:
                delivered[owner] += 1
                part = Fraction(self.pay[owner], sum(self.pay[each] for each in there))
                exact[owner] += Fraction(self.reward, self.rounds) * part
        pay = whole(exact, int(sum(exact.values())))
        for owner in exact:
            self.bonus[owner] = min(pay[owner] - self.vested(owner, delivered[owner]), absent)
            absent -= self.bonus[owner]


def whole(exact: dict, total: int) -> dict:
    """Fractions as integers that sum to a total: the largest remainders are rounded up."""
    pay = {owner: int(part) for owner, part in exact.items()}
    by_rest = sorted(exact, key=lambda owner: (pay[owner] - exact[owner], owner))
    for owner in by_rest[: total - sum(pay.values())]:
        pay[owner] += 1
    return pay


def largest_remainder(budgets: dict, reward: int) -> dict:
    """Payments that sum to the reward, by fractions; owners with none are left out."""
    total = sum(map(Fraction, budgets.values()))
    exact = {owner: reward * Fraction(budgets[owner]) / total for owner in sorted(budgets)}
    return {owner: part for owner, part in whole(exact, reward).items() if part}
