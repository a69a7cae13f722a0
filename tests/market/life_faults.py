"""Faults that the life machine must notice: each breaks one promise of the market."""

from __future__ import annotations

import itertools

from fedbourse.ledger import OUTSIDE, Transfer
from fedbourse.market import (
    answers,
    lifecycle,
    log,
    selling,
    service,
    settlement,
)
from fedbourse.market.service import Market, escrow
from fedbourse.market.task import State
from fedbourse.storage import schema
from fedbourse.storage.sql import SqlUnit


def vesting_rounds_up(patch) -> None:
    patch.setattr(
        answers, "earned", lambda payment, *, answered, rounds: -(-payment * answered // rounds)
    )


def each_payment_is_rounded_down(patch) -> None:
    def rounded(read, reward):
        total = sum(sum(chunk) for chunk in read())
        return lambda budgets: [int(reward * budget / total) for budget in budgets]

    patch.setitem(settlement.COMPENSATIONS, "proportional", rounded)


def some_transfers_are_forgotten(patch, ending: str) -> None:
    pay = Market.pay

    def forgetful(self, unit, id, *what):
        if not id.endswith(ending):
            pay(self, unit, id, *what)

    patch.setattr(Market, "pay", forgetful)


def declined_pay_stays_in_escrow(patch) -> None:
    some_transfers_are_forgotten(patch, "/declined")


def nothing_is_refunded(patch) -> None:
    some_transfers_are_forgotten(patch, "/refund")


def escrow_is_not_held(patch) -> None:
    some_transfers_are_forgotten(patch, "/escrow")


def a_refund_comes_twice(patch) -> None:
    refund = Market.refund

    def twice(self, unit, task):
        left = refund(self, unit, task)
        if left:
            self.pay(unit, f"{task.id}/again", (OUTSIDE, task.buyer), left, "again")
        return left

    patch.setattr(Market, "refund", twice)


def a_repeated_answer_pays_again(patch) -> None:
    repeated = answers._repeated

    def generous(unit, before, body_hash, refused):
        receipt = repeated(unit, before, body_hash, refused)
        once_more = Transfer(f"{before.task}/{before.hash}", OUTSIDE, before.owner, 1)
        unit.post([once_more], at_ms=before.at_ms)
        return receipt

    patch.setattr(answers, "_repeated", generous)


def any_round_is_answered(patch) -> None:
    accept = answers.accept_answer

    def careless(market, unit, who, task_id, *, round, body):
        task = unit.task(task_id)
        asked = task.round if task.state is State.TRAINING else round
        return accept(market, unit, who, task_id, round=asked, body=body)

    patch.setattr(answers, "accept_answer", careless)


def the_last_answer_earns_nothing(patch) -> None:
    def withheld(payment, *, answered, rounds):
        return payment * min(answered, rounds - 1) // rounds

    patch.setattr(answers, "earned", withheld)


def silence_counts_as_a_signature(patch) -> None:
    def signs(self, task):
        for line in self.lines(task):
            if line.state == "offered":
                self.decide_line(task, line.owner, "signed", signature="")

    patch.setattr(SqlUnit, "decline_silent", signs)


def a_forged_signature_is_good_enough(patch) -> None:
    patch.setattr(selling, "verified", lambda public, message, signature: True)


def anybody_may_cancel(patch) -> None:
    patch.setattr(service, "role_of", lambda who, task: "buyer")


def deadlines_do_not_bind_owners(patch) -> None:
    def late(market, unit, who, task_id, command):
        task = unit.task(task_id)
        lifecycle.after(task.state, command, by="owner")
        return task

    for module in (selling, answers):
        patch.setattr(module, "taken_by_owner", late)


def a_deposit_counts_each_time(patch) -> None:
    counter = itertools.count()
    pay = Market.pay

    def again(self, unit, id, *what):
        pay(self, unit, f"{id}/{next(counter)}" if "deposit" in id else id, *what)

    patch.setattr(Market, "pay", again)


def a_withdrawn_plan_stays(patch) -> None:
    withdraw = SqlUnit.withdraw

    def half(self, withdrawal, *, from_interests):
        plan = self.plan(withdrawal.task, withdrawal.owner)
        withdraw(self, withdrawal, from_interests=from_interests)
        if plan is not None:
            self.put_plan(plan)

    patch.setattr(SqlUnit, "withdraw", half)


def a_tick_waits_for_those_who_withdrew(patch) -> None:
    patch.setattr(SqlUnit, "count_withdrawn", lambda self, task: 0)


def who_withdrew_may_come_back(patch) -> None:
    patch.setattr(selling, "_refuse_withdrawn", lambda unit, task, who: None)


def a_withdrawn_interest_leaves_the_log(patch) -> None:
    withdraw = SqlUnit.withdraw

    def thorough(self, withdrawal, *, from_interests):
        withdraw(self, withdrawal, from_interests=True)

    patch.setattr(SqlUnit, "withdraw", thorough)


def erasure_drops_the_leaf(patch) -> None:
    erase = SqlUnit.erase

    def thorough(self, task, owner):
        erase(self, task, owner)
        line = self.line(task, owner)
        for table in (schema.interests, schema.plans, schema.lines) if line else ():
            mine = (table.c.task == task) & (table.c.owner == owner)
            self._run(table.update().where(mine).values(leaf="00" * 32))

    patch.setattr(SqlUnit, "erase", thorough)


def events_forget_the_one_before(patch) -> None:
    follow = log.next_event

    def loose(task, kind, body, *, at_ms, after):
        return follow(task, kind, body, at_ms=at_ms, after=(after[0], "00" * 32))

    patch.setattr(log, "next_event", loose)


def upfront_pays_with_each_answer_as_well(patch) -> None:
    accept = answers.accept_answer

    def both(market, unit, who, task_id, *, round, body):
        fresh = unit.answer(task_id, round, who.party) is None
        receipt = accept(market, unit, who, task_id, round=round, body=body)
        task = unit.task(task_id)
        if fresh and task.card.vesting == "upfront" and unit.balance(escrow(task_id)):
            market.pay(unit, f"{task_id}/{who.party}/{round}", (escrow(task_id), who.party), 1, "")
        elif fresh and task.card.vesting == "upfront":
            market.pay(unit, f"{task_id}/{who.party}/{round}", (task.buyer, who.party), 1, "")
        return receipt

    patch.setattr(answers, "accept_answer", both)


FAULTS = [
    vesting_rounds_up,
    each_payment_is_rounded_down,
    declined_pay_stays_in_escrow,
    nothing_is_refunded,
    escrow_is_not_held,
    a_refund_comes_twice,
    a_repeated_answer_pays_again,
    any_round_is_answered,
    the_last_answer_earns_nothing,
    silence_counts_as_a_signature,
    a_forged_signature_is_good_enough,
    anybody_may_cancel,
    deadlines_do_not_bind_owners,
    a_deposit_counts_each_time,
    a_withdrawn_plan_stays,
    a_tick_waits_for_those_who_withdrew,
    who_withdrew_may_come_back,
    a_withdrawn_interest_leaves_the_log,
    erasure_drops_the_leaf,
    events_forget_the_one_before,
    upfront_pays_with_each_answer_as_well,
]
