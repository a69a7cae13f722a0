"""What the market does by itself: when a deadline comes, or all that it waited for is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.errors import Conflict, InvalidInput, NoEquilibrium, NotFound
from fedbourse.market.commands import training as training_commands
from fedbourse.market.commands.buyer import announce, cancel
from fedbourse.market.commands.reference_gradients import open_without_gradient
from fedbourse.market.lifecycle import ACTIVE
from fedbourse.market.parties import MARKET
from fedbourse.market.price_discovery import close_tick, restart, too_few
from fedbourse.market.records import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.ports import Store, Transaction
    from fedbourse.market.records import Task
    from fedbourse.market.service import Market


def advance(market: Market, store: Store) -> int:
    """Move on every task whose time has come, each in its own transaction; return how many.

    A task that cannot be moved does not keep the others waiting; its error is raised at the end.
    """
    with store.read() as tx:
        waiting = [task.id for task in tx.active_tasks() if _is_due(market, tx, task)]
    moved, failed = 0, None
    for task_id in waiting:
        try:
            with store.begin() as tx:
                moved += move_on(market, tx, task_id)
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return moved


def advance_one(market: Market, store: Store, task_id: str) -> bool:
    """Move one task on if its time has come; False where it has not, or somebody else did so."""
    with store.read() as tx:
        try:
            task = tx.task(task_id)
        except NotFound:  # whoever named it was refused
            return False
        if task.state not in ACTIVE or not _is_due(market, tx, task):
            return False
    with store.begin() as tx:
        return move_on(market, tx, task_id)


def move_on(market: Market, tx: Transaction, task_id: str) -> bool:
    """Do what a task's deadline or completeness asks for; False where somebody else has done it."""
    task = tx.task(task_id, lock="change")
    if not _is_due(market, tx, task):
        return False
    _MOVES[task.state](market, tx, task)
    return True


def _is_due(market: Market, tx: Transaction, task: Task) -> bool:
    now = market.now_ms()
    if task.deadline_ms is not None and now >= task.deadline_ms:
        return True
    if task.state is State.ANNOUNCED:
        over = task.tick_ends_ms is not None and now >= task.tick_ends_ms
        replies = tx.count_replies(task.id, task.tick)
        return over or replies >= task.asked or too_few(tx, task)
    if task.state is State.SETTLED:
        return task.review_ends_ms is None and not tx.count_allocations(task.id, state="offered")
    if task.state is State.TRAINING and task.reference_ends_ms is None:
        signed = tx.count_allocations(task.id, state="signed")
        return tx.count_updates(task.id, task.round) >= signed
    return False


def _interest_is_over(market: Market, tx: Transaction, task: Task) -> None:
    _or_cancel(market, tx, task, lambda: announce(market, tx, MARKET, task.id))


def _tick_is_over(market: Market, tx: Transaction, task: Task) -> None:
    _or_cancel(market, tx, task, lambda: close_tick(market, tx, task.id))


def _terms_are_over(market: Market, tx: Transaction, task: Task) -> None:
    """Discover again without who declined; else let the buyer look, and then start training."""
    if task.review_ends_ms is not None:
        _or_cancel(market, tx, task, lambda: training_commands.start(market, tx, MARKET, task.id))
    elif tx.count_allocations(task.id, state="signed") < tx.count_allocations(task.id):
        _or_cancel(market, tx, task, lambda: restart(market, tx, task.id))
    else:
        _or_cancel(market, tx, task, lambda: training_commands.review(market, tx, task.id))


def _round_is_over(market: Market, tx: Transaction, task: Task) -> None:
    if task.reference_ends_ms is not None:
        open_without_gradient(market, tx, task.id)
    else:
        training_commands.close_round(market, tx, task.id)


def _or_cancel(market: Market, tx: Transaction, task: Task, go_on: Callable[[], Task]) -> None:
    """Go on, or cancel with the reason why that cannot be."""
    try:
        with tx.savepoint():
            go_on()
    except (Conflict, InvalidInput, NoEquilibrium) as error:
        cancel(market, tx, MARKET, task.id, reason=str(error))


_MOVES: dict[State, Callable[[Market, Transaction, Task], None]] = {
    State.OPEN: _interest_is_over,
    State.ANNOUNCED: _tick_is_over,
    State.SETTLED: _terms_are_over,
    State.TRAINING: _round_is_over,
}
