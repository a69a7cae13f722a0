"""The owner's pages: what a task would pay, the own tasks, and the own part of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response  # noqa: TC002 - FastAPI reads them

from fedbourse.dashboard.epsilon_table import epsilon_table
from fedbourse.dashboard.ledger_pages import PAYOUT_ROWS
from fedbourse.dashboard.pages import page
from fedbourse.dashboard.visits import KnownPageVisit, PageVisitor, signed_in
from fedbourse.market.lifecycle import ENDED, LIFE, Command
from fedbourse.market.offers import likely_reward
from fedbourse.market.task import State
from fedbourse.privacy.loss import PrivacyLoss
from fedbourse.units import MICRO_CREDITS_PER_CREDIT
from fedbourse.web.paths import TASK, TaskId
from fedbourse.wire.incentives import incentive

if TYPE_CHECKING:
    from fedbourse.dashboard.visits import PageVisit
    from fedbourse.market.task import ExitReason, Task
    from fedbourse.market.view import View

router = APIRouter()
Owner = Annotated[KnownPageVisit, Depends(signed_in("owner"))]
Before = Annotated[str, Query(pattern=f"^$|{TASK}")]
ROWS = 20


@router.get("/tasks/{task}/earn")
def earn_page(visit: PageVisitor, task: TaskId) -> Response:
    """Show what a budget would earn; the owner's value and cap never leave the browser."""

    def read(view: View) -> dict[str, Any]:
        found, document = view.task(task), view.task_document(task)
        return {
            "task": document,
            "card": found.card,
            "offer": _offer(found, document),
            "incentive": incentive(found.card),
        }

    return page(visit, "earn.html", table=epsilon_table(), **visit.read(read))


def _offer(task: Task, document: dict[str, Any]) -> dict[str, Any]:
    """Return what everybody knows of the reward and of what others sell."""
    card, assumed = task.card, task.card.assumptions
    reward = None if isinstance(card.reward, str) else float(card.reward)
    if task.reward is not None:
        reward = task.reward / MICRO_CREDITS_PER_CREDIT
    owners = max(2, int(document["interested"] or 0))
    return {
        "reward": reward,
        "tried": likely_reward(card, owners) if reward is None else reward,
        "total": task.total_budget,
        "owners": owners,
        "low": None if assumed is None else assumed.values_low,
        "high": None if assumed is None else assumed.values_high,
        "example": 1.0 if assumed is None else (assumed.values_low + assumed.values_high) / 2,
        "taken": task.state in (State.OPEN, State.ANNOUNCED),
    }


@router.get("/own")
def own_page(visit: Owner, before: Before = "") -> Response:
    """List the caller's tasks with pay and spend."""

    def read(view: View) -> dict[str, Any]:
        found = view.own_tasks(before=before or None, limit=ROWS + 1)
        parts = [own_part(view, task) for task in found[:ROWS]]
        rows = [part for part in parts if part is not None]
        loss = PrivacyLoss.composed((part["spent"], part["samples"]) for part in rows)
        return {
            "rows": rows,
            "older": found[ROWS - 1].id if len(found) > ROWS else None,
            "balance": view.balance(),
            "earned": view.earned(),
            "payouts": view.payouts(visit.caller.party, limit=PAYOUT_ROWS),
            "loss": loss,
        }

    return page(visit, "own.html", before=before, **visit.read(read))


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
    mine = view.mine(task.id)
    gone = mine["exit"]
    if mine["interest"] is None and gone is None:
        return None
    line, plan, rounds = mine["line"], mine["plan"], task.card.rounds
    answered = line["answered"] if line else 0
    budget = line["budget"] if line else None
    return {
        "task": task.id,
        "goal": task.card.goal,
        "state": task.state.value,
        "ended": task.state in ENDED,
        "rounds": rounds,
        "samples": task.card.samples,
        "interest": mine["interest"],
        "exit": gone,
        "may_withdraw": gone is None and (task.state, Command.WITHDRAW) in LIFE,
        "plan": plan["budget"] if plan else None,
        "line": line,
        "budget": budget,
        "answered": answered,
        "spent": 0.0 if budget is None else budget * answered / rounds,
        "erased": line is not None and budget is None,
        "words": _EXIT_WORDS[gone["reason"]] if gone else _words(task, line, plan),
        "reason": _EXIT_REASONS[gone["reason"]].format(tick=gone["tick"]) if gone else "",
    }


def _words(task: Task, line: dict[str, Any] | None, plan: dict[str, Any] | None) -> str:
    """Say where an owner stands in a task."""
    if line is not None:
        ended = "took part" if task.state is State.COMPLETED else "takes part"
        signed = "took part until it was cancelled" if task.state is State.CANCELLED else ended
        return {
            "offered": "terms offered, not signed",
            "signed": signed,
            "declined": "terms declined",
        }[line["state"]]
    if task.state is State.ANNOUNCED:
        return "no plan yet" if plan is None else "planned"
    if task.state is State.OPEN:
        return "interested"
    return "sold nothing"


def owner_part(visit: PageVisit, view: View, task: Task) -> dict[str, Any]:
    """Return what the page of a task shows an owner of its own part."""
    caller = visit.caller
    if caller is None or "owner" not in caller.scopes:
        return {"own": None}
    return {"own": own_part(view, task)}
