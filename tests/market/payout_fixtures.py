"""Pay-outs, a bank that fails, an operator and kills, with the laws that always hold."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from itertools import pairwise

from fedbourse.errors import Conflict, InvalidTransfer
from fedbourse.market.commands import payouts
from fedbourse.market.commands.payouts import NEXT, OPEN, PAYOUTS, PayoutState
from fedbourse.testing.trading import OPERATOR, Trading, caller

PARTIES = ("owner:ann", "owner:bob", "buyer:acme")
DEPOSIT = 1000


class Killed(BaseException):
    """The process is gone."""


class Bank:
    """A payment adapter that pays each id once, and whose parties' banks can be down."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.paid: dict[str, tuple[str, int]] = {}
        """What was paid and did not come back, by id."""
        self.down: set[str] = set()
        self.unsure: set[str] = set()
        """Parties whose payments are made, and then said to have failed."""
        self.killed: str | None = None
        """Whether the market is killed before or after the next payment."""
        self.meanwhile = lambda payout: None

    def pay(self, payout) -> None:
        assert not self.world.store.open, "the bank was called while a transaction was open"
        self.meanwhile(payout)
        if payout.party in self.down:
            raise OSError("the line is dead")
        self._kill("before")
        self.paid.setdefault(payout.id, (payout.party, payout.amount))
        if payout.party in self.unsure:
            raise TimeoutError("no reply")
        self._kill("after")

    def has_paid(self, payout: str) -> bool:
        assert not self.world.store.open, "the bank was called while a transaction was open"
        return payout in self.paid

    def _kill(self, place: str) -> None:
        if self.killed == place:
            self.killed = None
            raise Killed


class Store:
    """A store that knows how many transactions are open, and whose process can be killed."""

    def __init__(self, store) -> None:
        self._store = store
        self.open = 0
        self.kill_at: tuple[int, str] | None = None
        """After how many more writes the process is killed, before or after the commit."""

    @contextmanager
    def begin(self):
        place = None
        if self.kill_at is not None:
            left, where = self.kill_at
            self.kill_at = (left - 1, where) if left else None
            place = None if left else where
        with self._counted(self._store.begin()) as tx:
            yield tx
            if place == "before":
                raise Killed
        if place == "after":
            raise Killed

    def read(self):
        return self._counted(self._store.read())

    @contextmanager
    def _counted(self, transaction):
        self.open += 1
        try:
            with transaction as tx:
                yield tx
        finally:
            self.open -= 1


