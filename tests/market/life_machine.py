"""Everything that anybody may try with tasks, in any order, checked against the model."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fedbourse.errors import (
    Conflict,
    FedbourseError,
    InvalidInput,
    InvalidTransfer,
    LeftTask,
    NotAllowed,
)
from fedbourse.game.activity import Reply, contradiction
from fedbourse.ledger import OUTSIDE
from fedbourse.market import updates
from fedbourse.market.commands import accounts, payouts
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import training as training_commands
from fedbourse.market.commands.payouts import PAYOUTS
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.trading import OPERATOR, best_budget, caller, card, noise
from market.life_evidence import GRADIENT, REFERENCE, evidence_of
from market.life_invariants import LifeLaws
from market.life_model import BUYERS, MAX_RHO, OWNERS, SHORT
from market.life_sale import Sale

if TYPE_CHECKING:
    from collections.abc import Iterable

INTERESTS = ("withholds", "tells", "absent")
REPLIES = ("best", "zero", "huge", "stale", "silent", "third", "jumps")
DECISIONS = ("sign", "decline", "silent")
UPDATE_FORMATS = (
    "right",
    *["silent"] * 4,
    "next round",
    "last round",
    "other",
    "short",
    "zeros",
    "nan",
)
DEPOSITS = (*[90_000_000] * 4, 12_000_000, 2)
TASK = range(5)
DICE = range(2**16 + 1)
YES_NO = (False, True)
CHOICES: dict[str, dict] = {}
"""Of what each rule's arguments are drawn."""


def drawn(**choices):
    """Make a rule of a method: its arguments are drawn from these."""

    def as_rule(method):
        CHOICES[method.__name__] = choices
        return rule(**{name: st.sampled_from(some) for name, some in choices.items()})(method)

    return as_rule


def by_dice(dice: int, said: tuple) -> list:
    """What each owner does: what is first in the list, all of them or more often than not.

    Drawn here, since Hypothesis likes to repeat itself, and owners should not all do the same.
    """
    random = Random(f"{dice} {said}")
    if dice == 0 or random.random() < 0.3:
        return [said[0]] * OWNERS
    return random.choices(said, weights=[3 * len(said), *[1] * (len(said) - 1)], k=OWNERS)


