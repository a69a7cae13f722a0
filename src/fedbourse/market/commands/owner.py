"""What an owner does: interest, plan, withdraw, sign or decline, and be forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import Conflict, InvalidInput, LeftTask, NotAllowed, NotFound
from fedbourse.game.activity import Reply, contradiction
from fedbourse.market import log
from fedbourse.market.document_types import Erased, OfferedTerms
from fedbourse.market.lifecycle import ENDED, Command, after
from fedbourse.market.lot_clock import accepted_tick
from fedbourse.market.price_discovery import BUDGET_MIN, renewed
from fedbourse.market.records import (
    Allocation,
    AllocationState,
    Exit,
    ExitReason,
    Interest,
    State,
    TickReply,
)
from fedbourse.market.service import follows, present, show, taken_by_owner
from fedbourse.protocol.keys import verified
from fedbourse.protocol.messages import interest_message, plan_message, terms_message
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, number

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import Task
    from fedbourse.market.service import Market
    from fedbourse.tasks.card import TaskCard

VALUE_MAX = 1e100
BUDGET_MAX = 1e100
"""Beyond these, products of what owners say leave the range of doubles."""


def register_interest(
    market: Market,
    tx: Transaction,
    caller: Caller,
    task_id: str,
    *,
    value: float | None,
    previous: str,
) -> Interest:
    """Store an owner's interest; its value only if it chooses to tell it."""
    task = taken_by_owner(market, tx, caller, task_id, Command.INTEREST)
    _refuse_out(tx, task, caller)
    if value is not None and task.card.sells_lots:
        raise InvalidInput(
            "under the clock no owner tells its value: saying in or out at each price is all that "
            f"is asked; found value {value!r:.60}"
        )
    if value is not None:
        value = number("value", value, at_least=1 / VALUE_MAX, at_most=VALUE_MAX)
    follows(previous, task.card.digest, "card")
    salt = market.salt()
    message = interest_message(task=task.id, owner=caller.party, value=value, card=previous)
    interest = Interest(
        task=task.id,
        owner=caller.party,
        value=value,
        salt=salt,
        leaf=log.leaf(salt, message),
        at_ms=market.now_ms(),
    )
    tx.put_interest(interest)
    return interest


def submit_plan(
    market: Market,
    tx: Transaction,
    caller: Caller,
    task_id: str,
    *,
    tick: int,
    budget: float,
    previous: str,
) -> TickReply:
    """Store the budget with which an owner replies to the offer of this tick.

    It may be replaced until the tick closes. Replies that no owner with one convex cost gives are
    refused (``game.activity``).
    """
    task = taken_by_owner(market, tx, caller, task_id, Command.PLAN)
    _refuse_out(tx, task, caller)
    interest = tx.interest(task.id, caller.party)
    if interest is None:
        raise NotAllowed(f"{caller.party} registered no interest before the offer")
    if tick != task.tick:
        raise Conflict(f"the offer stands at tick {task.tick}; the plan is for tick {tick}")
    if task.tick_ends_ms is not None and market.now_ms() >= task.tick_ends_ms:
        raise Conflict(f"tick {tick} has ended")
    follows(previous, task.offer, "offer")
    budget = _checked_budget(task.card, budget)
    _refuse_contradiction(tx, task, caller, budget)
    salt = market.salt()
    message = plan_message(
        task=task.id, owner=caller.party, tick=tick, budget=budget, offer=previous
    )
    reply = TickReply(
        task=task.id,
        tick=tick,
        owner=caller.party,
        budget=budget,
        salt=salt,
        leaf=log.leaf(salt, message),
        at_ms=market.now_ms(),
    )
    # A zero stands for every larger total: saying it again changes nothing.
    if interest.zero_from is None or interest.zero_from > present(task.total_budget):
        tx.put_reply(reply)
    market.may_be_due(tx, task)
    return reply


def _checked_budget(card: TaskCard, budget: float) -> float:
    most = min(card.max_rho, BUDGET_MAX)
    budget = number("budget", budget, at_least=0, at_most=most) + 0.0  # no -0.0
    least = max(card.min_budget, BUDGET_MIN)
    if 0 < budget < least:
        raise InvalidInput(f"budget must be 0 or at least {least:g}; found {budget:g}")
    return budget


def _refuse_contradiction(tx: Transaction, task: Task, caller: Caller, budget: float) -> None:
    earlier = [
        Reply(reply.tick, task.totals[reply.tick], reply.budget)
        for reply in tx.replies_of(task.id, caller.party)
        if reply.tick < task.tick and reply.budget is not None
    ]
    reason = contradiction(
        Reply(task.tick, task.totals[task.tick], budget),
        earlier,
        reward=present(task.reward) / MICRO_CREDITS_PER_CREDIT,
        floor=task.card.min_budget,
        linear=task.card.cost == "linear",
    )
    if reason is not None:
        raise InvalidInput(reason)


