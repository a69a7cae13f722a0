"""Everything that anybody may try with tasks, in any order, checked against the model."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fedbourse.errors import (
    Conflict,
    FedbourseError,
    InvalidInput,
    InvalidTransfer,
    NotAllowed,
    Withdrawn,
)
from fedbourse.ledger import OUTSIDE
from fedbourse.market import (
    accounts,
    answers,
    buying,
    log,
    selling,
    training,
)
from fedbourse.market.lifecycle import ENDED, LIFE
from fedbourse.market.service import escrow, was_opened
from fedbourse.market.task import State
from fedbourse.storage import SqlStore
from market.life_model import (
    BUYERS,
    KIND,
    MAX_RHO,
    OWNERS,
    SHORT,
    LifeModel,
    Sale,
)
from market.trading import OPERATOR, caller, card, noise

INTERESTS = ("withholds", "tells", "absent")
REPLIES = ("best", "zero", "huge", "stale", "silent", "third")
DECISIONS = ("sign", "decline", "silent")
ANSWERS = ("right", "silent", "next round", "last round", "other", "short", "zeros", "nan")
TASK = st.integers(0, 4)
DICE = st.integers(0, 2**16)


def by_dice(dice: int, said: tuple) -> list:
    """What each owner does: what is first in the list, all of them or more often than not.

    Drawn here, since Hypothesis likes to repeat itself, and owners should not all do the same.
    """
    random = Random(f"{dice} {said}")
    if dice == 0 or random.random() < 0.3:
        return [said[0]] * OWNERS
    return random.choices(said, weights=[3 * len(said), *[1] * (len(said) - 1)], k=OWNERS)


class Life(LifeModel):
    """Everything that anybody may try, in any order."""

    # -- money -------------------------------------------------------------------------------------

    @initialize(amounts=st.tuples(*[st.sampled_from([90_000_000] * 4 + [12_000_000, 2])] * 2))
    def first_deposits(self, amounts) -> None:
        for buyer, amount in zip(BUYERS, amounts, strict=True):
            self.deposit(BUYERS.index(buyer), amount, False)

    @rule(
        act=st.sampled_from(["deposit", "repeat", "withdraw"]),
        who=st.integers(0, 1 + OWNERS),
        amount=st.integers(1, 12_000_000),
        part=st.sampled_from(["1", "half", "all", "more"]),
        operator=st.booleans(),
    )
    def money_moves(self, act, who, amount, part, operator) -> None:
        if act == "deposit":
            self.deposit(who, amount, operator)
        elif act == "repeat":
            self.deposit_again(amount)
        else:
            self.withdraw(who, part)

    def deposit(self, who, amount, operator) -> None:
        party = [*[b.party for b in BUYERS], *self.names][who]
        reference = f"bank-{len(self.payments.notes)}"
        self.payments.notes[reference] = party, amount
        by = OPERATOR if operator else caller(party)
        stranger = caller("buyer:mallory")
        options = {"reference": reference}
        self.attempt(NotAllowed, accounts.deposit, stranger, self.payments, **options)
        self.attempt(None, accounts.deposit, by, self.payments, **options)
        self.move(OUTSIDE, party, amount)

    def deposit_again(self, which) -> None:
        reference = sorted(self.payments.notes)[which % len(self.payments.notes)]
        who = caller(self.payments.notes[reference][0])
        self.attempt(None, accounts.deposit, who, self.payments, reference=reference)

    def withdraw(self, who, part) -> None:
        party = [*[b.party for b in BUYERS], *self.names][who]
        held = self.money[party]
        amount = {"1": 1, "half": held // 2, "all": held, "more": held + 1}[part]
        options = {"account": party, "amount_micro": amount, "destination": "iban"}
        self.attempt(NotAllowed, accounts.withdraw, OPERATOR, **options)
        refused = InvalidInput if amount < 1 else InvalidTransfer if amount > held else None
        self.attempt(refused, accounts.withdraw, caller(party), **options)
        if refused is None:
            self.move(party, OUTSIDE, amount)

    # -- the buyer ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.sales) < 6)
    @rule(
        who=st.integers(0, 1),
        reward=st.sampled_from([9_999_999, 7, 1_000_001, 10, 3]),
        payout=st.sampled_from(["vested", "upfront"]),
        rounds=st.integers(1, 3),
        least=st.sampled_from([2, 2, 2, 3]),
        far=st.sampled_from(["", *["answers"] * 6, "training", "settled", "announced", "open"]),
        dice=DICE,
        late=st.sampled_from([3601.0, 0.0]),
    )
    def create(self, *, who, reward, payout, rounds, least, far, dice, late) -> None:
        self.trading.time_ms += 1  # ids follow time, and so does the order of what is due
        wanted = card(
            reward=reward / 1e6,
            payout=payout,
            rounds=rounds,
            min_participants=least,
            max_rho=MAX_RHO,
        )
        task = self.attempt(None, buying.create, BUYERS[who], wanted)
        self.sales.append(Sale(task.id, BUYERS[who].party, reward, payout, rounds, least))
        steps = {
            "open": self.open,
            "announced": lambda sale: (
                self.interest(sale, by_dice(dice, INTERESTS)),
                self.announce(sale),
            ),
            "settled": lambda sale: (
                self.plan(sale, by_dice(dice, REPLIES), 1),
                self.step_back(sale, self.owners[dice % OWNERS], False) if dice % 5 == 1 else None,
                self.plan(sale, by_dice(dice, REPLIES), 5),
                self.settle(sale),
            ),
            "training": lambda sale: (
                self.decide(sale, by_dice(dice, DECISIONS)),
                self.time_passes(late, True),
            ),
            "answers": lambda sale: self.answer(sale, by_dice(dice, ANSWERS), 2, True),
        }
        for name, step in steps.items() if far else ():
            step(self.sales[-1])
            self.the_books_hold()
            if name == far:
                break

    @precondition(lambda self: self.sales)
    @rule(
        which=TASK,
        command=st.sampled_from(["open", "announce", "settle", "train"]),
        stray=st.booleans(),
    )
    def push(self, which, command, stray) -> None:
        needed = {
            "open": State.DRAFT,
            "announce": State.OPEN,
            "settle": State.ANNOUNCED,
            "train": State.SETTLED,
        }
        sale = self.one(which, *([] if stray else [needed[command]]))
        getattr(self, command)(sale)

    def open(self, sale) -> None:
        self.attempt(FedbourseError, buying.open_task, OPERATOR, sale.id)
        refused = None if sale.state is State.DRAFT else Conflict
        self.attempt(refused, buying.open_task, self.buyer_of(sale), sale.id)
        if not refused:
            sale.state, sale.deadline = State.OPEN, self.now + 86_400_000

    def announce(self, sale) -> None:
        refused = Conflict if sale.state is not State.OPEN else self.can_announce(sale)
        self.attempt(refused, buying.announce, self.buyer_of(sale), sale.id)
        if not refused:
            self.now_announced(sale)

    def settle(self, sale) -> None:
        ready = sale.state is State.ANNOUNCED and len(self.sellers(sale)) >= sale.least
        self.attempt(None if ready else Conflict, buying.settle, self.buyer_of(sale), sale.id)
        if ready:
            self.now_settled(sale)

    def train(self, sale) -> None:
        ready = sale.state is State.SETTLED and len(sale.signed()) >= sale.least
        ready = ready and (not sale.waiting() or self.now >= sale.deadline)
        self.attempt(None if ready else Conflict, training.start, self.buyer_of(sale), sale.id)
        if ready:
            self.now_training(sale)

    @precondition(lambda self: self.sales)
    @rule(
        which=TASK,
        who=st.sampled_from(["other buyer", "owner", "auditor", "operator", "buyer"]),
    )
    def cancel(self, which, who) -> None:
        sale = self.one(which)
        mine = self.buyer_of(sale)
        by = {
            "buyer": mine,
            "operator": OPERATOR,
            "other buyer": BUYERS[1 - BUYERS.index(mine)],
            "owner": self.owners[0].caller,
            "auditor": caller("auditor:kay"),
        }[who]
        if who not in ("buyer", "operator"):
            self.attempt(FedbourseError, buying.cancel, by, sale.id)
            return
        refused = Conflict if sale.state in ENDED else None
        self.attempt(refused, buying.cancel, by, sale.id)
        if not refused:
            self.now_cancelled(sale)

    # -- owners ------------------------------------------------------------------------------------

    @precondition(lambda self: self.sales)
    @rule(
        which=TASK,
        what=st.sampled_from(["answer", "answer", "decide", "plan", "interest", "withdraw"]),
        dice=DICE,
        times=st.integers(1, 8),
        moves=st.sampled_from([True, True, False]),
    )
    def owners_act(self, which, what, dice, times, moves) -> None:
        if what == "interest":
            self.interest(self.one(which, State.OPEN), by_dice(dice, INTERESTS))
        elif what == "plan":
            self.plan(self.one(which, State.ANNOUNCED), by_dice(dice, REPLIES), times)
        elif what == "withdraw":
            sale = self.one(which, State.OPEN, State.ANNOUNCED)
            self.step_back(sale, self.owners[dice % OWNERS], moves)
        elif what == "decide":
            self.decide(self.one(which, State.SETTLED), by_dice(dice, DECISIONS))
        else:
            some = [s for s in self.sales if s.state is State.TRAINING]
            some = some or [s for s in self.sales if s.trained]
            if some:
                self.answer(some[which % len(some)], by_dice(dice, ANSWERS), times, moves)

    def interest(self, sale, told) -> None:
        refused = None if self.in_time(sale, State.OPEN) else FedbourseError
        hash = self.trading.task(sale.id).card.digest
        for owner, said in zip(self.owners, told, strict=True):
            if said == "absent":
                continue
            gone = owner.name in sale.withdrawn
            self.attempt(
                refused or (Withdrawn if gone else None),
                selling.register_interest,
                owner.caller,
                sale.id,
                value=owner.value if said == "tells" else None,
                previous=hash,
            )
            if not refused and not gone:
                sale.interested.add(owner.name)

    def step_back(self, sale, owner, moves) -> None:
        early = sale.state in (State.OPEN, State.ANNOUNCED)
        known = owner.name in sale.withdrawn or (early and owner.name in sale.interested)
        for _ in range(2):
            self.attempt(None if known else FedbourseError, selling.withdraw, owner.caller, sale.id)
        if known and early:
            sale.withdrawn.add(owner.name)
            sale.plans.pop(owner.name, None)
            if sale.state is State.OPEN:
                sale.interested.discard(owner.name)
            self.come_back(sale, owner)
        if moves:
            self.advance()

    def come_back(self, sale, owner) -> None:
        """What an owner who has withdrawn said is gone, and it says nothing more."""
        with self.trading.store.read() as unit:
            assert unit.plan(sale.id, owner.name) is None
        task, late = self.trading.task(sale.id), self.now >= sale.deadline
        if sale.state is State.OPEN:
            command, said = selling.register_interest, {"value": 1.0}
            said["previous"] = task.card.digest
        else:
            command, said = selling.submit_plan, {"tick": task.tick, "budget": 1.0}
            said["previous"] = task.offer
        self.attempt(Conflict if late else Withdrawn, command, owner.caller, sale.id, **said)

    def plan(self, sale, replies, ticks) -> None:
        for _ in range(ticks):
            task = self.trading.task(sale.id)
            if not self.in_time(sale, State.ANNOUNCED):
                return
            for owner, reply in zip(self.owners, replies, strict=True):
                if reply != "silent":
                    self.plan_one(sale, task, owner, reply)
            if not sale.is_due(self.now):
                self.trading.time_ms = sale.tick_ends
            self.advance()

    def plan_one(self, sale, task, owner, reply) -> None:
        if owner.name in sale.withdrawn:
            options = {"tick": task.tick, "budget": 1.0, "previous": task.offer}
            self.attempt(Withdrawn, selling.submit_plan, owner.caller, sale.id, **options)
            return
        if reply == "best":
            if owner.name in sale.interested:
                sale.plans[owner.name] = (task.tick, self.trading.plan(owner, task).budget)
            return
        budget = {"zero": 0.0, "huge": MAX_RHO, "third": 1 / 3, "stale": 1.0}[reply]
        refused = None if owner.name in sale.interested else NotAllowed
        options = {"tick": task.tick, "budget": budget, "previous": task.offer}
        if reply == "stale" and not refused:
            refused, options["tick"] = Conflict, task.tick - 1
        if reply == "huge" and not refused:
            more = options | {"budget": MAX_RHO * 1.01}
            self.attempt(InvalidInput, selling.submit_plan, owner.caller, sale.id, **more)
        self.attempt(refused, selling.submit_plan, owner.caller, sale.id, **options)
        if not refused:
            sale.plans[owner.name] = (task.tick, budget)

    def decide(self, sale, says) -> None:
        if not self.in_time(sale, State.SETTLED):
            return
        for owner, said in zip(self.owners, says, strict=True):
            if said == "silent" or owner.name not in sale.pay:
                continue
            with pytest.raises(FedbourseError):
                self.trading.decide(owner, sale.id, key=self.forger)
            wanted = "signed" if said == "sign" else "declined"
            if sale.decided[owner.name] in ("offered", wanted):
                self.trading.decide(owner, sale.id, accept=said == "sign")
                sale.decided[owner.name] = wanted
            else:
                with pytest.raises(Conflict):
                    self.trading.decide(owner, sale.id, accept=said == "sign")

    def answer(self, sale, says, rounds, moves) -> None:
        for _ in range(rounds):
            for owner, said in zip(self.owners, says, strict=True):
                if said != "silent":
                    self.answer_one(sale, owner, said)
            if moves:
                self.advance()

    def answer_one(self, sale, owner, said) -> None:
        task = self.trading.task(sale.id)
        with self.trading.store.read() as unit:
            line = unit.line(sale.id, owner.name)
        if line is None and not sale.trained:
            return
        round = sale.round + {"next round": 1, "last round": -1}.get(said, 0)
        budget = line.budget if line is not None and line.budget else 1.0
        body = noise(task, budget, f"{owner.name} {round} {said == 'other'}")
        if said in ("short", "zeros", "nan"):
            body = {"short": body[:-8], "zeros": bytes(24), "nan": b"\xff" * 24}[said]
        before = sale.answers.get((round, owner.name))
        options = {"round": round, "body": body}
        if before is not None:
            same = before[0] == body
            again = self.attempt(
                None if same else Conflict, answers.accept_answer, owner.caller, sale.id, **options
            )
            assert again == before[1] or not same
            return
        refused = None
        if not self.in_time(sale, State.TRAINING) or round != sale.round:
            refused = Conflict
        elif sale.decided.get(owner.name) != "signed":
            refused = NotAllowed
        elif said in ("short", "zeros", "nan"):
            refused = InvalidInput
        earned = sale.earned(owner.name) if owner.name in sale.decided else 0
        receipt = self.attempt(refused, answers.accept_answer, owner.caller, sale.id, **options)
        if refused is None:
            sale.answers[round, owner.name] = body, receipt
            self.move(escrow(sale.id), owner.name, sale.earned(owner.name) - earned)
            assert receipt["receipt"]["earned_micro"] == sale.earned(owner.name)
            for again in ("right", "next round"):
                self.answer_one(sale, owner, again)

    @precondition(lambda self: self.sales)
    @rule(which=TASK, who=st.integers(0, OWNERS - 1))
    def erase(self, which, who) -> None:
        sale, owner = self.one(which, *ENDED), self.owners[who]
        allowed = sale.state in ENDED and owner.name in sale.interested
        self.attempt(None if allowed else FedbourseError, selling.erase, owner.caller, sale.id)

    # -- time --------------------------------------------------------------------------------------

    @rule(
        seconds=st.sampled_from([0.0, 0.0, SHORT, 61.0, 301.0, 301.0, 3601.0, 86_401.0]),
        acts=st.sampled_from([True, True, False]),
    )
    def time_passes(self, seconds, acts) -> None:
        self.trading.time_ms += int(seconds * 1000)
        for sale in self.sales:
            if sale.deadline is not None and self.now >= sale.deadline:
                self.come_too_late(sale)
        if acts:
            self.advance()

    def come_too_late(self, sale: Sale) -> None:
        """The clock has not acted yet; still nobody gets anything done."""
        task = self.trading.task(sale.id)
        for owner in self.owners:
            if sale.state is State.OPEN:
                options = {"value": None, "previous": task.card.digest}
                self.attempt(Conflict, selling.register_interest, owner.caller, sale.id, **options)
            elif sale.state is State.ANNOUNCED:
                with pytest.raises(Conflict):
                    self.trading.plan(owner, task, 1.0)
            elif owner.name not in sale.pay:
                continue
            elif sale.state is State.SETTLED:
                with pytest.raises(Conflict):
                    self.trading.decide(owner, sale.id)
            elif (sale.round, owner.name) not in sale.answers:
                with pytest.raises(Conflict):
                    self.trading.answer(owner, task)

    # -- laws --------------------------------------------------------------------------------------

    @invariant()
    def the_books_hold(self) -> None:
        with self.trading.store.read() as unit:
            held = dict(unit.balances(limit=10_000))
            entries = unit.entries(after=self.seen_entries, limit=100_000)
        assert sum(held.values()) == 0
        assert all(amount >= 0 for name, amount in held.items() if name != OUTSIDE)
        expected = {name: amount for name, amount in self.money.items() if amount}
        assert {name: amount for name, amount in held.items() if amount} == expected
        for entry in entries:
            self.seen_entries = entry.sequence
            self.into[entry.target] += entry.amount
            self.out[entry.source, entry.target] += entry.amount
        for sale in self.sales:
            self.one_task_is_paid_rightly(sale, held.get(escrow(sale.id), 0))

    def one_task_is_paid_rightly(self, sale: Sale, left: int) -> None:
        box = escrow(sale.id)
        paid = {target: amount for (source, target), amount in self.out.items() if source == box}
        back = paid.pop(sale.buyer, 0)
        assert self.into[box] == (sale.reward if sale.held else 0)
        assert sum(paid.values()) + back + left == self.into[box]
        assert left == 0 or sale.state not in ENDED
        assert paid == {o: sale.earned(o) for o in sale.pay if sale.earned(o)}
        assert all(amount <= sale.pay[owner] for owner, amount in paid.items())

    @invariant()
    def states_follow_the_table_and_the_log_is_whole(self) -> None:
        with self.trading.store.read() as unit:
            for sale in self.sales:
                task = unit.task(sale.id)
                assert task.state is sale.state
                assert task.deadline_ms == sale.deadline
                assert (task.tick, task.tick_ends_ms) == (sale.tick, sale.tick_ends)
                assert task.round == sale.round
                place, last, state = self.seen_events.get(sale.id, (-1, task.card.digest, None))
                for event in unit.events(sale.id, after=place, limit=10_000):
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

    def teardown(self) -> None:
        with self.stack:
            for sale in self.sales:
                self.verify(sale)
                if sale.state in ENDED and sale.interested:
                    who = next(o for o in self.owners if o.name in sale.interested)
                    self.attempt(None, selling.erase, who.caller, sale.id)
                    self.verify(sale)

    def verify(self, sale: Sale) -> None:
        """Everybody recomputes the task; what cannot be seen is no failure."""
        seen = was_opened(self.trading.task(sale.id))
        for owner in [None, *self.owners] if seen else [None]:
            found = self.trading.verified(sale.id, owner=owner)
            assert [check for check in found if check.passed is False] == []


def sqlite_stores(template: Path):
    """Each example gets a file of its own, in memory where there is such a folder."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None

    @contextmanager
    def opened():
        with tempfile.TemporaryDirectory(prefix="fb-life-", dir=memory) as folder:
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


def run_life(stores, examples: int, *, steps: int = 25, **options) -> None:
    chosen = settings(max_examples=examples, stateful_step_count=steps, **options)
    run_state_machine_as_test(lambda: Life(stores), settings=chosen)
