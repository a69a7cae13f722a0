"""Faults that the life machine must notice: each breaks one promise of the market."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from fedbourse.game.mechanisms import MECHANISMS
from fedbourse.game.price_discovery import TickSum
from fedbourse.ledger import OUTSIDE, Transfer
from fedbourse.market import evidence, lifecycle, log, price_discovery, service, unearned, updates
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import scheduler
from fedbourse.market.commands import training as training_commands
from fedbourse.market.parties import MARKET
from fedbourse.market.records import State
from fedbourse.market.service import FUND, Market, escrow
from fedbourse.storage import schema
from fedbourse.storage.sql import SqlTransaction

NAMES = [f"owner:{place:06d}" for place in range(9)]


def vesting_rounds_up(patch) -> None:
    patch.setattr(
        updates, "earned", lambda payment, *, delivered, rounds: -(-payment * delivered // rounds)
    )


def each_payment_is_rounded_down(patch) -> None:
    def rounded(read, reward):
        total = sum(sum(chunk) for chunk in read())
        return lambda budgets: [int(reward * budget / total) for budget in budgets]

    mechanism = replace(MECHANISMS["proportional"], settlement=rounded)
    choice = replace(MECHANISMS.choices[0], value=mechanism)
    patch.setitem(MECHANISMS._choices, "proportional", choice)


def escrow_is_not_reserved_at_opening(patch) -> None:
    pay = Market.pay

    def forgetful(self, tx, id, *what):
        if not id.endswith("/escrow"):
            pay(self, tx, id, *what)

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
        again = replace(transfer, id=f"{transfer.id}/again", debit=OUTSIDE)
        return [transfer, again] if transfer.id.endswith("/refund") else [transfer]

    the_end_moves_other_money(patch, twice)


def pay_of_absentees_goes_to_the_buyer(patch) -> None:
    def back(task, transfer):
        return [replace(transfer, credit=task.buyer) if transfer.credit == FUND else transfer]

    the_end_moves_other_money(patch, back)


def the_fund_is_debited(patch) -> None:
    def taken(task, transfer):
        if transfer.credit != FUND:
            return [transfer]
        out = replace(transfer, id=f"{transfer.id}/out", debit=FUND, credit=task.buyer)
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

    def generous(market, tx, task_id):
        gone = [
            allocation for allocation in tx.allocations(task_id) if allocation.state != "signed"
        ]
        buyer = tx.task(task_id).buyer
        task = again(market, tx, task_id)
        for allocation in gone:
            route = escrow(task_id), buyer
            market.pay(tx, f"{task_id}/{allocation.owner}/declined", route, allocation.payment, "")
        return task

    patch.setattr(scheduler, "restart", generous)


def a_decliner_stays_in(patch) -> None:
    add = SqlTransaction.add_exit
    patch.setattr(
        SqlTransaction,
        "add_exit",
        lambda self, gone: add(self, gone) if gone.reason == "left" else None,
    )


def a_reply_counts_after_its_owner_is_out(patch) -> None:
    def of_everybody(self, task, tick, *names, at_once=1 << 16):
        table = schema.replies
        which = (table.c.task == task) & (table.c.tick == tick) & table.c.budget.is_not(None)
        return self._columns(table, which, names, at_once)

    patch.setattr(SqlTransaction, "replies_in", of_everybody)


def a_task_settles_at_a_tick_that_does_not_qualify(patch) -> None:
    by_rule = price_discovery.settle

    def early(market, tx, task, discovery):
        if discovery.low is None:
            return by_rule(market, tx, task, discovery)
        ticks = [TickSum(math.inf, 0, 0.0)] * len(discovery.ticks)
        ticks[discovery.ticks.index(discovery.low)] = replace(discovery.low, share_sum=0.0)
        return by_rule(market, tx, task, replace(discovery, ticks=tuple(ticks)))

    patch.setattr(price_discovery, "settle", early)


def a_zero_does_not_stand(patch) -> None:
    close = SqlTransaction.miss_tick

    def forgetful(self, task, **tick):
        missed = close(self, task, **tick)
        table = schema.interests
        self._run(table.update().where(table.c.task == task).values(zero_from=None))
        return missed

    patch.setattr(SqlTransaction, "miss_tick", forgetful)


def who_missed_a_tick_is_let_back_in(patch) -> None:
    close = SqlTransaction.miss_tick

    def lenient(self, task, **tick):
        missed = close(self, task, **tick)
        table = schema.exits
        here = (table.c.task == task) & (table.c.reason == "missed")
        self._run(table.delete().where(here))
        return missed

    patch.setattr(SqlTransaction, "miss_tick", lenient)


def a_reply_to_a_closed_tick_is_taken(patch) -> None:
    submit = owner_commands.submit_plan

    def late(market, tx, who, task_id, *, tick, **plan):
        return submit(market, tx, who, task_id, tick=max(tick, tx.task(task_id).tick), **plan)

    patch.setattr(owner_commands, "submit_plan", late)


def replies_may_contradict_each_other(patch) -> None:
    patch.setattr(owner_commands, "_refuse_contradiction", lambda tx, task, who, budget: None)


def nobody_may_review(patch) -> None:
    patch.setattr(
        training_commands,
        "review",
        lambda market, tx, id: training_commands.start(market, tx, MARKET, id),
    )


def upfront_needs_no_confirmation(patch) -> None:
    opened = buyer_commands.open_task

    def careless(market, tx, who, task_id, *, confirm_upfront=False):
        return opened(market, tx, who, task_id, confirm_upfront=True)

    patch.setattr(buyer_commands, "open_task", careless)


def a_small_total_is_bought_all_the_same(patch) -> None:
    plans = price_discovery._plans

    def enough(tx, task, tick, lots):
        total, tree = plans(tx, task, tick, lots)
        return max(total, task.card.min_total_budget), tree

    patch.setattr(price_discovery, "_plans", enough)


def a_repeated_answer_pays_again(patch) -> None:
    repeated = updates._repeated

    def generous(tx, before, body_hash, refused):
        receipt = repeated(tx, before, body_hash, refused)
        once_more = Transfer(f"{before.task}/{before.hash}", OUTSIDE, before.owner, 1)
        tx.post([once_more], at_ms=before.at_ms)
        return receipt

    patch.setattr(updates, "_repeated", generous)


def any_round_is_answered(patch) -> None:
    accept = updates.accept_update

    def careless(market, tx, who, task_id, *, round, body):
        task = tx.task(task_id)
        asked = task.round if task.state is State.TRAINING else round
        return accept(market, tx, who, task_id, round=asked, body=body)

    patch.setattr(updates, "accept_update", careless)


def the_last_answer_earns_nothing(patch) -> None:
    def withheld(payment, *, delivered, rounds):
        return payment * min(delivered, rounds - 1) // rounds

    patch.setattr(updates, "earned", withheld)


def silence_counts_as_a_signature(patch) -> None:
    again = price_discovery.restart

    def signs(market, tx, task_id):
        states = {allocation.owner: allocation.state for allocation in tx.allocations(task_id)}
        if "declined" in states.values():
            return again(market, tx, task_id)
        for owner in states:
            tx.decide_allocation(task_id, owner, "signed", signature="")
        return training_commands.review(market, tx, task_id)

    patch.setattr(scheduler, "restart", signs)


def a_forged_signature_is_good_enough(patch) -> None:
    patch.setattr(owner_commands, "verified", lambda public, message, signature: True)


def anybody_may_cancel(patch) -> None:
    patch.setattr(service, "role_of", lambda who, task: "buyer")


def deadlines_do_not_bind_owners(patch) -> None:
    def late(market, tx, who, task_id, command):
        task = tx.task(task_id)
        lifecycle.after(task.state, command, by="owner")
        return task

    for module in (owner_commands, updates):
        patch.setattr(module, "taken_by_owner", late)


def a_deposit_counts_each_time(patch) -> None:
    counter = itertools.count()
    pay = Market.pay

    def again(self, tx, id, *what):
        done = pay(self, tx, id, *what)
        if "deposit" in id and not done:
            pay(self, tx, f"{id}/{next(counter)}", *what)
        return done

    patch.setattr(Market, "pay", again)


def a_withdrawn_reply_stays(patch) -> None:
    leave_task = SqlTransaction.leave_task

    def half(self, gone, *, from_interests):
        replies = self.replies_of(gone.task, gone.owner)
        leave_task(self, gone, from_interests=from_interests)
        for reply in replies:
            self.put_reply(reply)

    patch.setattr(SqlTransaction, "leave_task", half)


def a_tick_waits_for_those_who_withdrew(patch) -> None:
    count = SqlTransaction.count_asked

    def all_of_them(self, task, *, total_budget):
        left = sum(gone.reason == "left" for gone in self.exits(task, NAMES).values())
        return count(self, task, total_budget=total_budget) + left

    patch.setattr(SqlTransaction, "count_asked", all_of_them)


def who_is_out_may_come_back(patch) -> None:
    patch.setattr(owner_commands, "_refuse_out", lambda tx, task, who: None)


def a_withdrawn_interest_leaves_the_log(patch) -> None:
    leave_task = SqlTransaction.leave_task

    def thorough(self, withdrawal, *, from_interests):
        leave_task(self, withdrawal, from_interests=True)

    patch.setattr(SqlTransaction, "leave_task", thorough)


def erasure_drops_the_leaf(patch) -> None:
    erase = SqlTransaction.erase

    def thorough(self, task, owner):
        erase(self, task, owner)
        allocation = self.allocation(task, owner)
        for table in (schema.interests, schema.replies, schema.allocations) if allocation else ():
            of_owner = (table.c.task == task) & (table.c.owner == owner)
            self._run(table.update().where(of_owner).values(leaf="00" * 32))

    patch.setattr(SqlTransaction, "erase", thorough)


def events_forget_the_one_before(patch) -> None:
    follow = log.next_event

    def loose(task, kind, body, *, at_ms, after):
        return follow(task, kind, body, at_ms=at_ms, after=(after[0], "00" * 32))

    patch.setattr(log, "next_event", loose)


def upfront_pays_with_each_answer_as_well(patch) -> None:
    accept = updates.accept_update

    def both(market, tx, who, task_id, *, round, body):
        fresh = tx.update(task_id, round, who.party) is None
        receipt = accept(market, tx, who, task_id, round=round, body=body)
        task = tx.task(task_id)
        if fresh and task.card.vesting == "upfront" and tx.balance(escrow(task_id)):
            market.pay(tx, f"{task_id}/{who.party}/{round}", (escrow(task_id), who.party), 1, "")
        elif fresh and task.card.vesting == "upfront":
            market.pay(tx, f"{task_id}/{who.party}/{round}", (task.buyer, who.party), 1, "")
        return receipt

    patch.setattr(updates, "accept_update", both)


def held_pay_is_released_twice(patch) -> None:
    by_rule = evidence.end_block

    def end_block(market, tx, task):
        held = [each for each in tx.allocations(task.id) if each.held]
        decided = by_rule(market, tx, task)
        for each in held:
            id = f"{task.id}/{each.owner}/block-{decided['block']}/again"
            market.pay(tx, id, (OUTSIDE, each.owner), each.held, "")
        return decided

    for module in (training_commands, buyer_commands):
        patch.setattr(module, "end_block", end_block)


def pay_is_lost_where_evidence_is_void(patch) -> None:
    by_rule = evidence.end_block

    def end_block(market, tx, task):
        block = task.card.evidence.block_of(task.round, rounds=task.card.rounds)
        fell = {
            e.owner for e in tx.device_evidence(task.id, block) if e.dismissed_round is not None
        }
        for each in tx.allocations(task.id):
            if each.owner in fell:
                paid = each.earned - each.held
                tx.judge_allocation(task.id, each.owner, each.state, earned=paid, held=0)
        return by_rule(market, tx, task)

    for module in (training_commands, buyer_commands):
        patch.setattr(module, "end_block", end_block)


FAULTS = {
    vesting_rounds_up: 5,
    each_payment_is_rounded_down: 0,
    escrow_is_not_reserved_at_opening: 0,
    nothing_is_refunded: 1,
    a_refund_comes_twice: 1,
    pay_of_absentees_goes_to_the_buyer: 6,
    the_fund_is_debited: 6,
    answers_to_an_open_round_make_up_for_missed_ones: 6,
    a_decliner_s_pay_goes_to_the_buyer: 4,
    a_decliner_stays_in: 1,
    a_reply_counts_after_its_owner_is_out: 4,
    a_task_settles_at_a_tick_that_does_not_qualify: 0,
    a_zero_does_not_stand: 0,
    who_missed_a_tick_is_let_back_in: 1,
    a_reply_to_a_closed_tick_is_taken: 6,
    replies_may_contradict_each_other: 12,
    nobody_may_review: 4,
    upfront_needs_no_confirmation: 0,
    a_small_total_is_bought_all_the_same: 1,
    a_repeated_answer_pays_again: 5,
    any_round_is_answered: 5,
    the_last_answer_earns_nothing: 6,
    silence_counts_as_a_signature: 5,
    a_forged_signature_is_good_enough: 1,
    anybody_may_cancel: 0,
    deadlines_do_not_bind_owners: 1,
    a_deposit_counts_each_time: 3,
    a_withdrawn_reply_stays: 5,
    a_tick_waits_for_those_who_withdrew: 5,
    who_is_out_may_come_back: 4,
    a_withdrawn_interest_leaves_the_log: 5,
    erasure_drops_the_leaf: 1,
    events_forget_the_one_before: 0,
    upfront_pays_with_each_answer_as_well: 11,
    held_pay_is_released_twice: 6,
    pay_is_lost_where_evidence_is_void: 6,
}
"""Each with the number of a life that shows it, which is played first."""