def leave_task(market: Market, tx: Transaction, caller: Caller, task_id: str) -> Exit:
    """Leave a task before it is settled, for good; a token is enough.

    While it is open the interest goes away. Once the reward is announced the log vouches for the
    interest, so that it stays, and none of the owner's replies counts any more: the price is
    discovered without it, with all of the ticks and the time that the card gives.
    """
    caller.require("owner")
    # Alone: a plan that is on its way must not come in after the one that is forgotten.
    task = show(tx.task(task_id, lock="change"), caller)
    before = tx.exit(task.id, caller.party)
    if before is not None:
        return before
    after(task.state, Command.LEAVE, by="owner")
    if tx.interest(task.id, caller.party) is None:
        raise NotFound(f"{caller.party} registered no interest in task {task.id}")
    exit = Exit(task.id, caller.party, task.tick, "left", market.now_ms())
    tx.leave_task(exit, from_interests=task.state is State.OPEN)
    if task.state is State.ANNOUNCED:
        expected = tx.count_asked(task.id, total_budget=present(task.total_budget))
        tx.save_task(replace(renewed(market, task, first_tick=task.tick), asked=expected))
        market.may_be_due(tx, task)
    return exit


_OUT: dict[ExitReason, str] = {
    "left": "you have left this task; that cannot be undone",
    "missed": "you did not reply to tick {tick}; a missed tick counts as zero from then on",
    "declined": "you have declined the terms of this task; that cannot be taken back",
    "unsigned": "you did not sign the terms of this task in time",
}


def _refuse_out(tx: Transaction, task: Task, caller: Caller) -> None:
    exit = tx.exit(task.id, caller.party)
    if exit is not None:
        raise LeftTask(_OUT[exit.reason].format(tick=exit.tick))


def offered_terms(market: Market, task: Task, allocation: Allocation) -> OfferedTerms:
    """Return the terms of one allocation, their hash, and the market's signature of them."""
    if allocation.budget is None:
        raise NotFound(f"the terms of {allocation.owner} were erased")
    tick = _replied_tick(task, allocation)
    message = terms_message(
        task.card,
        task=task.id,
        owner=allocation.owner,
        tick=tick,
        total_budget=task.totals[tick],
        budget=allocation.budget,
        payment_micro=allocation.payment,
        allocation=allocation.leaf,
    )
    return OfferedTerms(message, digest(message), market.key.sign(canonical(message)))


def _replied_tick(task: Task, allocation: Allocation) -> int:
    """Return the tick whose price the owner accepted, which it is paid."""
    tick = present(task.settled_tick)
    if not task.card.sells_lots:
        return tick
    return accepted_tick(
        task.card,
        task.totals,
        reward=present(task.reward),
        payment=allocation.payment,
        tick=tick,
    )


def decide(
    market: Market,
    tx: Transaction,
    caller: Caller,
    task_id: str,
    *,
    accept: bool,
    terms_digest: str,
    signature: str | None,
) -> Allocation:
    """Store that an owner's device signed its terms, or declined them."""
    task = taken_by_owner(market, tx, caller, task_id, Command.DECIDE)
    allocation = tx.allocation(task.id, caller.party, lock="change")
    if allocation is None:
        raise NotFound(f"{caller.party} was not chosen in task {task.id}")
    offered = offered_terms(market, task, allocation)
    if terms_digest != offered.digest:
        raise Conflict(
            f"the terms have the hash {offered.digest}; the decision is on {terms_digest!r:.80}"
        )
    decision: AllocationState = "signed" if accept else "declined"
    if allocation.state not in ("offered", decision):
        raise Conflict(f"{caller.party} has {allocation.state} its terms already")
    if accept:
        device = tx.device(caller.device or "")
        signed = canonical(offered.terms)
        if device is None or not verified(device.public_key, signed, signature or ""):
            raise InvalidInput("signature must be the device's own, of the terms' canonical form")
    if allocation.state == "offered":
        tx.decide_allocation(
            task.id, caller.party, decision, signature=signature if accept else None
        )
        market.may_be_due(tx, task)
    return tx.allocation(task.id, caller.party) or allocation


def erase(market: Market, tx: Transaction, caller: Caller, task_id: str) -> Erased:
    """Forget what an owner said in a task that has ended; hashes and payments stay."""
    caller.require("owner")
    if caller.device is None:  # it cannot be undone
        raise NotAllowed("erasure needs a request that is signed by the owner's device")
    task = show(tx.task(task_id, lock="change"), caller)
    if tx.interest(task.id, caller.party) is None:
        raise NotFound(f"{caller.party} said nothing in task {task.id}")
    if task.state not in ENDED:
        raise Conflict(f"erasure needs a task that has ended; it is {task.state.value}")
    tx.erase(task.id, caller.party)
    return Erased(task.id, caller.party)
