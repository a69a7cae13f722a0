"""What must hold after every step of every life, and where a life is lived."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis.stateful import invariant

from fedbourse.ledger import OUTSIDE
from fedbourse.market import log
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.lifecycle import ENDED, LIFE
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow, was_opened
from fedbourse.storage import SqlStore
from fedbourse.testing.databases import MEMORY
from market.life_model import KIND, LifeModel

if TYPE_CHECKING:
    from market.life_sale import Sale


class LifeLaws(LifeModel):
    """The books, the states, the logs and the records of owners are what the model says."""

    @invariant()
    def the_books_hold(self) -> None:
        with self.trading.store.read() as tx:
            held = dict(tx.balances(limit=10_000))
            entries = tx.entries(after=self.seen_entries, limit=100_000)
        assert sum(held.values()) == 0
        assert all(amount >= 0 for name, amount in held.items() if name != OUTSIDE)
        expected = {name: amount for name, amount in self.money.items() if amount}
        assert {name: amount for name, amount in held.items() if amount} == expected
        for entry in entries:
            assert entry.debit != FUND
            self.seen_entries = entry.sequence
            self.into[entry.credit] += entry.amount
            self.out[entry.debit, entry.credit] += entry.amount
        for sale in self.sales:
            self.one_task_is_paid_rightly(sale, held.get(escrow(sale.id), 0))

    def one_task_is_paid_rightly(self, sale: Sale, left: int) -> None:
        box = escrow(sale.id)
        paid = {target: amount for (source, target), amount in self.out.items() if source == box}
        back, fund = paid.pop(sale.buyer, 0), paid.pop(FUND, 0)
        assert self.into[box] == (sale.reward if sale.held else 0)
        assert sum(paid.values()) + back + fund + left == self.into[box]
        assert left == 0 or sale.state not in ENDED
        assert fund == 0 or sale.unearned != "refund"
        due = {owner: sale.earned(owner) - sale.held_pay(owner) for owner in sale.pay}
        assert paid == {owner: amount for owner, amount in due.items() if amount}
        if sale.state is State.TRAINING:  # held pay lies in escrow, also what was lost
            assert left >= sum(map(sale.held_pay, sale.pay)) + sum(sale.lost.values())
        if sale.unearned != "share":
            assert all(amount <= sale.pay[owner] for owner, amount in paid.items())

    @invariant()
    def states_follow_the_table_and_the_log_is_whole(self) -> None:
        with self.trading.store.read() as tx:
            for sale in self.sales:
                task = tx.task(sale.id)
                assert task.state is sale.state
                assert (task.deadline_ms, task.review_ends_ms) == (sale.deadline, sale.review_ends)
                assert (task.tick, task.tick_ends_ms) == (sale.tick, sale.tick_ends)
                assert (task.totals, task.settled_tick) == (tuple(sale.totals), sale.settled_tick)
                assert task.round == sale.round
                place, last, state = self.seen_events.get(sale.id, (-1, task.card.digest, None))
                for event in tx.events(sale.id, after=place, limit=10_000):
                    assert event.sequence == place + 1
                    assert event.previous == last
                    assert log.is_intact(event)
                    now = State(event.body["state"])
                    if state is None:
                        assert (event.kind, now) == ("created", State.DRAFT)
                    else:
                        assert LIFE[state, KIND[event.kind]].next is now
                    place, last, state = event.sequence, event.hash, now
                assert (task.last_sequence, task.last_hash) == (place, last)
                assert state is sale.state
                self.seen_events[sale.id] = place, last, state

    @invariant()
    def owners_are_where_they_should_be(self) -> None:
        with self.trading.store.read() as tx:
            for sale in self.sales:
                if sale.state is State.ANNOUNCED:
                    assert tx.task(sale.id).asked == len(sale.asked())
                exits = tx.exits(sale.id, self.names)
                assert {name: gone.reason for name, gone in exits.items()} == sale.out
                interests = {each.owner: each for each in tx.interests(sale.id)}
                assert interests.keys() == sale.interested
                for name, each in interests.items():
                    assert each.zero_from == sale.zero_from.get(name)
                allocations = tx.allocations(sale.id)
                assert {
                    allocation.owner: int(allocation.payment) for allocation in allocations
                } == sale.pay
                assert {
                    allocation.owner: allocation.state for allocation in allocations
                } == sale.decided
                for allocation in allocations:
                    assert allocation.earned == sale.earned(allocation.owner)
                    assert allocation.held == sale.held_pay(allocation.owner)

    def teardown(self) -> None:
        with self.stack:
            for sale in self.sales:
                self.verify(sale)
                if sale.state in ENDED and sale.interested:
                    who = next(o for o in self.owners if o.name in sale.interested)
                    self.attempt(None, owner_commands.erase, who.caller, sale.id)
                    self.verify(sale)

    def verify(self, sale: Sale) -> None:
        """Everybody recomputes the task; what cannot be seen is no failure."""
        seen = was_opened(self.trading.task(sale.id))
        for owner in [None, *self.owners] if seen else [None]:
            found = self.trading.verified(sale.id, owner=owner)
            assert [check for check in found if check.passed is False] == []


def sqlite_stores(template: Path):
    """Each example gets a file of its own, in memory where there is such a folder."""

    @contextmanager
    def opened():
        with tempfile.TemporaryDirectory(prefix="fb-life-", dir=MEMORY) as folder:
            file = shutil.copy(template, Path(folder) / "market.db")
            with SqlStore(f"sqlite:///{file}") as store:
                yield store

    return opened


def postgresql_stores(server):
    """Each example gets a database of its own."""

    @contextmanager
    def opened():
        with server.database(template="fedbourse_template") as url, SqlStore(url) as store:
            yield store

    return opened
