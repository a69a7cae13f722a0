"""A model of money and states in plain Python, which every life of every task must agree with."""

from __future__ import annotations

import copy
from collections import defaultdict
from contextlib import ExitStack

import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
)

from fedbourse.errors import Conflict, FedbourseError, InvalidTransfer, NotFound
from fedbourse.market.lifecycle import Command
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.protocol.keys import SigningKey
from fedbourse.testing.trading import Trading, caller
from market.life_evidence import HeldPay
from market.life_sale import PLANS_MS, TICK_MS, TICKS_MAX, Sale, largest_remainder

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
    "restarted": Command.RESTART,
    "signed": Command.DECIDE,
    "training": Command.TRAIN,
    "round": Command.CLOSE_ROUND,
    "completed": Command.COMPLETE,
    "cancelled": Command.CANCEL,
}
"""What each event of the log says has happened."""


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
        self.held_pay = HeldPay(self.trading, self.move)
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

    def move(self, debit: str, credit: str, amount: int) -> None:
        self.money[debit] -= amount
        self.money[credit] += amount

    def empty_escrow(self, sale: Sale) -> None:
        """What closed rounds did not earn goes by the card; all else is the buyer's."""
        box, absent = escrow(sale.id), sale.absent_pay()
        if sale.unearned == "share":
            sale.share_out(absent)
            for owner, bonus in sale.bonus.items():
                self.move(box, owner, bonus)
                absent -= bonus
        if sale.unearned != "refund":
            self.move(box, FUND, absent + sum(sale.lost.values()))
        self.move(box, sale.buyer, self.money[box])

    def can_open(self, sale: Sale) -> type[FedbourseError] | None:
        if sale.state is not State.DRAFT:
            return Conflict
        return InvalidTransfer if self.money[sale.buyer] < sale.reward else None

    def now_open(self, sale: Sale) -> None:
        self.move(sale.buyer, escrow(sale.id), sale.reward)
        sale.held, sale.state = True, State.OPEN
        sale.deadline = self.now + 86_400_000

    def can_announce(self, sale: Sale) -> type[FedbourseError] | None:
        return Conflict if len(sale.interested) < sale.least else None

    def now_announced(self, sale: Sale) -> None:
        sale.state, sale.deadline = State.ANNOUNCED, self.now + PLANS_MS
        self.next_tick(sale)

    def next_tick(self, sale: Sale) -> None:
        """Announce a total; how P moves is the discovery's own law."""
        task = self.trading.task(sale.id)
        assert task.state is State.ANNOUNCED
        assert task.totals[:-1] == tuple(sale.totals)
        sale.totals.append(task.total_budget)
        sale.state, sale.tick_ends = State.ANNOUNCED, min(self.now + TICK_MS, sale.deadline)

    def now_settled(self, sale: Sale) -> bool:
        """Settle at the qualifying tick; False where that cannot be."""
        sold = sale.sellers()
        if sold is None:
            return False
        sale.settled_tick = sale.qualifying()
        sale.pay = largest_remainder(sold, sale.reward)
        assert sum(sale.pay.values()) == sale.reward
        sale.decided = dict.fromkeys(sale.pay, "offered")
        sale.state, sale.tick_ends = State.SETTLED, None
        sale.deadline = self.now + 3600_000
        return True

    def now_reviewed(self, sale: Sale) -> None:
        sale.deadline = sale.review_ends = self.now + sale.review_ms

    def now_training(self, sale: Sale) -> None:
        assert set(sale.decided.values()) == {"signed"}
        sale.state, sale.trained, sale.deadline = State.TRAINING, True, self.now + 300_000
        sale.review_ends = None
        for owner, amount in sale.pay.items():
            if sale.vesting == "upfront":
                self.move(escrow(sale.id), owner, amount)

    def now_cancelled(self, sale: Sale) -> None:
        if sale.state is State.TRAINING and sale.evidence:
            self.held_pay.cancel(sale)
        self.empty_escrow(sale)
        sale.state, sale.deadline = State.CANCELLED, None
        sale.tick_ends = sale.review_ends = None

    def moved_on(self, sale: Sale) -> None:
        """What a deadline, or all that was waited for, has led to."""
        if sale.state is State.OPEN:
            failed = self.can_announce(sale) is not None
            (self.now_cancelled if failed else self.now_announced)(sale)
        elif sale.state is State.TRAINING:
            if sale.evidence:
                self.held_pay.close_round(sale)
            sale.round += 1
            sale.deadline = self.now + 300_000
            if sale.round == sale.rounds:
                self.empty_escrow(sale)
                sale.state, sale.deadline = State.COMPLETED, None
        else:
            before = copy.deepcopy(vars(sale))
            went_on = self.tick_over if sale.state is State.ANNOUNCED else self.terms_over
            if not went_on(sale):  # all of it is undone, and the task cancelled
                vars(sale).update(before)
                self.now_cancelled(sale)

    def tick_over(self, sale: Sale) -> bool:
        if sale.close_tick():
            sale.renew(self.now, len(sale.totals))
        last = len(sale.totals) - sale.first_tick >= TICKS_MAX
        over = self.now + TICK_MS > sale.deadline
        if over or sale.too_few() or last or sale.converged():
            return self.now_settled(sale)
        task = self.trading.task(sale.id)
        if len(task.totals) == len(sale.totals):  # no smaller total is announced
            assert sale.totals[-1] < 1e-90
            return self.now_settled(sale)
        self.next_tick(sale)
        return True

    def terms_over(self, sale: Sale) -> bool:
        if sale.review_ends is not None or (not sale.review_ms and self.all_signed(sale)):
            self.now_training(sale)
            return True
        if self.all_signed(sale):
            self.now_reviewed(sale)
            return True
        sale.strike_out()
        sale.renew(self.now, len(sale.totals))
        if sale.too_few():
            return False
        if sale.converged():
            return self.now_settled(sale)
        self.next_tick(sale)
        return True

    @staticmethod
    def all_signed(sale: Sale) -> bool:
        return len(sale.signed()) == len(sale.pay)

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
