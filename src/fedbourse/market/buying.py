"""What a buyer does: draft, open, announce, settle, cancel. The clock does some of it as well."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedbourse.errors import Conflict, InvalidInput, InvalidTransfer, NotAllowed
from fedbourse.game.discovery import Discovery
from fedbourse.market import log
from fedbourse.market.lifecycle import ENDED, Command
from fedbourse.market.offers import choose_reward, first_total
from fedbourse.market.service import escrow, role_of, taken
from fedbourse.market.settlement import COMPENSATIONS
from fedbourse.market.task import Line, State, Task
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits, credits_text
from fedbourse.wire.canonical import digest
from fedbourse.wire.messages import line_document, offer_message

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.wire.card import TaskCard

T = TypeVar("T")
DIMENSION_MAX = 1_000_000
"""An answer of this many doubles is 8 MB."""
ROUNDS_MAX = 1_000_000
TASKS_MAX = 200
"""Of one buyer, that have not ended: the clock looks at each of them again and again."""


def create(market: Market, unit: Unit, caller: Caller, card: TaskCard) -> Task:
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
    if len(unit.tasks(states=unfinished, buyer=caller.party, limit=TASKS_MAX)) == TASKS_MAX:
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
    unit.add_task(task)
    return market.record(unit, task, "created", {"card": card.digest, "buyer": task.buyer})


def open_task(market: Market, unit: Unit, caller: Caller, task_id: str) -> Task:
    """Publish a draft; from here on its deadlines count."""
    task = taken(unit, caller, task_id, Command.OPEN)
    task = replace(task, deadline_ms=market.moment_in(task.card.deadlines.interest_s))
    return market.record(unit, task, "opened", {"deadline_ms": task.deadline_ms})


def announce(market: Market, unit: Unit, caller: Caller, task_id: str) -> Task:
    """Fix R, put it into escrow, and announce the first P."""
    task = taken(unit, caller, task_id, Command.ANNOUNCE)
    interests = unit.interests(task.id)
    enough(task, len(interests), "are interested")
    values = np.array(
        [math.nan if each.value is None else each.value for each in interests], dtype=np.float64
    )
    told = values[~np.isnan(values)]
    reward, method = choose_reward(task.card, interested=len(interests), reported=told)
    credits = reward / MICRO_CREDITS_PER_CREDIT
    total = first_total(task.card, values, reward=credits, interested=len(interests))
    _hold(market, unit, task, reward)
    task = replace(
        task,
        reward=reward,
        interested=len(interests),
        deadline_ms=market.moment_in(task.card.deadlines.plans_s),
        discovery=Discovery.start(total_budget=total).written(),
    )
    extra = {
        "interests": log.root([each.leaf for each in interests]),
        "reported": len(told),
    }
    return offer(market, unit, task, total, method=method, previous=task.card.digest, extra=extra)


def settle(market: Market, unit: Unit, caller: Caller, task_id: str) -> Task:
    """Turn the plans at hand into payments that sum to R."""
    task = taken(unit, caller, task_id, Command.SETTLE)
    plans = [plan for plan in unit.plans(task.id) if plan.budget]
    enough(task, len(plans), "have planned a budget above 0")
    budgets = [plan.budget for plan in plans if plan.budget]
    payments = COMPENSATIONS[task.card.compensation](budgets, known(task.reward))
    paid = [
        (plan.owner, budget, payment)
        for plan, budget, payment in zip(plans, budgets, payments, strict=True)
        if payment
    ]
    lines = [_line(market, task, position, each) for position, each in enumerate(paid)]
    unit.add_lines(lines)
    task = replace(
        task, tick_ends_ms=None, deadline_ms=market.moment_in(task.card.deadlines.terms_s)
    )
    return market.record(
        unit,
        task,
        "settled",
        {
            "by": role_of(caller, task),
            "reward_micro": task.reward,
            "total_budget": math.fsum(budgets),
            "plans": len(plans),
            "plans_root": log.root([plan.leaf for plan in plans]),
            "lines": len(lines),
            "lines_root": log.root([line.leaf for line in lines]),
            "deadline_ms": task.deadline_ms,
        },
    )


def cancel(market: Market, unit: Unit, caller: Caller, task_id: str, *, reason: str = "") -> Task:
    """End a task before its time; what is not earned goes back to the buyer."""
    task = taken(unit, caller, task_id, Command.CANCEL)
    role = role_of(caller, task)
    refunded = market.refund(unit, task)
    task = replace(task, deadline_ms=None, tick_ends_ms=None)
    said = reason.strip()[:400] or f"by the {role}"
    body = {"by": role, "reason": said, "refunded_micro": refunded}
    return market.record(unit, task, "cancelled", body)


def offer(
    market: Market,
    unit: Unit,
    task: Task,
    total: float,
    *,
    method: str = "",
    previous: str,
    extra: dict[str, Any],
) -> Task:
    """Announce P at a tick, as a message that plans refer to."""
    ends = min(market.moment_in(task.card.deadlines.tick_s), known(task.deadline_ms))
    message = offer_message(
        task=task.id,
        reward_micro=known(task.reward),
        method=method,
        interested=task.interested,
        tick=task.tick,
        total_budget=total,
        tick_ends_ms=ends,
        plans_end_ms=known(task.deadline_ms),
        previous=previous,
    )
    task = replace(task, total_budget=total, tick_ends_ms=ends, offer=digest(message))
    kind = "announced" if task.tick == 0 else "ticked"
    return market.record(unit, task, kind, {**extra, "offer": message, "hash": task.offer})


def enough(task: Task, found: int, what: str) -> None:
    """Refuse to go on with fewer owners than the card wants."""
    needed = task.card.min_participants
    if found < needed:
        raise Conflict(f"the card needs {needed} participants, and {found} {what}")


def known(value: T | None) -> T:
    """Return what a task in this state always has."""
    assert value is not None
    return value


def _hold(market: Market, unit: Unit, task: Task, reward: MicroCredits) -> None:
    held = unit.balance(task.buyer)
    if held < reward:
        raise InvalidTransfer(
            f"escrow must hold the whole reward of {credits_text(reward)} credits; "
            f"{task.buyer} has {credits_text(held)}"
        )
    route = task.buyer, escrow(task.id)
    market.pay(unit, f"{task.id}/escrow", route, reward, "the whole reward is held")


def _line(market: Market, task: Task, position: int, paid: tuple[str, float, int]) -> Line:
    owner, budget, payment = paid
    salt = market.salt()
    document = line_document(owner=owner, budget=budget, payment_micro=payment)
    return Line(
        task=task.id,
        owner=owner,
        position=position,
        budget=budget,
        payment=MicroCredits(payment),
        salt=salt,
        leaf=log.leaf(salt, document),
    )
