"""The owner's pages: what a task would pay, the own tasks, and the own part of each."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from fedbourse.dashboard.epsilon_table import epsilon_table
from fedbourse.dashboard.forms import Form
from fedbourse.dashboard.ledger_pages import PAYOUT_ROWS
from fedbourse.dashboard.page_context import AuthenticatedPageContext, PageContextDep, signed_in
from fedbourse.dashboard.pages import page, redirect
from fedbourse.encoding.documents import plain
from fedbourse.errors import Conflict, NotFound
from fedbourse.game import Uniform
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.document_types import TaskDocument
from fedbourse.market.lifecycle import ENDED, LIFE, Command
from fedbourse.market.offers import likely_reward
from fedbourse.market.records import ExitReason, State, Task
from fedbourse.market.views import View
from fedbourse.privacy.loss import PrivacyLoss
from fedbourse.tasks.incentives import incentive
from fedbourse.units import MICRO_CREDITS_PER_CREDIT
from fedbourse.web.paths import TASK, TaskId

router = APIRouter()
Owner = Annotated[AuthenticatedPageContext, Depends(signed_in("owner"))]
Before = Annotated[str, Query(pattern=f"^$|{TASK}")]
ROWS = 20


@router.get("/tasks/{task}/earn")
def earn_page(context: PageContextDep, task: TaskId) -> Response:
    """Show what a budget would earn; the owner's value and cap never leave the browser."""

    def read(view: View) -> dict[str, Any]:
        record, document = view.task(task), view.task_document(task)
        return {
            "task": document,
            "card": record.card,
            "offer": _offer(record, document),
            "incentive": incentive(record.card),
        }

    return page(context, "earn.html", table=epsilon_table(), **context.read(read))


def _offer(task: Task, document: TaskDocument) -> dict[str, Any]:
    """Return what everybody knows of the reward and of what others sell."""
    card, assumed = task.card, task.card.assumptions
    values = None if assumed is None else assumed.values
    reward = None if isinstance(card.reward, str) else float(card.reward)
    if task.reward is not None:
        reward = task.reward / MICRO_CREDITS_PER_CREDIT
    owners = max(2, int(document.interested or 0))
    return {
        "reward": reward,
        "tried": likely_reward(card, owners) if reward is None else reward,
        "total": task.total_budget,
        "owners": owners,
        "low": values.low if isinstance(values, Uniform) else None,
        "high": values.high if isinstance(values, Uniform) else None,
        "example": 1.0 if values is None else float(values.spread(1)[0]),
        "taken": task.state in (State.OPEN, State.ANNOUNCED),
    }


@router.get("/own")
def own_page(context: Owner, before: Before = "") -> Response:
    """List the caller's tasks with pay and spend."""

    def read(view: View) -> dict[str, Any]:
        tasks = view.own_tasks(before=before or None, limit=ROWS + 1)
        parts = [own_part(view, task) for task in tasks[:ROWS]]
        rows = [part for part in parts if part is not None]
        loss = PrivacyLoss.composed((part["spent"], part["samples"]) for part in rows)
        return {
            "rows": rows,
            "older": tasks[ROWS - 1].id if len(tasks) > ROWS else None,
            "balance": view.balance(),
            "earned": view.earned(),
            "payouts": view.payouts(context.caller.party, limit=PAYOUT_ROWS),
            "loss": loss,
        }

    return page(context, "own.html", before=before, **context.read(read))


_EXIT_WORDS: dict[ExitReason, str] = {
    "left": "you left the task",
    "missed": "your device missed a tick",
    "declined": "your device declined the terms",
    "unsigned": "your device did not sign in time",
}
_EXIT_REASONS: dict[ExitReason, str] = {
    "left": "You left the task before it was settled.",
    "missed": "Your device did not reply to tick {tick}; a missed tick counts as zero from then "
    "on. Keep it running (fedbourse device run) while a task is announced.",
    "declined": "Your device declined the terms, and the price was discovered again without you.",
    "unsigned": "Your device did not sign the terms in time, and the price was discovered again "
    "without you.",
}


def own_part(view: View, task: Task) -> dict[str, Any] | None:
    """Return an owner's part in a task as the market knows it; None where it has none."""
    participation = plain(view.participation(task.id))
    gone = participation["exit"]
    if participation["interest"] is None and gone is None:
        return None
    allocation, plan, rounds = participation["allocation"], participation["plan"], task.card.rounds
    delivered = allocation["delivered"] if allocation else 0
    budget = allocation["budget"] if allocation else None
    return {
        "task": task.id,
        "goal": task.card.goal,
        "state": task.state.value,
        "ended": task.state in ENDED,
        "rounds": rounds,
        "samples": task.card.samples,
        "interest": participation["interest"],
        "exit": gone,
        "may_leave": gone is None and (task.state, Command.LEAVE) in LIFE,
        "plan": plan["budget"] if plan else None,
        "allocation": allocation,
        "budget": budget,
        "delivered": delivered,
        "spent": 0.0 if budget is None else budget * delivered / rounds,
        "erased": allocation is not None and budget is None,
        "words": _EXIT_WORDS[gone["reason"]] if gone else _words(task, allocation, plan),
        "reason": _EXIT_REASONS[gone["reason"]].format(tick=gone["tick"]) if gone else "",
    }


def _words(task: Task, allocation: dict[str, Any] | None, plan: dict[str, Any] | None) -> str:
    """Say where an owner stands in a task."""
    if allocation is not None:
        ended = "took part" if task.state is State.COMPLETED else "takes part"
        signed = "took part until it was cancelled" if task.state is State.CANCELLED else ended
        return {
            "offered": "terms offered, not signed",
            "signed": signed,
            "declined": "terms declined",
        }[allocation["state"]]
    if task.state is State.ANNOUNCED:
        return "no plan yet" if plan is None else "planned"
    if task.state is State.OPEN:
        return "interested"
    return "sold nothing"


class Confirmed(Form):
    """That an owner has read what it means."""


@router.get("/tasks/{task}/leave")
def leave_page(context: Owner, task: TaskId) -> Response:
    """Say what it means to leave the task, and ask."""
    return _leave_page(context, task)


@router.post("/tasks/{task}/leave")
def leave_task(context: Owner, task: TaskId) -> Response:
    """Leave the task, or say why that is no longer possible."""
    context.form(Confirmed)
    market = context.market
    try:
        context.write(lambda tx, caller: owner_commands.leave_task(market, tx, caller, task))
    except Conflict as error:
        return _leave_page(context, task, error=str(error), status=error.http_status)
    return redirect(f"/tasks/{task}")


def _leave_page(context: Owner, task_id: str, *, error: str = "", status: int = 200) -> Response:
    def read(view: View) -> dict[str, Any]:
        task = view.task(task_id)
        own = own_part(view, task)
        if own is None:
            raise NotFound(f"{context.caller.party} registered no interest in task {task.id}")
        return {"task": task, "own": own}

    return page(context, "leave_task.html", status=status, error=error, **context.read(read))
