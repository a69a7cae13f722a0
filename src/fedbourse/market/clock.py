"""What the market does by itself: when a deadline comes, or all that it waited for is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.errors import Conflict, InvalidInput, NoEquilibrium, NotFound
from fedbourse.market import training
from fedbourse.market.buying import announce, cancel
from fedbourse.market.lifecycle import ACTIVE
from fedbourse.market.parties import MARKET
from fedbourse.market.price_discovery import close_tick, restart, too_few
from fedbourse.market.task import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.ports import Store, Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task


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
        replies = unit.count_replies(task.id, task.tick)
        return over or replies >= task.asked or too_few(unit, task)
    if task.state is State.SETTLED:
        return task.review_ends_ms is None and not unit.count_lines(task.id, state="offered")
    if task.state is State.TRAINING:
        signed = unit.count_lines(task.id, state="signed")
        return unit.count_answers(task.id, task.round) >= signed
    return False


def _interest_is_over(market: Market, unit: Unit, task: Task) -> None:
    _or_cancel(market, unit, task, lambda: announce(market, unit, MARKET, task.id))


def _tick_is_over(market: Market, unit: Unit, task: Task) -> None:
    _or_cancel(market, unit, task, lambda: close_tick(market, unit, task.id))


def _terms_are_over(market: Market, unit: Unit, task: Task) -> None:
    """Discover again without who declined; else let the buyer look, and then start training."""
    if task.review_ends_ms is not None:
        _or_cancel(market, unit, task, lambda: training.start(market, unit, MARKET, task.id))
    elif unit.count_lines(task.id, state="signed") < unit.count_lines(task.id):
        _or_cancel(market, unit, task, lambda: restart(market, unit, task.id))
    else:
        _or_cancel(market, unit, task, lambda: training.review(market, unit, task.id))


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
