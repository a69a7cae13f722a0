"""Faults that the life machine must notice: each breaks one promise of the market."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from fedbourse.game.discovery import TickSum
from fedbourse.ledger import OUTSIDE, Transfer
from fedbourse.market import (
    answers,
    buying,
    clock,
    lifecycle,
    log,
    price_discovery,
    selling,
    service,
    settlement,
    training,
    unearned,
)
from fedbourse.market.parties import MARKET
from fedbourse.market.service import FUND, Market, escrow
from fedbourse.market.task import State
from fedbourse.storage import schema
from fedbourse.storage.sql import SqlUnit

NAMES = [f"owner:{place:06d}" for place in range(9)]


def vesting_rounds_up(patch) -> None:
    patch.setattr(
        answers, "earned", lambda payment, *, answered, rounds: -(-payment * answered // rounds)
    )


def each_payment_is_rounded_down(patch) -> None:
    def rounded(read, reward):
        total = sum(sum(chunk) for chunk in read())
        return lambda budgets: [int(reward * budget / total) for budget in budgets]

    patch.setitem(settlement.COMPENSATIONS, "proportional", rounded)


def escrow_is_not_reserved_at_opening(patch) -> None:
    pay = Market.pay

    def forgetful(self, unit, id, *what):
        if not id.endswith("/escrow"):
            pay(self, unit, id, *what)

    patch.setattr(Market, "pay", forgetful)


def the_end_moves_other_money(patch, change) -> None:
    """Let the transfers that end a task be changed: ``change(task, transfer)`` returns some."""
    by_rule = unearned._transfers

    def changed(task, remainder):
        return [each for transfer in by_rule(task, remainder) for each in change(task, transfer)]

    patch.setattr(unearned, "_transfers", changed)


def nothing_is_refunded(patch) -> None:
    the_end_moves_other_money(patch, lambda task, t: [] if t.id.endswith("/refund") else [t])


def a_refund_comes_twice(patch) -> None:
    def twice(task, transfer):
        again = replace(transfer, id=f"{transfer.id}/again", source=OUTSIDE)
        return [transfer, again] if transfer.id.endswith("/refund") else [transfer]

    the_end_moves_other_money(patch, twice)


def pay_of_absentees_goes_to_the_buyer(patch) -> None:
    def back(task, transfer):
        return [replace(transfer, target=task.buyer) if transfer.target == FUND else transfer]

    the_end_moves_other_money(patch, back)


def the_fund_is_debited(patch) -> None:
    def taken(task, transfer):
        if transfer.target != FUND:
            return [transfer]
        out = replace(transfer, id=f"{transfer.id}/out", source=FUND, target=task.buyer)
        return [transfer, out]

    the_end_moves_other_money(patch, taken)


def answers_to_an_open_round_make_up_for_missed_ones(patch) -> None:
    by_rule = unearned.undelivered_pay

    def lenient(payments, delivered, *, closed_rounds, rounds):
        more = {owner: min(count + 1, closed_rounds) for owner, count in delivered.items()}
        return by_rule(payments, more, closed_rounds=closed_rounds, rounds=rounds)

    patch.setattr(unearned, "undelivered_pay", lenient)


def a_decliner_s_pay_goes_to_the_buyer(patch) -> None:
    again = price_discovery.restart

    def generous(market, unit, task_id):
        gone = [line for line in unit.lines(task_id) if line.state != "signed"]
        buyer = unit.task(task_id).buyer
        task = again(market, unit, task_id)
        for line in gone:
            route = escrow(task_id), buyer
            market.pay(unit, f"{task_id}/{line.owner}/declined", route, line.payment, "")
        return task

    patch.setattr(clock, "restart", generous)


def a_decliner_stays_in(patch) -> None:
    add = SqlUnit.add_exit
    patch.setattr(
        SqlUnit, "add_exit", lambda self, gone: add(self, gone) if gone.reason == "left" else None
    )


def a_reply_counts_after_its_owner_is_out(patch) -> None:
    def of_everybody(self, task, tick, *names, at_once=1 << 16):
        table = schema.replies
        which = (table.c.task == task) & (table.c.tick == tick) & table.c.budget.is_not(None)
        return self._columns(table, which, names, at_once)

    patch.setattr(SqlUnit, "replies_in", of_everybody)


def a_task_settles_at_a_tick_that_does_not_qualify(patch) -> None:
    by_rule = price_discovery.settle

    def early(market, unit, task, discovery):
        if discovery.low is None:
            return by_rule(market, unit, task, discovery)
        ticks = [TickSum(math.inf, 0, 0.0)] * len(discovery.ticks)
        ticks[discovery.ticks.index(discovery.low)] = replace(discovery.low, share_sum=0.0)
        return by_rule(market, unit, task, replace(discovery, ticks=tuple(ticks)))

    patch.setattr(price_discovery, "settle", early)


def a_zero_does_not_stand(patch) -> None:
    close = SqlUnit.miss_tick

    def forgetful(self, task, **tick):
        missed = close(self, task, **tick)
        table = schema.interests
        self._run(table.update().where(table.c.task == task).values(zero_from=None))
        return missed

    patch.setattr(SqlUnit, "miss_tick", forgetful)


def who_missed_a_tick_is_let_back_in(patch) -> None:
    close = SqlUnit.miss_tick

    def lenient(self, task, **tick):
        missed = close(self, task, **tick)
        table = schema.exits
        here = (table.c.task == task) & (table.c.reason == "missed")
        self._run(table.delete().where(here))
        return missed

    patch.setattr(SqlUnit, "miss_tick", lenient)


def a_reply_to_a_closed_tick_is_taken(patch) -> None:
    submit = selling.submit_plan

    def late(market, unit, who, task_id, *, tick, **plan):
        return submit(market, unit, who, task_id, tick=max(tick, unit.task(task_id).tick), **plan)

    patch.setattr(selling, "submit_plan", late)


def replies_may_contradict_each_other(patch) -> None:
    patch.setattr(selling, "_refuse_contradiction", lambda unit, task, who, budget: None)


def nobody_may_review(patch) -> None:
    patch.setattr(
        training, "review", lambda market, unit, id: training.start(market, unit, MARKET, id)
    )


def upfront_needs_no_confirmation(patch) -> None:
    opened = buying.open_task

    def careless(market, unit, who, task_id, *, confirm_upfront=False):
        return opened(market, unit, who, task_id, confirm_upfront=True)

    patch.setattr(buying, "open_task", careless)


def a_small_total_is_bought_all_the_same(patch) -> None:
    plans = price_discovery._plans

    def enough(unit, task, tick):
        total, tree = plans(unit, task, tick)
        return max(total, task.card.min_total_budget), tree

    patch.setattr(price_discovery, "_plans", enough)


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
    again = price_discovery.restart

    def signs(market, unit, task_id):
        states = {line.owner: line.state for line in unit.lines(task_id)}
        if "declined" in states.values():
            return again(market, unit, task_id)
        for owner in states:
            unit.decide_line(task_id, owner, "signed", signature="")
        return training.review(market, unit, task_id)

    patch.setattr(clock, "restart", signs)


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
        done = pay(self, unit, id, *what)
        if "deposit" in id and not done:
            pay(self, unit, f"{id}/{next(counter)}", *what)
        return done

    patch.setattr(Market, "pay", again)


def a_withdrawn_reply_stays(patch) -> None:
    withdraw = SqlUnit.withdraw

    def half(self, gone, *, from_interests):
        replies = self.replies_of(gone.task, gone.owner)
        withdraw(self, gone, from_interests=from_interests)
        for reply in replies:
            self.put_reply(reply)

    patch.setattr(SqlUnit, "withdraw", half)


def a_tick_waits_for_those_who_withdrew(patch) -> None:
    count = SqlUnit.count_asked

    def all_of_them(self, task, *, total_budget):
        left = sum(gone.reason == "left" for gone in self.exits(task, NAMES).values())
        return count(self, task, total_budget=total_budget) + left

    patch.setattr(SqlUnit, "count_asked", all_of_them)


def who_is_out_may_come_back(patch) -> None:
    patch.setattr(selling, "_refuse_out", lambda unit, task, who: None)


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
        for table in (schema.interests, schema.replies, schema.lines) if line else ():
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
    escrow_is_not_reserved_at_opening,
    nothing_is_refunded,
    a_refund_comes_twice,
    pay_of_absentees_goes_to_the_buyer,
    the_fund_is_debited,
    answers_to_an_open_round_make_up_for_missed_ones,
    a_decliner_s_pay_goes_to_the_buyer,
    a_decliner_stays_in,
    a_reply_counts_after_its_owner_is_out,
    a_task_settles_at_a_tick_that_does_not_qualify,
    a_zero_does_not_stand,
    who_missed_a_tick_is_let_back_in,
    a_reply_to_a_closed_tick_is_taken,
    replies_may_contradict_each_other,
    nobody_may_review,
    upfront_needs_no_confirmation,
    a_small_total_is_bought_all_the_same,
    a_repeated_answer_pays_again,
    any_round_is_answered,
    the_last_answer_earns_nothing,
    silence_counts_as_a_signature,
    a_forged_signature_is_good_enough,
    anybody_may_cancel,
    deadlines_do_not_bind_owners,
    a_deposit_counts_each_time,
    a_withdrawn_reply_stays,
    a_tick_waits_for_those_who_withdrew,
    who_is_out_may_come_back,
    a_withdrawn_interest_leaves_the_log,
    erasure_drops_the_leaf,
    events_forget_the_one_before,
    upfront_pays_with_each_answer_as_well,
]
