"""What a buyer does: draft, open, announce, cancel. The scheduler does some of it as well."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from fedbourse.encoding.plain_text import plain_text
from fedbourse.errors import Conflict, InvalidInput, InvalidTransfer, NotAllowed
from fedbourse.market import merkle
from fedbourse.market.evidence import CardReference, end_block
from fedbourse.market.heads import next_opening
from fedbourse.market.lifecycle import ENDED, Command, after
from fedbourse.market.offers import choose_reward, first_total, micro_credits_of, reported_to
from fedbourse.market.price_discovery import announce_tick
from fedbourse.market.records import State, Task
from fedbourse.market.service import enough, escrow, role_of, show, taken
from fedbourse.market.unearned import empty_escrow
from fedbourse.tasks.incentives import UPFRONT_INCENTIVE
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits, credits_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.service import Market
    from fedbourse.tasks.card import TaskCard

DIMENSION_MAX = 1_000_000
"""An update of this many doubles is 8 MB."""
ROUNDS_MAX = 1_000_000
TASKS_MAX = 200
"""Of one buyer, that have not ended: the scheduler looks at each of them again and again."""


def create(market: Market, tx: Transaction, caller: Caller, card: TaskCard) -> Task:
    """Store a draft."""
    caller.require("buyer")
    if not caller.party.startswith("buyer:"):
        raise NotAllowed(f"a task belongs to a buyer; the caller is {caller.party}")
    for name, most in (("dimension", DIMENSION_MAX), ("rounds", ROUNDS_MAX)):
        if getattr(card, name) > most:
            raise InvalidInput(
                f"{name} must be at most {most} on this market; found {getattr(card, name)}"
            )
    unfinished = [state for state in State if state not in ENDED]
    if len(tx.tasks(states=unfinished, buyer=caller.party, limit=TASKS_MAX)) == TASKS_MAX:
        raise Conflict(
            f"{caller.party} has {TASKS_MAX} drafts and tasks that have not ended; "
            "cancel one, or wait until one ends"
        )
    now = market.now_ms()
    task = Task(
        id=f"{now:012x}{secrets.token_hex(6)}",
        buyer=caller.party,
        card=card,
        state=State.DRAFT,
        created_ms=now,
        last_hash=card.digest,
    )
    tx.add_task(task)
    return market.record(tx, task, "created", {"card": card.digest, "buyer": task.buyer})


def open_task(
    market: Market, tx: Transaction, caller: Caller, task_id: str, *, confirm_upfront: bool = False
) -> Task:
    """Publish a draft and reserve its money; from here on its deadlines count."""
    task = taken(tx, caller, task_id, Command.OPEN)
    if task.card.vesting == "upfront" and not confirm_upfront:
        raise Conflict(
            f"{UPFRONT_INCENTIVE}; confirm that you accept this (confirm_upfront, on the command "
            "line --confirm-upfront), or use a card with vesting by-round"
        )
    check_reference(tx, task)
    reserve = checked_reserve(tx, task)
    route = task.buyer, escrow(task.id)
    market.pay(tx, f"{task.id}/escrow", route, reserve, "the whole reward is reserved")
    task = replace(task, deadline_ms=market.moment_in(task.card.deadlines.interest_s))
    place = next_opening(tx)
    body = {
        "deadline_ms": task.deadline_ms,
        "reserved_micro": reserve,
        "fund": market.fund,
        **place,
    }
    task = market.record(tx, task, "opened", body)
    tx.add_opening(place["opening"], task)
    return task


def check_reference(tx: Transaction, task: Task) -> None:
    """Refuse a card with evidence whose reference records should be there, and are not."""
    spec = task.card.evidence
    if spec is not None and spec.source == "records" and not tx.has_reference(task.id):
        raise Conflict(
            "the card has evidence, and its reference records are missing; upload them first "
            f"(fedbourse task reference {task.id} FILE, or PUT /v1/tasks/{task.id}/reference)"
        )


def put_reference(
    market: Market, tx: Transaction, caller: Caller, task_id: str, *, content: bytes
) -> Task:
    """Store the reference records of a draft with evidence.

    Where the buyer sends gradients instead, it reveals the records once the task has ended.
    """
    task = show(tx.task(task_id, lock="change"), caller)
    spec = task.card.evidence
    if spec is not None and spec.source == "gradients":
        caller.require("buyer")
        if caller.party != task.buyer:
            raise NotAllowed(
                f"task {task.id} belongs to another buyer; the caller is {caller.party}"
            )
        if task.state not in ENDED:
            raise Conflict(
                "the card lets the buyer keep its reference records until the task has ended; "
                f"it is {task.state.value}"
            )
    else:
        after(task.state, Command.OPEN, by=role_of(caller, task))
    if spec is None:
        raise Conflict("the card has no evidence, so that nothing is compared with a reference")
    CardReference.of(task.card, content)
    tx.put_reference(task.id, content)
    return tx.task(task_id)


def announce(market: Market, tx: Transaction, caller: Caller, task_id: str) -> Task:
    """Fix R, give back what was reserved beyond it, and announce the first P."""
    task = taken(tx, caller, task_id, Command.ANNOUNCE)
    tree, reports = merkle.Root(), 0
    for values, leaves in tx.columns("interests", task.id, "value", "leaf"):
        tree.add(leaves)
        reports += len(values) - values.count(None)
    interested = tree.leaves
    enough(task, interested, "are interested")
    reported = reported_to(tx, task.id)
    reward, method = choose_reward(
        task.card, interested=interested, reports=reports, reported=reported
    )
    credits = reward / MICRO_CREDITS_PER_CREDIT
    total = first_total(
        task.card, reward=credits, interested=interested, reports=reports, reported=reported
    )
    beyond = tx.balance(escrow(task.id)) - reward
    if beyond:
        route = escrow(task.id), task.buyer
        market.pay(tx, f"{task.id}/released", route, beyond, "reserved beyond the reward")
    task = replace(
        task,
        reward=reward,
        interested=interested,
        deadline_ms=market.moment_in(task.card.deadlines.plans_s),
    )
    extra = {"interests": tree.hex(), "reported": reports, "released_micro": beyond}
    return announce_tick(
        market, tx, task, total, method=method, previous=task.card.digest, extra=extra
    )


def cancel(
    market: Market, tx: Transaction, caller: Caller, task_id: str, *, reason: str = ""
) -> Task:
    """End a task before its time; the pay of rounds that were not closed goes to the buyer."""
    task = taken(tx, caller, task_id, Command.CANCEL)
    role = role_of(caller, task)
    cause = plain_text("reason", reason).strip()[:400] or f"by the {role}"
    trained = tx.has_round(task.id, 0)
    closed = task.round if trained else 0
    judged = {}
    if trained and task.card.evidence is not None:
        judged = {"evidence": end_block(market, tx, task)}
    remainder = empty_escrow(market, tx, task, closed_rounds=closed)
    task = replace(task, deadline_ms=None, tick_ends_ms=None, review_ends_ms=None)
    task = replace(task, reference_ends_ms=None)
    body = {"by": role, "reason": cause, **remainder.document, **judged}
    return market.record(tx, task, "cancelled", body)


def checked_reserve(tx: Transaction, task: Task) -> MicroCredits:
    """Return what opening a task reserves; its buyer must have it."""
    amount, balance = micro_credits_of(task.card.reserve), tx.balance(task.buyer)
    if balance < amount:
        raise InvalidTransfer(
            f"opening a task reserves its whole reward, {credits_text(amount)} credits; "
            f"{task.buyer} has {credits_text(balance)}"
        )
    return amount


def take_as_shown(
    tx: Transaction, caller: Caller, task_id: str, step: Callable[[], Task], *, shown_micro: int
) -> Task:
    """Take a step, unless it takes more out of the buyer's account than it was shown to take."""
    buyer = show(tx.task(task_id), caller).buyer
    before = tx.balance(buyer)
    task = step()
    spent = before - tx.balance(buyer)
    if spent > shown_micro:
        raise Conflict(
            f"this would by now take {credits_text(spent)} credits, more than the page said; "
            "look at the new numbers"
        )
    return task
