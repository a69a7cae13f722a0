"""Rules of the protocol switched off one by one: what the study must then find again."""

from __future__ import annotations

from dataclasses import replace

from fedbourse.bootstrap import deviation_market
from fedbourse.game.discovery import Discovery
from fedbourse.market import clock, price_discovery, selling, training, unearned
from fedbourse.market.service import escrow
from fedbourse.storage.schema import replies
from fedbourse.storage.sql_participation import SqlParticipation


def decliners_are_refunded(patch) -> None:
    """The pay of who does not sign goes back to the buyer, and training starts with the others."""

    def refund(market, unit, task_id):
        task = unit.task(task_id, lock="change")
        lines = unit.lines(task_id)
        signed = [line for line in lines if line.state == "signed"]
        amount = sum(line.payment for line in lines) - sum(line.payment for line in signed)
        route = escrow(task_id), task.buyer
        market.pay(unit, f"{task_id}/declined", route, amount, "declined")
        unit.drop_lines(task_id)
        unit.add_lines(signed)
        return training.review(market, unit, task_id)

    patch.setattr(clock, "restart", refund)


def unsigned_terms_count(patch) -> None:
    """Who has not signed in time counts as if it had."""

    def sign(market, unit, task_id):
        for line in unit.lines(task_id):
            unit.decide_line(task_id, line.owner, "signed", signature="")
        return training.review(market, unit, task_id)

    patch.setattr(clock, "restart", sign)


def absentees_are_refunded(patch) -> None:
    """The pay of rounds that were not delivered goes back to the buyer."""
    patch.setattr(unearned, "undelivered_pay", lambda *_, **__: 0)


def absentees_are_shared(patch) -> None:
    """The pay of rounds that were not delivered goes to those who delivered."""
    empty = unearned.empty_escrow

    def share(market, unit, task, *, closed_rounds):
        card = replace(task.card, unearned="share")
        return empty(market, unit, replace(task, card=card), closed_rounds=closed_rounds)

    patch.setattr(training, "empty_escrow", share)


def absentees_are_paid(patch) -> None:
    """Rounds are paid for whether they were delivered or not."""
    empty = unearned.empty_escrow

    def pay(market, unit, task, *, closed_rounds):
        for line in unit.lines(task.id):
            route, missing = (escrow(task.id), line.owner), line.payment - line.earned
            if missing:
                market.pay(unit, f"{task.id}/{line.owner}/absent", route, missing, "not delivered")
                unit.earn(task.id, line.owner, missing)
        return empty(market, unit, task, closed_rounds=closed_rounds)

    patch.setattr(training, "empty_escrow", pay)


def no_activity_rule(patch) -> None:
    """Any reply is accepted, however it contradicts earlier ones."""
    patch.setattr(selling, "contradiction", lambda *_, **__: None)


def replies_can_be_taken_back(patch) -> None:
    """A reply replaces all earlier ones of its owner, at every tick."""
    put = SqlParticipation.put_reply

    def replace_all(unit, reply):
        put(unit, reply)
        own = (replies.c.task == reply.task) & (replies.c.owner == reply.owner)
        unit._run(replies.update().where(own).values(budget=reply.budget))

    patch.setattr(SqlParticipation, "put_reply", replace_all)


def missing_replies_repeat_the_last(patch) -> None:
    """Who does not reply to a tick keeps the budget that it replied with before, and is not out."""

    def repeat(unit, task, *, tick, total_budget, at_ms):
        for interest in unit.interests(task):
            own = unit.replies_of(task, interest.owner)
            if own and own[-1].tick < tick:
                unit.put_reply(replace(own[-1], tick=tick))
        return 0

    patch.setattr(SqlParticipation, "miss_tick", repeat)


def exits_cost_no_time(patch) -> None:
    """Who is out leaves the others the ticks and the time that were left."""
    for module in (price_discovery, selling):
        patch.setattr(module, "renewed", lambda market, task, first_tick: task)


def latest_tick_settles(patch) -> None:
    """A task settles with the replies to its last tick."""

    class Latest(Discovery):
        qualifying = property(lambda discovery: discovery.ticks[-1])

    settle = price_discovery.settle

    def settle_latest(market, unit, task, discovery):
        return settle(market, unit, task, Latest(**vars(discovery)))

    patch.setattr(price_discovery, "settle", settle_latest)


def devices_sign_anything_above_their_value(patch) -> None:
    """Devices do not compare their pay with the price that they replied to."""
    patch.setattr(deviation_market, "least_pay", lambda **_: 0)