class Life(LifeLaws):
    """Everything that anybody may try, in any order."""

    # -- money -------------------------------------------------------------------------------------

    @initialize(amounts=st.tuples(*[st.sampled_from(DEPOSITS)] * 2))
    def first_deposits(self, amounts) -> None:
        for buyer, amount in zip(BUYERS, amounts, strict=True):
            self.deposit(BUYERS.index(buyer), amount, False)

    @drawn(
        act=("deposit", "repeat", "leave"),
        who=range(2 + OWNERS),
        amount=range(1, 12_000_001),
        part=("1", "half", "all", "more"),
        operator=YES_NO,
    )
    def money_moves(self, act, who, amount, part, operator) -> None:
        if act == "deposit":
            self.deposit(who, amount, operator)
        elif act == "repeat":
            self.deposit_again(amount)
        else:
            self.leave_task(who, part)

    def deposit(self, who, amount, operator) -> None:
        party = [*[b.party for b in BUYERS], *self.names][who]
        reference = f"bank-{len(self.payments.notes)}"
        self.payments.notes[reference] = party, amount
        by = OPERATOR if operator else caller(party)
        stranger = caller("buyer:mallory")
        received = accounts.look_up(by, self.payments, reference)
        self.attempt(NotAllowed, accounts.deposit, stranger, received)
        self.attempt(None, accounts.deposit, by, received)
        self.move(OUTSIDE, party, amount)

    def deposit_again(self, which) -> None:
        reference = sorted(self.payments.notes)[which % len(self.payments.notes)]
        who = caller(self.payments.notes[reference][0])
        self.attempt(None, accounts.deposit, who, accounts.look_up(who, self.payments, reference))

    def leave_task(self, who, part) -> None:
        party = [*[b.party for b in BUYERS], *self.names][who]
        held = self.money[party]
        amount = {"1": 1, "half": held // 2, "all": held, "more": held + 1}[part]
        options = {"account": party, "amount_micro": amount, "destination": "iban"}
        self.attempt(NotAllowed, payouts.request, OPERATOR, **options)
        self.attempt(InvalidInput, payouts.request, OPERATOR, **options | {"account": FUND})
        refused = InvalidInput if amount < 1 else InvalidTransfer if amount > held else None
        self.attempt(refused, payouts.request, caller(party), **options)
        if refused is None:
            self.move(party, PAYOUTS, amount)

    # -- the buyer ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.sales) < 6)
    @drawn(
        who=range(0, 2),
        reward=(9_999_999, 7, 1_000_001, 10, 3),
        pays=("fund", "refund", "share", "upfront"),
        rounds=range(1, 4),
        least=(2, 2, 2, 3),
        review=(0, 0, 600),
        least_total=(0.0, 0.0, 0.0, 0.5),
        far=("", *["updates"] * 6, "training", "settled", "announced", "open"),
        dice=DICE,
    )
    def create(self, *, who, reward, pays, rounds, least, review, least_total, far, dice) -> None:
        self.trading.time_ms += 1  # ids follow time, and so does the order of what is due
        vesting = "upfront" if pays == "upfront" else "by-round"
        unearned = "fund" if pays == "upfront" else pays
        evidence = evidence_of(dice) if pays == "fund" else None
        wanted = card(
            evidence=evidence,
            samples=2000 if evidence else 20,  # one round shows who has data, where pay is not tiny
            reward=reward / 1e6,
            vesting=vesting,
            unearned=unearned,
            rounds=rounds,
            min_participants=least,
            min_total_budget=least_total,
            max_rho=MAX_RHO,
            deadlines=Deadlines(review_s=review),
        )
        task = self.attempt(None, buyer_commands.create, BUYERS[who], wanted)
        if evidence:
            put, buyer = buyer_commands.put_reference, BUYERS[who]
            self.attempt(None, put, buyer, task.id, content=REFERENCE)
        self.sales.append(
            Sale(
                task.id,
                BUYERS[who].party,
                reward,
                vesting,
                unearned,
                rounds,
                least,
                review_ms=review * 1000,
                least_total=least_total,
                evidence=evidence,
                hollow=frozenset(
                    name for place, name in enumerate(self.names) if dice >> place & 8
                ),
            )
        )
        steps = {
            "open": self.open,
            "announced": lambda sale: (
                self.interest(sale, by_dice(dice, INTERESTS)),
                self.announce(sale),
            ),
            "settled": lambda sale: (
                self.plan(sale, by_dice(dice, REPLIES), 1),
                self.step_back(sale, self.owners[dice % OWNERS], False) if dice % 5 == 1 else None,
                self.plan(sale, by_dice(dice, REPLIES), 25),
            ),
            "training": lambda sale: (
                self.decide(sale, by_dice(dice, DECISIONS)),
                self.time_passes(3601.0 if sale.waiting() else 0.0, True),
                self.plan(sale, by_dice(dice, REPLIES), 25),  # where somebody declined
                self.decide(sale, ["sign"] * OWNERS),
                self.advance(),
                self.time_passes(601.0, True) if sale.review_ends and dice % 3 else None,
            ),
            "updates": lambda sale: (
                self.update(sale, by_dice(dice, UPDATE_FORMATS), 1, True),
                self.time_passes(301.0, True) if dice % 2 else None,  # some were silent
                self.update(sale, by_dice(dice, UPDATE_FORMATS), 2, True),
            ),
        }
        for name, step in steps.items() if far else ():
            step(self.sales[-1])
            self.the_books_hold()
            if name == far:
                break

    @precondition(lambda self: self.sales)
    @drawn(
        which=TASK,
        command=("open", "announce", "train"),
        stray=YES_NO,
    )
    def push(self, which, command, stray) -> None:
        needed = {
            "open": State.DRAFT,
            "announce": State.OPEN,
            "train": State.SETTLED,
        }
        sale = self.one(which, *([] if stray else [needed[command]]))
        getattr(self, command)(sale)

    def open(self, sale) -> None:
        self.attempt(FedbourseError, buyer_commands.open_task, OPERATOR, sale.id)
        refused = self.can_open(sale)
        if sale.vesting == "upfront":
            self.attempt(Conflict, buyer_commands.open_task, self.buyer_of(sale), sale.id)
        self.attempt(
            refused, buyer_commands.open_task, self.buyer_of(sale), sale.id, confirm_upfront=True
        )
        if not refused:
            self.now_open(sale)

    def announce(self, sale) -> None:
        refused = Conflict if sale.state is not State.OPEN else self.can_announce(sale)
        self.attempt(refused, buyer_commands.announce, self.buyer_of(sale), sale.id)
        if not refused:
            self.now_announced(sale)

    def train(self, sale) -> None:
        ready = sale.state is State.SETTLED and self.all_signed(sale)
        self.attempt(
            None if ready else Conflict, training_commands.start, self.buyer_of(sale), sale.id
        )
        if ready:
            self.now_training(sale)

    @precondition(lambda self: self.sales)
    @drawn(
        which=TASK,
        who=("other buyer", "owner", "auditor", "operator", "buyer"),
    )
    def cancel(self, which, who) -> None:
        sale = self.one(which)
        participation = self.buyer_of(sale)
        by = {
            "buyer": participation,
            "operator": OPERATOR,
            "other buyer": BUYERS[1 - BUYERS.index(participation)],
            "owner": self.owners[0].caller,
            "auditor": caller("auditor:kay"),
        }[who]
        if who not in ("buyer", "operator"):
            self.attempt(FedbourseError, buyer_commands.cancel, by, sale.id)
            return
        refused = Conflict if sale.state in ENDED else None
        self.attempt(refused, buyer_commands.cancel, by, sale.id)
        if not refused:
            self.now_cancelled(sale)

    # -- owners ------------------------------------------------------------------------------------

    @precondition(lambda self: self.sales)
    @drawn(
        which=TASK,
        what=("answer", "answer", "decide", "plan", "interest", "leave"),
        dice=DICE,
        times=range(1, 9),
        moves=(True, True, False),
    )
    def owners_act(self, which, what, dice, times, moves) -> None:
        if what == "interest":
            self.interest(self.one(which, State.OPEN), by_dice(dice, INTERESTS))
        elif what == "plan":
            self.plan(self.one(which, State.ANNOUNCED), by_dice(dice, REPLIES), times)
        elif what == "leave":
            sale = self.one(which, State.OPEN, State.ANNOUNCED)
            self.step_back(sale, self.owners[dice % OWNERS], moves)
        elif what == "decide":
            self.decide(self.one(which, State.SETTLED), by_dice(dice, DECISIONS))
        else:
            some = [s for s in self.sales if s.state is State.TRAINING]
            some = some or [s for s in self.sales if s.trained]
            if some:
                self.update(some[which % len(some)], by_dice(dice, UPDATE_FORMATS), times, moves)

    def interest(self, sale, told) -> None:
        refused = None if self.in_time(sale, State.OPEN) else FedbourseError
        hash = self.trading.task(sale.id).card.digest
        for owner, said in zip(self.owners, told, strict=True):
            if said == "absent":
                continue
            gone = owner.name in sale.out
            self.attempt(
                refused or (LeftTask if gone else None),
                owner_commands.register_interest,
                owner.caller,
                sale.id,
                value=owner.value if said == "tells" else None,
                previous=hash,
            )
            if not refused and not gone:
                sale.interested.add(owner.name)

    def step_back(self, sale, owner, moves) -> None:
        early = sale.state in (State.OPEN, State.ANNOUNCED)
        name = owner.name
        leaves = early and name in sale.left()
        known = leaves or name in sale.out
        for _ in range(2):
            self.attempt(
                None if known else FedbourseError, owner_commands.leave_task, owner.caller, sale.id
            )
        if leaves:
            sale.out[name] = "left"
            sale.replies.pop((sale.tick, name), None)
            if sale.state is State.OPEN:
                sale.interested.discard(name)
            else:
                sale.renew(self.now, sale.tick)
            with self.trading.store.read() as tx:
                replies = tx.replies_of(sale.id, name)
            assert [each.tick for each in replies] == sorted(
                tick for tick, who in sale.replies if who == name
            )
            assert not any(each.budget is not None or each.salt for each in replies)
        if early and name in sale.out:
            self.come_back(sale, owner)
        if moves:
            self.advance()

    def come_back(self, sale, owner) -> None:
        """An owner who is out says nothing more."""
        task, late = self.trading.task(sale.id), self.now >= sale.deadline
        if sale.state is State.OPEN:
            command, said = owner_commands.register_interest, {"value": 1.0}
            said["previous"] = task.card.digest
        else:
            command, said = owner_commands.submit_plan, {"tick": task.tick, "budget": 1.0}
            said["previous"] = task.offer
        self.attempt(Conflict if late else LeftTask, command, owner.caller, sale.id, **said)

    def plan(self, sale, replies, ticks) -> None:
        for _ in range(ticks):
            if not self.in_time(sale, State.ANNOUNCED):
                return
            if self.now >= sale.tick_ends:
                self.come_late_to_a_tick(sale)
                self.advance()
                continue
            task = self.trading.task(sale.id)
            for owner, reply in zip(self.owners, replies, strict=True):
                if reply != "silent":
                    self.plan_one(sale, task, owner, reply)
            if not sale.is_due(self.now):
                self.trading.time_ms = sale.tick_ends
            self.advance()

    def come_late_to_a_tick(self, sale) -> None:
        task = self.trading.task(sale.id)
        for owner in self.owners:
            if owner.name in sale.left():
                with pytest.raises(Conflict, match=f"tick {task.tick} has ended"):
                    self.trading.plan(owner, task, 1.0)

    def plan_one(self, sale, task, owner, reply) -> None:
        name = owner.name
        jump = MAX_RHO if task.tick % 2 else 1 / 3
        said = {"zero": 0.0, "huge": MAX_RHO, "third": 1 / 3, "stale": 1.0, "jumps": jump}
        budget = said.get(reply)
        budget = best_budget(owner, task) if budget is None else budget
        options = {"tick": task.tick, "budget": budget, "previous": task.offer}
        refused = None
        if name in sale.out:
            refused = LeftTask
        elif name not in sale.interested:
            refused = NotAllowed
        elif reply == "stale":
            refused, options["tick"] = Conflict, task.tick - 1
        elif self.contradicts(sale, task, name, budget):
            refused = InvalidInput
        if reply == "huge" and refused in (None, InvalidInput):
            more = options | {"budget": MAX_RHO * 1.01}
            self.attempt(InvalidInput, owner_commands.submit_plan, owner.caller, sale.id, **more)
        self.attempt(refused, owner_commands.submit_plan, owner.caller, sale.id, **options)
        if not refused and name in sale.asked():
            sale.replies[task.tick, name] = budget

    def contradicts(self, sale, task, name, budget) -> bool:
        """Whether no owner with one convex cost replies so; ``game.activity`` has its own tests."""
        earlier = [
            Reply(tick, sale.totals[tick], said)
            for (tick, who), said in sorted(sale.replies.items())
            if who == name and tick < task.tick
        ]
        reply = Reply(task.tick, task.total_budget, budget)
        return contradiction(reply, earlier, reward=sale.reward / 1e6) is not None

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

    def update(self, sale, says, rounds, moves) -> None:
        for _ in range(rounds):
            for owner, said in zip(self.owners, says, strict=True):
                if said != "silent":
                    self.answer_one(sale, owner, said)
            if moves:
                self.advance()

    def answer_one(self, sale, owner, said) -> None:
        task = self.trading.task(sale.id)
        with self.trading.store.read() as tx:
            allocation = tx.allocation(sale.id, owner.name)
        if allocation is None and not sale.trained:
            return
        round = sale.round + {"next round": 1, "last round": -1}.get(said, 0)
        budget = allocation.budget if allocation is not None and allocation.budget else 1.0
        with_data = sale.evidence and owner.name not in sale.hollow
        body = noise(
            task,
            budget,
            f"{owner.name} {round} {said == 'other'}",
            gradient=GRADIENT if with_data else 0.0,
        )
        if said in ("short", "zeros", "nan"):
            body = {"short": body[:-8], "zeros": bytes(24), "nan": b"\xff" * 24}[said]
        before = sale.updates.get((round, owner.name))
        options = {"round": round, "body": body}
        if before is not None:
            same = before[0] == body
            again = self.attempt(
                None if same else Conflict, updates.accept_update, owner.caller, sale.id, **options
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
        receipt = self.attempt(refused, updates.accept_update, owner.caller, sale.id, **options)
        if refused is None:
            sale.updates[round, owner.name] = body, receipt
            if not sale.evidence:
                self.move(escrow(sale.id), owner.name, sale.earned(owner.name) - earned)
            assert receipt["receipt"]["earned_micro"] == sale.earned(owner.name)
            assert receipt["receipt"]["held_micro"] == sale.held_pay(owner.name)
            for again in ("right", "next round"):
                self.answer_one(sale, owner, again)

    @precondition(lambda self: self.sales)
    @drawn(which=TASK, who=range(OWNERS))
    def erase(self, which, who) -> None:
        sale, owner = self.one(which, *ENDED), self.owners[who]
        allowed = sale.state in ENDED and owner.name in sale.interested
        self.attempt(
            None if allowed else FedbourseError, owner_commands.erase, owner.caller, sale.id
        )

    # -- time --------------------------------------------------------------------------------------

    @drawn(
        seconds=(0.0, 0.0, SHORT, 61.0, 301.0, 601.0, 3601.0, 86_401.0),
        acts=(True, True, False),
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
                self.attempt(
                    Conflict, owner_commands.register_interest, owner.caller, sale.id, **options
                )
            elif sale.state is State.ANNOUNCED:
                with pytest.raises(Conflict, match="the deadline for plan has passed"):
                    self.trading.plan(owner, task, 1.0)
            elif owner.name not in sale.pay:
                continue
            elif sale.state is State.SETTLED:
                with pytest.raises(Conflict):
                    self.trading.decide(owner, sale.id)
            elif (sale.round, owner.name) not in sale.updates:
                with pytest.raises(Conflict):
                    self.trading.update(owner, task)


def run_life(stores, examples: int, *, steps: int = 25, **options) -> None:
    """Let Hypothesis draw lives."""
    chosen = settings(max_examples=examples, stateful_step_count=steps, **options)
    run_state_machine_as_test(lambda: Life(stores), settings=chosen)


def run_same_lives(stores, lives: Iterable[int], *, steps: int) -> None:
    """Play lives that are drawn without Hypothesis: the same ones whatever else was imported."""
    for number in lives:
        random = Random(number)
        life = Life(stores)
        try:
            life.first_deposits(random.choices(DEPOSITS, k=2))
            for _ in range(steps):
                rules = [
                    name
                    for name in (*CHOICES, *["create"] * 3)
                    if (len(life.sales) < 6 if name == "create" else life.sales)
                ]
                name = random.choice(rules)
                chosen = {each: random.choice(some) for each, some in CHOICES[name].items()}
                getattr(life, name)(**chosen)
                life.the_books_hold()
                life.states_follow_the_table_and_the_log_is_whole()
                life.owners_are_where_they_should_be()
        finally:
            life.teardown()
