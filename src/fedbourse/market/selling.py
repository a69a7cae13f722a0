"""What an owner does: interest, plan, withdraw, sign or decline, and be forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbourse.errors import Conflict, InvalidInput, NotAllowed, NotFound, Withdrawn
from fedbourse.market import log
from fedbourse.market.lifecycle import ENDED, Command, after
from fedbourse.market.service import follows, show, taken_by_owner
from fedbourse.market.task import Interest, Line, LineState, Plan, State, Withdrawal
from fedbourse.units import number
from fedbourse.wire.canonical import canonical, digest
from fedbourse.wire.keys import verified
from fedbourse.wire.messages import interest_message, plan_message, terms_message

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task

VALUE_MAX = 1e100
BUDGET_MIN = 1e-100
BUDGET_MAX = 1e100
"""Beyond these, products of what owners say leave the range of doubles."""


def register_interest(
    market: Market,
    unit: Unit,
    caller: Caller,
    task_id: str,
    *,
    value: float | None,
    previous: str,
) -> Interest:
    """Store an owner's interest; its value only if it chooses to tell it."""
    task = taken_by_owner(market, unit, caller, task_id, Command.INTEREST)
    _refuse_withdrawn(unit, task, caller)
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
    unit.put_interest(interest)
    return interest


def submit_plan(
    market: Market,
    unit: Unit,
    caller: Caller,
    task_id: str,
    *,
    tick: int,
    budget: float,
    previous: str,
) -> Plan:
    """Store the budget with which an owner answers the offer of this tick."""
    task = taken_by_owner(market, unit, caller, task_id, Command.PLAN)
    _refuse_withdrawn(unit, task, caller)
    if unit.interest(task.id, caller.party) is None:
        raise NotAllowed(f"{caller.party} registered no interest before the offer")
    if tick != task.tick:
        raise Conflict(f"the offer stands at tick {task.tick}; the plan is for tick {tick}")
    follows(previous, task.offer, "offer")
    most = min(task.card.max_rho, BUDGET_MAX)
    budget = number("budget", budget, at_least=0, at_most=most) + 0.0  # no -0.0
    if 0 < budget < BUDGET_MIN:
        raise InvalidInput(f"budget must be 0 or at least {BUDGET_MIN:g}; found {budget:g}")
    salt = market.salt()
    message = plan_message(
        task=task.id, owner=caller.party, tick=tick, budget=budget, offer=previous
    )
    plan = Plan(
        task=task.id,
        owner=caller.party,
        tick=tick,
        budget=budget,
        salt=salt,
        leaf=log.leaf(salt, message),
        at_ms=market.now_ms(),
    )
    unit.put_plan(plan)
    return plan


def withdraw(market: Market, unit: Unit, caller: Caller, task_id: str) -> Withdrawal:
    """Step back from a task before it is settled, for good; a token is enough.

    While it is open the interest goes away. Once the reward is announced the log vouches for the
    interest, so that only the plan goes: the owner counts as one who stays silent.
    """
    caller.require("owner")
    # Alone: a plan that is on its way must not come in after the one that is forgotten.
    task = show(unit.task(task_id, lock="change"), caller)
    before = unit.withdrawal(task.id, caller.party)
    if before is not None:
        return before
    after(task.state, Command.WITHDRAW, by="owner")
    if unit.interest(task.id, caller.party) is None:
        raise NotFound(f"{caller.party} registered no interest in task {task.id}")
    withdrawal = Withdrawal(task=task.id, owner=caller.party, at_ms=market.now_ms())
    unit.withdraw(withdrawal, from_interests=task.state is State.OPEN)
    return withdrawal


def _refuse_withdrawn(unit: Unit, task: Task, caller: Caller) -> None:
    if unit.withdrawal(task.id, caller.party) is not None:
        raise Withdrawn("you have withdrawn from this task; that cannot be taken back")


def offered_terms(market: Market, task: Task, line: Line) -> dict[str, Any]:
    """Return the terms of one line, their hash, and the market's signature of them."""
    if line.budget is None:
        raise NotFound(f"the terms of {line.owner} were erased")
    message = terms_message(
        task.card,
        task=task.id,
        owner=line.owner,
        budget=line.budget,
        payment_micro=line.payment,
        line=line.leaf,
    )
    return {
        "terms": message,
        "digest": digest(message),
        "market_signature": market.key.sign(canonical(message)),
    }


def decide(
    market: Market,
    unit: Unit,
    caller: Caller,
    task_id: str,
    *,
    accept: bool,
    terms_digest: str,
    signature: str | None,
) -> Line:
    """Store that an owner's device signed its terms, or declined them."""
    task = taken_by_owner(market, unit, caller, task_id, Command.DECIDE)
    line = unit.line(task.id, caller.party, lock="change")
    if line is None:
        raise NotFound(f"{caller.party} was not chosen in task {task.id}")
    offered = offered_terms(market, task, line)
    if terms_digest != offered["digest"]:
        raise Conflict(
            f"the terms have the hash {offered['digest']}; the decision is on {terms_digest!r:.80}"
        )
    wanted: LineState = "signed" if accept else "declined"
    if line.state not in ("offered", wanted):
        raise Conflict(f"{caller.party} has {line.state} its terms already")
    if accept:
        device = unit.device(caller.device or "")
        if device is None or not verified(
            device.public_key, canonical(offered["terms"]), signature or ""
        ):
            raise InvalidInput("signature must be the device's own, of the terms' canonical form")
    if line.state == "offered":
        unit.decide_line(task.id, caller.party, wanted, signature=signature if accept else None)
    return unit.line(task.id, caller.party) or line


def erase(market: Market, unit: Unit, caller: Caller, task_id: str) -> None:
    """Forget what an owner said in a task that has ended; hashes and payments stay."""
    caller.require("owner")
    if caller.device is None:  # it cannot be undone
        raise NotAllowed("erasure needs a request that is signed by the owner's device")
    task = show(unit.task(task_id, lock="change"), caller)
    if unit.interest(task.id, caller.party) is None:
        raise NotFound(f"{caller.party} said nothing in task {task.id}")
    if task.state not in ENDED:
        raise Conflict(f"erasure needs a task that has ended; it is {task.state.value}")
    unit.erase(task.id, caller.party)
