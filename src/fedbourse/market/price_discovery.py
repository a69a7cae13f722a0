"""Price discovery as the market runs it: ticks, the settlement by rule, and running again.

Every tick announces a total P. Replies are final when their tick closes. Who did not reply to a
tick that waited for it is out of the task, as is who leaves or declines: no reply of it counts any
more, at any tick. The sums of all ticks are therefore taken anew over those who are left, and the
task settles at the lowest announced total whose replies sum to at most it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.encoding.canonical import digest
from fedbourse.errors import Conflict
from fedbourse.game.mechanisms import market_settlement
from fedbourse.game.price_discovery import TICKS_MAX, PriceDiscovery, TickSum
from fedbourse.market import log, merkle
from fedbourse.market.lifecycle import Command
from fedbourse.market.log_summary import summary_of
from fedbourse.market.lot_clock import ClockOffers, LotDiscovery, LotTick, stayed
from fedbourse.market.parties import MARKET
from fedbourse.market.records import Allocation, Exit
from fedbourse.market.service import enough, present, taken
from fedbourse.market.settlement import regret_bound, shares_at
from fedbourse.protocol.messages import allocation_document, offer_message
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fedbourse.game.columns import FloatArray
    from fedbourse.market.ports import Transaction
    from fedbourse.market.records import ExitReason, Task
    from fedbourse.market.service import Market

BUDGET_MIN = 1e-100
"""A smaller total is not announced: nobody sells at any price."""


def announce_tick(
    market: Market,
    tx: Transaction,
    task: Task,
    total: float,
    *,
    method: str = "",
    previous: str,
    extra: dict[str, Any],
) -> Task:
    """Announce P at the next tick, as a message that replies refer to."""
    task = replace(task, tick=len(task.totals))
    ends = min(market.moment_in(task.card.deadlines.tick_s), present(task.deadline_ms))
    message = offer_message(
        task=task.id,
        reward_micro=present(task.reward),
        method=method,
        interested=task.interested,
        tick=task.tick,
        total_budget=total,
        tick_ends_ms=ends,
        plans_end_ms=present(task.deadline_ms),
        previous=previous,
    )
    task = replace(
        task,
        total_budget=total,
        totals=(*task.totals, total),
        tick_ends_ms=ends,
        offer=digest(message),
        asked=tx.count_asked(task.id, total_budget=total),
    )
    kind = "announced" if task.tick == 0 else "ticked"
    return market.record(tx, task, kind, {**extra, "offer": message, "hash": task.offer})


def close_tick(market: Market, tx: Transaction, task_id: str) -> Task:
    """Move P by what owners replied; settle where it has converged, or where time is up."""
    task = taken(tx, MARKET, task_id, Command.TICK)
    missed = tx.miss_tick(
        task.id, tick=task.tick, total_budget=present(task.total_budget), at_ms=market.now_ms()
    )
    if missed:
        task = renewed(market, task, first_tick=task.tick + 1)
    tree = merkle.Root()
    for (leaves,) in tx.replies_in(task.id, task.tick, "leaf"):
        tree.add(leaves)
    sums = tick_sums(tx, task)
    closing = {
        "closed_tick": task.tick,
        "replies": tree.leaves,
        "replies_root": tree.hex(),
        "positive": sums[-1].positive,
        "share_sum": sums[-1].share_sum,
        "missed": missed,
        "out": tx.count_exits(task.id),
    }
    discovery = _discovery(tx, task, sums)
    # A tick is as long as the card says: in a shorter one devices would be out before they reply.
    over = market.moment_in(task.card.deadlines.tick_s) > present(task.deadline_ms)
    last = task.tick - task.first_tick + 1 >= TICKS_MAX and not task.card.sells_lots
    silent = discovery.total_budget < BUDGET_MIN
    # A micro-credit is the smallest price of a lot.
    lowest = task.card.sells_lots and discovery.total_budget <= task.totals[-1]
    if discovery.converged or over or last or silent or lowest or too_few(tx, task):
        task = market.record(tx, task, "last-tick", closing | {"converged": discovery.converged})
        return settle(market, tx, task, discovery)
    return announce_tick(
        market, tx, task, discovery.total_budget, previous=task.offer, extra=closing
    )


def renewed(market: Market, task: Task, *, first_tick: int) -> Task:
    """Return a task with all of its ticks and all of its time again, because somebody is out of it.

    Otherwise names could hold P up until no tick is left and then go: the others would be settled
    at the totals that those names led to.
    """
    deadline = market.moment_in(task.card.deadlines.plans_s)
    return replace(task, first_tick=first_tick, deadline_ms=deadline)


def too_few(tx: Transaction, task: Task) -> bool:
    """Say whether fewer owners are left than the card wants."""
    return task.interested - tx.count_exits(task.id) < task.card.min_participants


def tick_sums(tx: Transaction, task: Task) -> list[TickSum]:
    """Return what each tick so far sums to, over the owners who are not out of the task."""
    return [
        TickSum(total, *shares_at(total, _budgets(tx, task, tick)))
        for tick, total in enumerate(task.totals)
    ]


def discovery_after(sums: list[TickSum]) -> PriceDiscovery:
    """Return how discovery stands after these ticks."""
    discovery = PriceDiscovery.start(total_budget=sums[0].total_budget)
    for each in sums:
        discovery = discovery.after(each)
    return discovery


def _discovery(tx: Transaction, task: Task, sums: list[TickSum]) -> PriceDiscovery | LotDiscovery:
    """Return how a task's discovery stands, by its mechanism."""
    if not task.card.sells_lots:
        return discovery_after(sums)
    first = digest(dict(summary_of(tx, task.id).offers[0]))
    offers = ClockOffers(task.card, present(task.reward), task.interested, first)
    ticks = [
        LotTick(total, stayed(pair for page in _replies(tx, task, tick) for pair in page))
        for tick, total in enumerate(task.totals)
    ]
    return LotDiscovery(offers, ticks)


