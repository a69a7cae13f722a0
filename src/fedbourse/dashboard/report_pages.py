"""The report of a trade that this market carried out, as the document that ``report`` lays out.

It has the shape of ``market.report.trade_report``. Everybody gets what the public log says; an
owner its own allocation too, and auditors and the operator everything. What the market does not
know, or the reader may not, is None, and ``unknown`` says so in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from fastapi import APIRouter
from markupsafe import Markup
from starlette.responses import Response

from fedbourse.dashboard.page_context import PageContext, PageContextDep
from fedbourse.dashboard.pages import page
from fedbourse.errors import Conflict
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.log_summary import LogSummary
from fedbourse.market.offers import predicted_accuracy
from fedbourse.market.records import Allocation, Task
from fedbourse.market.service import escrow
from fedbourse.market.views import View
from fedbourse.privacy.zcdp import DELTA, whole_owner
from fedbourse.report import trade_body
from fedbourse.version import __version__
from fedbourse.web.paths import TaskId

router = APIRouter()
OWNERS_SHOWN = 200
_TRANSFERS_SHOWN = 20
_NO_ACCURACY = (
    "How accurate the model is: the buyer evaluates it on records of its own, which the market "
    "never sees, and owners report no such number, for that would be unpaid privacy."
)
_NO_VALUES = (
    "What privacy is worth to each owner, unless it chose to tell, and how much of its lifetime "
    "cap it used: both stay on its device."
)
_NO_ALLOCATIONS = (
    "Who took part, and what each sold and was paid: only an owner itself, auditors and the "
    "operator see that."
)
Document = dict[str, Any]


@router.get("/tasks/{task}/report")
def report_page(context: PageContextDep, task: TaskId) -> Response:
    """Show what a trade brought, paid and cost, as far as the reader may know it."""
    record, more = context.read(lambda view: (reported_task(view, task), sees_more(view, task)))
    body = _own_body(context, record) if more else _public_body(context, record)
    return page(context, "report.html", task=record, body=body)


def _own_body(context: PageContext, task: Task) -> Markup:
    with context.at_length():
        return trade_body(context.read(lambda view: served_report(view, task.id)))


def _public_body(context: PageContext, task: Task) -> Markup:
    """Return the report that everybody may see; it is made once, for a stranger."""
    cached = context.service.reports.find(task)
    if cached is not None:
        return Markup(cached)
    with context.at_length(), context.service.view(None) as view:
        body = trade_body(served_report(view, task.id))
    context.service.reports.keep(task, body)
    return body


def reported_task(view: View, task_id: str) -> Task:
    """Return a task that has a report: it was trained and has ended."""
    task, log = view.task(task_id), view.log(task_id)
    if task.state not in ENDED or log.signed is None or log.settlement is None:
        raise Conflict(
            f"a report needs a trade that was trained and has ended; this task is {task.state}"
        )
    return task


def sees_more(view: View, task_id: str) -> bool:
    """Say whether the reader may see more of a trade than everybody: its own allocation, or all."""
    return view.sees_all or bool(view.allocations(task_id))


def served_report(view: View, task_id: str) -> Document:
    """Return what happened in a task that has ended, as far as the reader may know it."""
    task, log = reported_task(view, task_id), view.log(task_id)
    assert log.signed is not None
    assert log.settlement is not None
    trained = [each for each in view.allocations(task.id) if each.trained]
    shown = [_owner(task, each) for each in trained[:OWNERS_SHOWN]]
    budgets = [owner["budget"] for owner in shown if owner["budget"] is not None]
    return {
        "version": __version__,
        "origin": {
            "task": task.id,
            "buyer": task.buyer,
            "ended": task.state.value,
            "log": f"{task.last_sequence + 1} events, the last with the hash {task.last_hash}",
        },
        "card": asdict(task.card) | {"digest": task.card.digest},
        "interested": task.interested,
        "participants": log.signed,
        "declined": [_struck_out(log.struck_out)] if log.struck_out else [],
        "out": log.out_counts,
        "restarts": log.restarts,
        "reward_method": log.offers[0]["method"],
        "accuracy_value": None,
        "settlement": log.settlement.words,
        "regret": None,
        "announcements": [each["total_budget"] for each in log.offers],
        "total_budget": log.settlement.total_budget,
        "delta": DELTA,
        "whole_owner_budget": whole_owner(max(budgets), samples=task.card.samples)
        if budgets and view.sees_all
        else None,
        "owners": shown or None,
        "owners_left_out": max(0, len(trained) - OWNERS_SHOWN),
        "owners_hidden": log.signed - len(trained) if shown else 0,
        "rounds": [vars(each) for each in view.closed_rounds(task.id)],
        "accuracy": _accuracy(task, trained if view.sees_all else ()),
        "money": _money(view, task, log),
        "transfers": _transfers(view, task) if view.sees_all else None,
        "unknown": [_NO_ACCURACY, _NO_VALUES, *([] if shown else [_NO_ALLOCATIONS])],
    }


def _owner(task: Task, allocation: Allocation) -> Document:
    budget = allocation.budget
    spent = None if budget is None else budget * allocation.delivered / task.card.rounds
    terms = None if budget is None else task.card.privacy_terms(task=task.id, budget=budget)
    return {
        "owner": allocation.owner,
        "budget": budget,
        "noise_scale": None if terms is None else terms.scale,
        "payment_micro": allocation.payment,
        "delivered": allocation.delivered,
        "earned_micro": allocation.earned,
        "spent": spent,
        "lifetime_cap": None,
        "cap_share": None,
    }


def _accuracy(task: Task, trained: Sequence[Allocation]) -> Document:
    """Return what the models predict, to those who may see every budget that this follows from."""
    assumed = task.card.assumptions
    budgets = np.array([each.budget or np.nan for each in trained])
    predicted = {}
    if assumed is not None and len(budgets) and not np.isnan(budgets).any():
        places = np.arange(len(budgets), dtype=np.int64)
        predicted = predicted_accuracy(task.card, budgets, places, interested=task.interested)
    return {
        "measured": None,
        "chance": None if assumed is None else assumed.chance,
        "ceiling": None if assumed is None else assumed.ceiling,
        "validation_records": None,
        "predicted": predicted,
        "references": {},
    }


def _money(view: View, task: Task, log: LogSummary) -> Document:
    """Return where the reward went, all of which the public log says."""
    reward = task.reward or 0
    held = view.escrow_in_the_end(task)
    return {
        "reward_micro": reward,
        "payments_micro": reward,
        "released_micro": log.released_micro,
        "earned_micro": reward - log.refunded_micro - log.fund_micro - held,
        "refunded_micro": log.refunded_micro,
        "fund_micro": log.fund_micro,
        "escrow_micro": held,
        "transfers": view.count_payments(task),
    }


def _transfers(view: View, task: Task) -> list[Document]:
    entries = view.statement(escrow(task.id), after=0, limit=_TRANSFERS_SHOWN)
    return [vars(entry) for entry in entries]


def _struck_out(count: int) -> str:
    who = "one owner" if count == 1 else f"{count} owners"
    return f"{who} did not sign the terms; the price was discovered again without them"
