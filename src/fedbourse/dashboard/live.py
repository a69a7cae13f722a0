"""Training as it happens: rounds, updates of devices, money that leaves escrow, the model.

The market knows no records of the buyer's: how good the model is, a buyer's browser finds out by
itself, from records that never leave it and the model of the open round, which is its buyer's.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from fedbourse.dashboard.page_context import AuthenticatedPageContext, PageContextDep, signed_in
from fedbourse.dashboard.pages import HEADERS, page
from fedbourse.market import documents
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.offers import accuracy_of, training_of
from fedbourse.market.records import State, Task
from fedbourse.market.views import View
from fedbourse.web.paths import TaskId

router = APIRouter()
Buyer = Annotated[AuthenticatedPageContext, Depends(signed_in("buyer"))]
ROUNDS_SHOWN = 2000
"""Of more rounds than this the last ones are drawn."""
ROUNDS_LISTED = 30


def live_of(view: View, task: Task) -> dict[str, Any]:
    """Return what may be known of a task's training by now."""
    log, caller = view.log(task.id), view.caller
    signed = log.signed
    sold = None if log.settlement is None else log.settlement.total_budget
    rounds = [
        {
            "round": each.number,
            "updates": each.updates,
            "void": each.updates < task.card.min_participants,
        }
        for each in view.closed_rounds(task.id, last=ROUNDS_SHOWN)
    ]
    return {
        "state": task.state.value,
        "streams": task.state not in ENDED and task.state is not State.DRAFT,
        "after": task.last_sequence,
        "began": signed is not None,
        "signed": signed or 0,
        "first": rounds[0]["round"] if rounds else 0,
        "updates": [each["updates"] for each in rounds],
        "void": [each["round"] for each in rounds if each["void"]],
        "listed": rounds[-ROUNDS_LISTED:],
        "closed": rounds[-1]["round"] + 1 if rounds else 0,
        "missed": sum((signed or 0) - each["updates"] for each in rounds),
        "money": view.money(task),
        "can_evaluate": caller is not None
        and caller.party == task.buyer
        and "buyer" in caller.scopes,
        "predicted": _predicted(task, sold),
    }


@router.get("/tasks/{task}/live")
def live_figures(context: PageContextDep, task: TaskId) -> Response:
    """Return the numbers of a training as they are now, as a part of the task's page."""

    def read(view: View) -> dict[str, Any]:
        record = view.task(task)
        return {"task": documents.task_document(record), "live": live_of(view, record)}

    return page(context, "_live_now.html", **context.read(read))


@router.get("/tasks/{task}/open-model")
def open_model(context: Buyer, task: TaskId) -> Response:
    """Return the newest model to the task's buyer, and how many rounds made it."""
    newest = context.read(lambda view: view.newest_model(task))
    headers = HEADERS | {"Fedbourse-Round": str(newest.number)}
    return Response(newest.model, media_type="application/octet-stream", headers=headers)


def _predicted(task: Task, sold: float | None) -> float | None:
    """Return the accuracy that the budgets sold buy, where updates are aggregated by precision."""
    assumed = task.card.assumptions
    if sold is None or assumed is None or assumed.accuracy != "precision":
        return None
    import numpy as np

    factor = training_of(task.card).noise_factor
    return accuracy_of(task.card).of(np.array([sold / factor]), 1)
