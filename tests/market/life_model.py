"""A model of money and states in plain Python, which every life of every task must agree with."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
)

from fedbourse.errors import Conflict, FedbourseError, InvalidTransfer, NotFound
from fedbourse.market.lifecycle import Command
from fedbourse.market.service import escrow
from fedbourse.market.task import State
from fedbourse.wire.keys import SigningKey
from market.trading import Trading, caller

BUYERS = [caller("buyer:acme"), caller("buyer:bell")]
OWNERS = 4
MAX_RHO = 20.0
SHORT = 0.001
KIND = {
    "opened": Command.OPEN,
    "announced": Command.ANNOUNCE,
    "ticked": Command.TICK,
    "last-tick": Command.TICK,
    "settled": Command.SETTLE,
    "training": Command.TRAIN,
    "round": Command.CLOSE_ROUND,
    "completed": Command.COMPLETE,
    "cancelled": Command.CANCEL,
}
"""What each event of the log says has happened."""


@dataclass
class Sale:
    """The model of a task."""

    id: str
    buyer: str
    reward: int
    payout: str
    rounds: int
    least: int
    state: State = State.DRAFT
    deadline: int | None = None
    tick: int = 0
    tick_ends: int | None = None
    held: bool = False
    interested: set = field(default_factory=set)
    withdrawn: set = field(default_factory=set)
    plans: dict = field(default_factory=dict)
    """owner: (tick, budget)"""
    pay: dict = field(default_factory=dict)
    decided: dict = field(default_factory=dict)
    trained: bool = False
    round: int = 0
    answers: dict = field(default_factory=dict)
    """(round, owner): (bytes, receipt)"""

    def asked(self) -> set:
        return self.interested - self.withdrawn

    def too_few(self) -> bool:
        return len(self.asked()) < self.least

    def signed(self) -> list:
        return [owner for owner, said in self.decided.items() if said == "signed"]

    def waiting(self) -> list:
        return [owner for owner, said in self.decided.items() if said == "offered"]

    def count(self, owner: str) -> int:
        return sum(1 for _, who in self.answers if who == owner)

    def earned(self, owner: str) -> int:
        if not self.trained or self.decided[owner] != "signed":
            return 0
        if self.payout == "upfront":
            return self.pay[owner]
        return int(Fraction(self.pay[owner] * self.count(owner), self.rounds))

    def is_due(self, now: int) -> bool:
        if self.deadline is not None and now >= self.deadline:
            return True
        if self.state is State.ANNOUNCED:
            answered = {owner for owner, (tick, _) in self.plans.items() if tick == self.tick}
            return now >= self.tick_ends or answered == self.asked() or self.too_few()
        if self.state is State.SETTLED:
            return not self.waiting()
        if self.state is State.TRAINING:
            return all((self.round, owner) in self.answers for owner in self.signed())
        return False


def largest_remainder(budgets: dict, reward: int) -> dict:
    """Payments that sum to the reward, by fractions; owners with none are left out."""
    total = sum(map(Fraction, budgets.values()))
    exact = {owner: reward * Fraction(budgets[owner]) / total for owner in sorted(budgets)}
    pay = {owner: int(part) for owner, part in exact.items()}
    by_rest = sorted(exact, key=lambda owner: (pay[owner] - exact[owner], owner))
    for owner in by_rest[: reward - sum(pay.values())]:
        pay[owner] += 1
    return {owner: part for owner, part in pay.items() if part}


class Received:
    """A payment adapter that vouches for what a test has noted."""

    def __init__(self) -> None:
        self.notes: dict[str, tuple[str, int]] = {}

    def received(self, reference):
        return self.notes[reference]


class LifeModel(RuleBasedStateMachine):
    """What a market should hold, and how its clock should move it on."""

    def __init__(self, open_store) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.trading = Trading(self.stack.enter_context(open_store()))
        self.owners = self.trading.owners(1.0, 1.1, 1.3, 1.9)
        self.names = [owner.name for owner in self.owners]
        self.forger = SigningKey.generate()
        self.payments = Received()
        self.money: defaultdict[str, int] = defaultdict(int)
        self.sales: list[Sale] = []
        self.seen_entries = 0
        self.seen_events: dict[str, tuple[int, str, State | None]] = {}
        self.into: defaultdict[str, int] = defaultdict(int)
        self.out: defaultdict[tuple[str, str], int] = defaultdict(int)

    # -- the model ---------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.trading.time_ms

    def move(self, source: str, target: str, amount: int) -> None:
        self.money[source] -= amount
        self.money[target] += amount

    def refund(self, sale: Sale) -> None:
        self.move(escrow(sale.id), sale.buyer, self.money[escrow(sale.id)])

    def can_announce(self, sale: Sale) -> type[FedbourseError] | None:
        if len(sale.interested) < sale.least:
            return Conflict
        return InvalidTransfer if self.money[sale.buyer] < sale.reward else None

    def now_announced(self, sale: Sale) -> None:
        self.move(sale.buyer, escrow(sale.id), sale.reward)
        sale.held, sale.state = True, State.ANNOUNCED
        sale.deadline = self.now + 3600_000
        sale.tick_ends = self.now + 60_000

    def sellers(self, sale: Sale) -> dict:
        return {owner: budget for owner, (_, budget) in sale.plans.items() if budget}

    def now_settled(self, sale: Sale) -> None:
        sale.pay = largest_remainder(self.sellers(sale), sale.reward)
        assert sum(sale.pay.values()) == sale.reward
        sale.decided = dict.fromkeys(sale.pay, "offered")
        sale.state, sale.tick_ends = State.SETTLED, None
        sale.deadline = self.now + 3600_000

    def now_training(self, sale: Sale) -> None:
        for owner in sale.waiting():
            sale.decided[owner] = "declined"
        sale.state, sale.trained, sale.deadline = State.TRAINING, True, self.now + 300_000
        for owner, amount in sale.pay.items():
            if sale.decided[owner] == "declined":
                self.move(escrow(sale.id), sale.buyer, amount)
            elif sale.payout == "upfront":
                self.move(escrow(sale.id), owner, amount)

    def now_cancelled(self, sale: Sale) -> None:
        self.refund(sale)
        sale.state, sale.deadline, sale.tick_ends = State.CANCELLED, None, None

    def moved_on(self, sale: Sale) -> None:
        """What a deadline, or all that was waited for, has led to."""
        if sale.state is State.OPEN:
            failed = self.can_announce(sale) is not None
            (self.now_cancelled if failed else self.now_announced)(sale)
        elif sale.state is State.ANNOUNCED:
            found = self.trading.task(sale.id)
            enough = len(self.sellers(sale)) >= sale.least
            if self.now >= sale.deadline or found.total_budget < 1e-99 or sale.too_few():
                (self.now_settled if enough else self.now_cancelled)(sale)
            elif found.state is State.ANNOUNCED:  # how P moves is the discovery's own law
                sale.tick += 1
                sale.tick_ends = min(self.now + 60_000, sale.deadline)
            else:  # P stands still
                (self.now_settled if enough else self.now_cancelled)(sale)
                assert found.state is sale.state
        elif sale.state is State.SETTLED:
            enough = len(sale.signed()) >= sale.least
            (self.now_training if enough else self.now_cancelled)(sale)
        else:
            sale.round += 1
            sale.deadline = self.now + 300_000
            if sale.round == sale.rounds:
                self.refund(sale)
                sale.state, sale.deadline = State.COMPLETED, None

    # -- what rules share --------------------------------------------------------------------------

    def attempt(self, error, command, who, *arguments, **options):
        """Carry out a command that must succeed (None), or be refused with this error."""
        if error is None:
            return self.trading.do(command, who, *arguments, **options)
        # A draft, also one that was cancelled, is not there for others.
        with pytest.raises((error, NotFound)):
            self.trading.do(command, who, *arguments, **options)
        return None

    def advance(self) -> None:
        due = [sale for sale in self.sales if sale.is_due(self.now)]
        assert self.trading.advance() == len(due)
        for sale in due:
            self.moved_on(sale)

    def one(self, which: int, *states: State) -> Sale:
        """One of the tasks, of those in these states where there are any."""
        some = [sale for sale in self.sales if sale.state in states] or self.sales
        return some[which % len(some)]

    def in_time(self, sale: Sale, state: State) -> bool:
        return sale.state is state and self.now < sale.deadline

    def buyer_of(self, sale: Sale):
        return next(buyer for buyer in BUYERS if buyer.party == sale.buyer)