def _replies(
    tx: Transaction, task: Task, tick: int
) -> Iterator[Iterable[tuple[str, float | None]]]:
    for owners, budgets in tx.replies_in(task.id, tick, "owner", "budget"):
        yield zip(owners, budgets, strict=True)


def _tick_and_lots(
    task: Task, discovery: PriceDiscovery | LotDiscovery
) -> tuple[int, Mapping[str, int] | None]:
    """Return the tick to settle at, and what each seller is paid where the clock says it."""
    if isinstance(discovery, LotDiscovery):
        if not discovery.converged:
            raise Conflict(
                "time is up, or the price can fall no more, and the reward does not pay for all "
                "lots on offer"
            )
        enough(task, len(discovery.payments), "sell a lot")
        return discovery.tick, discovery.payments
    tick = discovery.qualifying
    if tick is None:
        raise Conflict(
            f"at each of {len(task.totals)} totals announced owners wanted more than it: no tick "
            "qualifies for a settlement"
        )
    enough(task, tick.positive, "have planned a budget above 0")
    return discovery.ticks.index(tick), None


def settle(
    market: Market, tx: Transaction, task: Task, discovery: PriceDiscovery | LotDiscovery
) -> Task:
    """Turn the replies to the qualifying tick into payments: of R in all, or for each lot."""
    task = taken(tx, MARKET, task.id, Command.SETTLE)
    number, lots = _tick_and_lots(task, discovery)
    task = replace(task, settled_tick=number, tick_ends_ms=None)
    total_budget, plans = _plans(tx, task, number, lots)
    if total_budget < task.card.min_total_budget:
        raise Conflict(
            f"the card needs a total of {task.card.min_total_budget:g} rho, and the plans sum to "
            f"{total_budget:g}"
        )
    allocations = merkle.Tree()
    tx.add_allocations(_allocations(market, tx, task, allocations, lots))
    tx.add_nodes(task.id, allocations.nodes())
    task = replace(task, deadline_ms=market.moment_in(task.card.deadlines.terms_s))
    reward = present(task.reward)
    return market.record(
        tx,
        task,
        "settled",
        {
            "reward_micro": reward,
            "tick": number,
            "announced_total": task.totals[number],
            "converged": discovery.converged,
            # By the clock nobody gains by another reply, whatever the others do.
            "regret_bound": regret_bound(
                _budgets(tx, task, number),
                announced=task.totals[number],
                sold=total_budget,
                reward=reward / MICRO_CREDITS_PER_CREDIT,
            )
            if lots is None
            else 0.0,
            "total_budget": total_budget,
            "plans": plans.leaves,
            "plans_root": plans.hex(),
            "allocations": allocations.leaves,
            "allocations_root": allocations.hex(),
            "deadline_ms": task.deadline_ms,
        },
    )


