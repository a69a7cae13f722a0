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
from fedbourse.market.offers import choose_reward, first_total, reported_to
from fedbourse.market.service import escrow, role_of, taken
from fedbourse.market.settlement import COMPENSATIONS
from fedbourse.market.task import Line, State, Task
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits, credits_text
from fedbourse.wire.canonical import digest
from fedbourse.wire.messages import line_document, offer_message
from fedbourse.wire.plain_text import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.game.columns import FloatArray
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
    tree, told = log.Root(), 0
    for values, leaves in unit.columns("interests", task.id, "value", "leaf"):
        tree.add(leaves)
        told += len(values) - values.count(None)
    interested = tree.leaves
    enough(task, interested, "are interested")
    reported = reported_to(unit, task.id)
    reward, method = choose_reward(task.card, interested=interested, told=told, reported=reported)
    credits = reward / MICRO_CREDITS_PER_CREDIT
    total = first_total(
        task.card, reward=credits, interested=interested, told=told, reported=reported
    )
    _hold(market, unit, task, reward)
    task = replace(
        task,
        reward=reward,
        interested=interested,
        deadline_ms=market.moment_in(task.card.deadlines.plans_s),
        discovery=Discovery.start(total_budget=total).written(),
    )
    extra = {"interests": tree.hex(), "reported": told}
    return offer(market, unit, task, total, method=method, previous=task.card.digest, extra=extra)


def settle(market: Market, unit: Unit, caller: Caller, task_id: str) -> Task:
    """Turn the plans at hand into payments that sum to R."""
    task = taken(unit, caller, task_id, Command.SETTLE)
    plans = log.Root()
    total_budget = math.fsum(_budgets(unit, task, plans))
    enough(task, plans.leaves, "have planned a budget above 0")
    lines = log.Root()
    unit.add_lines(_lines(market, unit, task, lines))
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
            "total_budget": total_budget,
            "plans": plans.leaves,
            "plans_root": plans.hex(),
            "lines": lines.leaves,
            "lines_root": lines.hex(),
            "deadline_ms": task.deadline_ms,
        },
    )


def cancel(market: Market, unit: Unit, caller: Caller, task_id: str, *, reason: str = "") -> Task:
    """End a task before its time; what is not earned goes back to the buyer."""
    task = taken(unit, caller, task_id, Command.CANCEL)
    role = role_of(caller, task)
    said = plain_text("reason", reason).strip()[:400] or f"by the {role}"
    refunded = market.refund(unit, task)
    task = replace(task, deadline_ms=None, tick_ends_ms=None)
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


def _budgets(unit: Unit, task: Task, plans: log.Root) -> Iterator[float]:
    """Yield all budgets above 0, and add the leaves of their plans."""
    for budgets, leaves in unit.columns("plans", task.id, "budget", "leaf"):
        plans.add(leaf for budget, leaf in zip(budgets, leaves, strict=True) if budget)
        yield from filter(None, budgets)


def _lines(market: Market, unit: Unit, task: Task, lines: log.Root) -> Iterator[Line]:
    """Yield a line for each owner with pay, and add its leaf."""

    def read() -> Iterator[FloatArray]:
        for (budgets,) in unit.columns("plans", task.id, "budget"):
            yield np.array(budgets, dtype=np.float64)

    pay = COMPENSATIONS[task.card.compensation](read, known(task.reward))
    for owners, budgets in unit.columns("plans", task.id, "owner", "budget"):
        payments = pay(np.array(budgets, dtype=np.float64))
        for owner, budget, payment in zip(owners, budgets, payments, strict=True):
            if payment:
                line = _line(market, task, lines.leaves, (owner, budget, payment))
                lines.add([line.leaf])
                yield line


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
