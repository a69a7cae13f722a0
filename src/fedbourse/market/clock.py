"""What the market does by itself: when a deadline comes, or all that it waited for is in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import Conflict, InvalidInput, NoEquilibrium, NotFound
from fedbourse.game.discovery import Discovery
from fedbourse.market import log, training
from fedbourse.market.buying import announce, cancel, offer, settle
from fedbourse.market.lifecycle import ACTIVE, Command
from fedbourse.market.parties import MARKET
from fedbourse.market.selling import BUDGET_MIN
from fedbourse.market.service import taken
from fedbourse.market.settlement import shares_at
from fedbourse.market.task import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedbourse.game.columns import FloatArray
    from fedbourse.market.ports import Store, Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task


TICKS_MAX = 200
"""However fast devices answer, there are no more announcements; honest ones need some twenty."""


def advance(market: Market, store: Store) -> int:
    """Move on every task whose time has come, each in its own transaction; return how many.

    A task that cannot be moved does not keep the others waiting; its error is raised at the end.
    """
    with store.read() as unit:
        waiting = [task.id for task in unit.active_tasks() if _is_due(market, unit, task)]
    moved, failed = 0, None
    for task_id in waiting:
        try:
            with store.begin() as unit:
                moved += move_on(market, unit, task_id)
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return moved


def advance_one(market: Market, store: Store, task_id: str) -> bool:
    """Move one task on if its time has come; False where it has not, or somebody else did so."""
    with store.read() as unit:
        try:
            task = unit.task(task_id)
        except NotFound:  # whoever named it was refused
            return False
        if task.state not in ACTIVE or not _is_due(market, unit, task):
            return False
    with store.begin() as unit:
        return move_on(market, unit, task_id)


def move_on(market: Market, unit: Unit, task_id: str) -> bool:
    """Do what a task's deadline or completeness asks for; False where somebody else has done it."""
    task = unit.task(task_id, lock="change")
    if not _is_due(market, unit, task):
        return False
    _MOVES[task.state](market, unit, task)
    return True


def _is_due(market: Market, unit: Unit, task: Task) -> bool:
    now = market.now_ms()
    if task.deadline_ms is not None and now >= task.deadline_ms:
        return True
    if task.state is State.ANNOUNCED:
        over = task.tick_ends_ms is not None and now >= task.tick_ends_ms
        asked = _asked(unit, task)
        too_few = asked < task.card.min_participants
        return over or too_few or unit.count_plans(task.id, tick=task.tick) >= asked
    if task.state is State.SETTLED:
        return not unit.count_lines(task.id, state="offered")
    if task.state is State.TRAINING:
        signed = unit.count_lines(task.id, state="signed")
        return unit.count_answers(task.id, task.round) >= signed
    return False


def _asked(unit: Unit, task: Task) -> int:
    """Return how many owners an offer asks: those who were interested and have not withdrawn."""
    return task.interested - unit.count_withdrawn(task.id)


def _interest_is_over(market: Market, unit: Unit, task: Task) -> None:
    _or_cancel(market, unit, task, lambda: announce(market, unit, MARKET, task.id))


def _tick_is_over(market: Market, unit: Unit, task: Task) -> None:
    """Move P by what owners answered; settle where it stands still, or where time is up."""
    task = taken(unit, MARKET, task.id, Command.TICK)
    plans = log.Root()
    before = Discovery.read(task.discovery)
    positive, share_sum = shares_at(before.total_budget, _budgets(unit, task, plans))
    now = before.move(positive=positive, share_sum=share_sum)
    seen = {
        "answered": unit.count_plans(task.id, tick=task.tick),
        "positive": positive,
        "share_sum": share_sum,
        "plans_root": plans.hex(),
    }
    over = task.deadline_ms is not None and market.now_ms() >= task.deadline_ms
    silent = now.total_budget < BUDGET_MIN  # nobody sells at any price
    too_few = _asked(unit, task) < task.card.min_participants
    if over or silent or too_few or now.settled or task.tick >= TICKS_MAX:
        market.record(unit, task, "last-tick", seen | {"stands_still": now.settled})
        _or_cancel(market, unit, task, lambda: settle(market, unit, MARKET, task.id))
        return
    task = replace(task, tick=task.tick + 1, discovery=now.written())
    offer(market, unit, task, now.total_budget, previous=task.offer, extra=seen)


def _budgets(unit: Unit, task: Task, plans: log.Root) -> Iterator[FloatArray]:
    """Yield all budgets, and add the leaves of their plans."""
    for budgets, leaves in unit.columns("plans", task.id, "budget", "leaf"):
        plans.add(leaves)
        yield np.array(budgets, dtype=np.float64)


def _terms_are_over(market: Market, unit: Unit, task: Task) -> None:
    _or_cancel(market, unit, task, lambda: training.start(market, unit, MARKET, task.id))


def _round_is_over(market: Market, unit: Unit, task: Task) -> None:
    training.close_round(market, unit, task.id)


def _or_cancel(market: Market, unit: Unit, task: Task, go_on: Callable[[], Task]) -> None:
    """Go on, or cancel with the reason why that cannot be."""
    try:
        with unit.savepoint():
            go_on()
    except (Conflict, InvalidInput, NoEquilibrium) as error:
        cancel(market, unit, MARKET, task.id, reason=str(error))


_MOVES: dict[State, Callable[[Market, Unit, Task], None]] = {
    State.OPEN: _interest_is_over,
    State.ANNOUNCED: _tick_is_over,
    State.SETTLED: _terms_are_over,
    State.TRAINING: _round_is_over,
}