def restart(market: Market, tx: Transaction, task_id: str) -> Task:
    """Strike out who declined or did not sign, and discover the price again without them.

    The reward stays what it is, and so do all replies of the others: their ticks still narrow P.
    """
    task = taken(tx, MARKET, task_id, Command.RESTART)
    now = market.now_ms()
    struck_out = [
        allocation for allocation in tx.allocations(task.id) if allocation.state != "signed"
    ]
    for allocation in struck_out:
        reason: ExitReason = "declined" if allocation.state == "declined" else "unsigned"
        tx.add_exit(Exit(task.id, allocation.owner, task.tick, reason, now))
    tx.drop_allocations(task.id)
    task = replace(renewed(market, task, first_tick=len(task.totals)), settled_tick=None)
    task = market.record(tx, task, "restarted", {"struck_out": len(struck_out)})
    enough(task, task.interested - tx.count_exits(task.id), "are left to sell")
    discovery = _discovery(tx, task, tick_sums(tx, task))
    if discovery.converged:
        return settle(market, tx, task, discovery)
    return announce_tick(market, tx, task, discovery.total_budget, previous=task.offer, extra={})


def _budgets(tx: Transaction, task: Task, tick: int) -> Iterator[FloatArray]:
    """Yield the budgets replied to a tick by those who are not out."""
    for (budgets,) in tx.replies_in(task.id, tick, "budget"):
        yield np.array(budgets, dtype=np.float64)


def _plans(
    tx: Transaction, task: Task, tick: int, lots: Mapping[str, int] | None
) -> tuple[float, merkle.Root]:
    """Return the sum of all plans that sell, and the root over their leaves."""
    tree = merkle.Root()

    def positive() -> Iterator[float]:
        for owners, budgets, leaves in tx.replies_in(task.id, tick, "owner", "budget", "leaf"):
            sold = budgets if lots is None else [owner in lots for owner in owners]
            tree.add(compress(leaves, sold))
            yield from compress(budgets, sold)

    return math.fsum(positive()), tree


def _allocations(
    market: Market,
    tx: Transaction,
    task: Task,
    allocations: merkle.Tree,
    lots: Mapping[str, int] | None,
) -> Iterator[Allocation]:
    """Yield an allocation for each owner with pay, and add its leaf."""
    tick = present(task.settled_tick)
    pay = None
    if lots is None:
        settlement = market_settlement(task.card.compensation)
        pay = settlement(lambda: _budgets(tx, task, tick), present(task.reward))
    for owners, budgets in tx.replies_in(task.id, tick, "owner", "budget"):
        if pay is None:
            payments = [present(lots).get(owner, 0) for owner in owners]
        else:
            payments = pay(np.array(budgets, dtype=np.float64))
        for owner, budget, payment in zip(owners, budgets, payments, strict=True):
            if payment:
                allocation = _allocation(market, task, allocations.leaves, (owner, budget, payment))
                allocations.add([allocation.leaf])
                yield allocation


def _allocation(
    market: Market, task: Task, position: int, paid: tuple[str, float, int]
) -> Allocation:
    owner, budget, payment = paid
    salt = market.salt()
    document = allocation_document(owner=owner, budget=budget, payment_micro=payment)
    return Allocation(
        task=task.id,
        owner=owner,
        position=position,
        budget=budget,
        payment=MicroCredits(payment),
        salt=salt,
        leaf=log.leaf(salt, document),
    )
