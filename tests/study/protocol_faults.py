"""Rules of the protocol switched off one by one: what the study must then find again."""

from __future__ import annotations

from dataclasses import replace

from fedbourse.embedded import deviation_market
from fedbourse.game.price_discovery import PriceDiscovery
from fedbourse.learning.evidence import EvidenceRule
from fedbourse.market import price_discovery, unearned
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import scheduler
from fedbourse.market.commands import training as training_commands
from fedbourse.market.service import escrow
from fedbourse.storage.schema import replies
from fedbourse.storage.sql_participation import SqlParticipation
from fedbourse.tasks.evidence import EvidenceSpec


def decliners_are_refunded(patch) -> None:
    """The pay of who does not sign goes back to the buyer, and training starts with the others."""

    def refund(market, tx, task_id):
        task = tx.task(task_id, lock="change")
        allocations = tx.allocations(task_id)
        signed = [allocation for allocation in allocations if allocation.state == "signed"]
        amount = sum(allocation.payment for allocation in allocations) - sum(
            allocation.payment for allocation in signed
        )
        route = escrow(task_id), task.buyer
        market.pay(tx, f"{task_id}/declined", route, amount, "declined")
        tx.drop_allocations(task_id)
        tx.add_allocations(signed)
        return training_commands.review(market, tx, task_id)

    patch.setattr(scheduler, "restart", refund)


def unsigned_terms_count(patch) -> None:
    """Who has not signed in time counts as if it had."""

    def sign(market, tx, task_id):
        for allocation in tx.allocations(task_id):
            tx.decide_allocation(task_id, allocation.owner, "signed", signature="")
        return training_commands.review(market, tx, task_id)

    patch.setattr(scheduler, "restart", sign)


def absentees_are_refunded(patch) -> None:
    """The pay of rounds that were not delivered goes back to the buyer."""
    patch.setattr(unearned, "undelivered_pay", lambda *_, **__: 0)


def absentees_are_shared(patch) -> None:
    """The pay of rounds that were not delivered goes to those who delivered."""
    empty = unearned.empty_escrow

    def share(market, tx, task, *, closed_rounds):
        card = replace(task.card, unearned="share")
        return empty(market, tx, replace(task, card=card), closed_rounds=closed_rounds)

    patch.setattr(training_commands, "empty_escrow", share)


def absentees_are_paid(patch) -> None:
    """Rounds are paid for whether they were delivered or not."""
    empty = unearned.empty_escrow

    def pay(market, tx, task, *, closed_rounds):
        for allocation in tx.allocations(task.id):
            route, missing = (
                (escrow(task.id), allocation.owner),
                allocation.payment - allocation.earned,
            )
            if missing:
                market.pay(
                    tx, f"{task.id}/{allocation.owner}/absent", route, missing, "not delivered"
                )
                tx.earn(task.id, allocation.owner, missing)
        return empty(market, tx, task, closed_rounds=closed_rounds)

    patch.setattr(training_commands, "empty_escrow", pay)


def no_activity_rule(patch) -> None:
    """Any reply is accepted, however it contradicts earlier ones."""
    patch.setattr(owner_commands, "contradiction", lambda *_, **__: None)


def replies_can_be_taken_back(patch) -> None:
    """A reply replaces all earlier ones of its owner, at every tick."""
    put = SqlParticipation.put_reply

    def replace_all(tx, reply):
        put(tx, reply)
        own = (replies.c.task == reply.task) & (replies.c.owner == reply.owner)
        tx._run(replies.update().where(own).values(budget=reply.budget))

    patch.setattr(SqlParticipation, "put_reply", replace_all)


def missing_replies_repeat_the_last(patch) -> None:
    """Who does not reply to a tick keeps the budget that it replied with before, and is not out."""

    def repeat(tx, task, *, tick, total_budget, at_ms):
        for interest in tx.interests(task):
            own = tx.replies_of(task, interest.owner)
            if own and own[-1].tick < tick:
                tx.put_reply(replace(own[-1], tick=tick))
        return 0

    patch.setattr(SqlParticipation, "miss_tick", repeat)


def exits_cost_no_time(patch) -> None:
    """Who is out leaves the others the ticks and the time that were left."""
    for module in (price_discovery, owner_commands):
        patch.setattr(module, "renewed", lambda market, task, first_tick: task)


def latest_tick_settles(patch) -> None:
    """A task settles with the replies to its last tick."""

    class Latest(PriceDiscovery):
        qualifying = property(lambda discovery: discovery.ticks[-1])

    settle = price_discovery.settle

    def settle_latest(market, tx, task, discovery):
        return settle(market, tx, task, Latest(**vars(discovery)))

    patch.setattr(price_discovery, "settle", settle_latest)


def devices_sign_anything_above_their_value(patch) -> None:
    """Devices do not compare their pay with the price that they replied to."""
    patch.setattr(deviation_market, "min_pay", lambda **_: 0)


def evidence_never_stands(patch) -> None:
    """All held pay is released, whatever updates show."""
    patch.setattr(EvidenceRule, "stands", lambda *_: False)


def forfeited_pay_is_refunded(patch) -> None:
    """What dismissed devices are not paid goes back to the buyer."""
    absentees_are_refunded(patch)
    patch.setattr(unearned, "forfeited", lambda *_, **__: 0)


def evidence_is_for_owners_like_the_reference(patch) -> None:
    """Whatever population the card names, owners of few classes are dismissed."""
    rule = EvidenceSpec.rule

    def like_reference(spec, rounds):
        return replace(rule(spec, rounds), population="like-reference")

    patch.setattr(EvidenceSpec, "rule", like_reference)