class World:
    """What anybody may do, in any order."""

    def __init__(self, store) -> None:
        self.store = Store(store)
        self.trading = Trading(self.store)
        self.bank = Bank(self)
        for number, party in enumerate(PARTIES):
            self.trading.fund(DEPOSIT, party=party, reference=str(number))

    # -- what may happen -----------------------------------------------------------------------

    def ask(self, who: int, amount: int) -> None:
        """Somebody wants money out."""
        party = PARTIES[who % len(PARTIES)]
        options = {"account": party, "amount_micro": amount, "destination": "iban"}
        with suppress(InvalidTransfer):
            self.trading.do(payouts.request, caller(party), **options)
        self.trading.time_ms += 1

    def fail(self, who: int, how: int) -> None:
        """Somebody's bank is down, takes payments and says that it did not, or is well again."""
        party = PARTIES[who % len(PARTIES)]
        for index, parties in enumerate((self.bank.down, self.bank.unsure)):
            parties.discard(party)
            if how % 3 == index:
                parties.add(party)

    def hand_over(self, who: int = 0, how: int = 0) -> None:
        """The queue is gone through, and none that could be sent is left behind."""
        well = set(PARTIES) - self.bank.down - self.bank.unsure
        with self.store.read() as tx:
            due = tx.due_payouts(now_ms=self.trading.time_ms, limit=1000)
        payouts.hand_over(self.trading.market, self.store, self.bank)
        for payout in due:
            if payout.party in well:
                assert self.payout(payout.id).state is PayoutState.SENT, "one blocks a later one"

    def kill(self, who: int, how: int) -> None:
        """The queue is gone through by a process that is killed at some point; another starts."""
        if who % 2:
            self.bank.killed = ("before", "after")[how % 2]
        else:
            self.store.kill_at = (who // 2 % 5, ("before", "after")[how % 2])
        with suppress(Killed):
            payouts.hand_over(self.trading.market, self.store, self.bank)
        self.bank.killed = self.store.kill_at = None
        payouts.take_up(self.trading.market, self.store)

    def wait(self, who: int, how: int) -> None:
        """Time passes."""
        self.trading.time_ms += (500, 5_000, 100_000)[how % 3]

    def confirm(self, who: int, how: int) -> None:
        """The operator says that a pay-out has arrived."""
        for payout in self.some(who):
            with suppress(Conflict):
                self.trading.do(payouts.confirm, OPERATOR, payout.id)

    def give_back(self, who: int, how: int) -> None:
        """The operator gives a pay-out up; one that was sent has come back from its bank."""
        for payout in self.some(who):
            self._give_back(payout)

    def race(self, who: int, how: int) -> None:
        """The operator gives each pay-out up at the very moment at which it is handed over."""
        self.bank.meanwhile = self._give_back
        payouts.hand_over(self.trading.market, self.store, self.bank)
        self.bank.meanwhile = lambda payout: None

    def _give_back(self, payout) -> None:
        inquiry = payouts.inquire(self.store, self.bank, OPERATOR, payout.id)
        came_back = self.payout(payout.id).state is PayoutState.SENT
        with suppress(Conflict):
            self.trading.do(
                payouts.give_back, OPERATOR, payout.id, inquiry=inquiry, reason="no such IBAN"
            )
            if came_back:
                del self.bank.paid[payout.id]

    # -- what holds ----------------------------------------------------------------------------

    def payout(self, id: str):
        with self.store.read() as tx:
            return tx.payout(id)

    def everything(self):
        with self.store.read() as tx:
            return [each for party in PARTIES for each in tx.payouts(party, limit=10_000)]

    def some(self, which: int):
        found = sorted(self.everything(), key=lambda payout: payout.id)
        return found[which % len(found) :][:1] if found else []

    def check(self) -> None:
        """Hold every law against the records."""
        found = self.everything()
        with self.store.read() as tx:
            held = dict(tx.balances(limit=1000))
            steps = {payout.id: tx.payout_steps(payout.id) for payout in found}
            queue = tx.open_payouts(limit=10_000)
            leaving = {party: tx.leaving(party) for party in PARTIES}
        assert sum(held.values()) == 0, "money is not conserved"
        on_its_way: Counter[str] = Counter()
        gone: Counter[str] = Counter()
        for payout in found:
            on_its_way[payout.party] += payout.amount * (payout.state in OPEN)
            gone[payout.party] += payout.amount * (payout.state is not PayoutState.RETURNED)
        assert held.get(PAYOUTS, 0) == on_its_way.total(), "money is not conserved"
        assert leaving == {party: on_its_way[party] for party in PARTIES}
        for party in PARTIES:
            assert held[party] == DEPOSIT - gone[party], "money is not conserved"
        assert [each.id for each in queue] == sorted(p.id for p in found if p.state in OPEN)
        for payout in found:
            states = [step.state for step in steps[payout.id]]
            assert states[0] is PayoutState.REQUESTED
            assert states[-1] is payout.state
            assert all(after in NEXT[before] for before, after in pairwise(states))
            was_paid = payout.id in self.bank.paid
            if payout.state in (PayoutState.SENT, PayoutState.CONFIRMED):
                assert was_paid, "a pay-out is lost"
            if payout.state is PayoutState.RETURNED:
                assert not was_paid, "a pay-out is paid and returned"
        wrong = set(self.bank.paid) - {payout.id for payout in found}
        assert not wrong, "a pay-out is paid twice"

    def end(self) -> None:
        """Let all banks be well and time pass: nothing is left waiting."""
        self.bank.down.clear()
        self.bank.unsure.clear()
        for _ in range(2):
            self.trading.time_ms += 3_700_000
            self.hand_over()
            self.check()
        assert not [payout for payout in self.everything() if payout.waits], "a pay-out is lost"


ACTS = (
    World.ask,
    World.fail,
    World.hand_over,
    World.kill,
    World.wait,
    World.confirm,
    World.give_back,
    World.race,
)


def live(store, acts) -> World:
    """Let things happen, with all laws held against each of them."""
    world = World(store)
    for act, who, how in acts:
        act(world, who, how)
        world.check()
    world.end()
    return world
