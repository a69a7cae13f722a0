"""Training as it happens: rounds, devices that answered, money that leaves escrow, the model.

The market knows no records of the buyer's: how good the model is, a buyer's browser finds out by
itself, from records that never leave it and the model of the open round, which is its buyer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from fedbourse.dashboard.pages import HEADERS, page
from fedbourse.dashboard.visits import KnownPageVisit, PageVisitor, signed_in
from fedbourse.market import documents
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.offers import accuracy_of, training_of
from fedbourse.market.task import State
from fedbourse.web.paths import TaskId  # noqa: TC001 - FastAPI reads it

if TYPE_CHECKING:
    from fedbourse.dashboard.visits import PageVisit
    from fedbourse.market.task import Task
    from fedbourse.market.view import View

router = APIRouter()
Buyer = Annotated[KnownPageVisit, Depends(signed_in("buyer"))]
ROUNDS_SHOWN = 2000
"""Of more rounds than this the last ones are drawn."""
ROUNDS_LISTED = 30


def live_part(visit: PageVisit, view: View, task: Task) -> dict[str, Any]:
    """Return what the page of a task shows of its training."""
    return {"live": live_of(view, task)}


def live_of(view: View, task: Task) -> dict[str, Any]:
    """Return what may be known of a task's training by now."""
    log, caller = view.log(task.id), view.caller
    signed = log.signed
    sold = None if log.settlement is None else log.settlement.total_budget
    rounds = [
        {
            "round": each.number,
            "answers": each.answers,
            "void": each.answers < task.card.min_participants,
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
        "answers": [each["answers"] for each in rounds],
        "void": [each["round"] for each in rounds if each["void"]],
        "listed": rounds[-ROUNDS_LISTED:],
        "closed": rounds[-1]["round"] + 1 if rounds else 0,
        "missed": sum((signed or 0) - each["answers"] for each in rounds),
        "money": view.money(task),
        "judges": caller is not None and caller.party == task.buyer and "buyer" in caller.scopes,
        "predicted": _predicted(task, sold),
    }


@router.get("/tasks/{task}/live")
def live_figures(visit: PageVisitor, task: TaskId) -> Response:
    """Return the numbers of a training as they are now, as a part of the task's page."""

    def read(view: View) -> dict[str, Any]:
        found = view.task(task)
        return {"task": documents.task_document(found), "live": live_of(view, found)}

    return page(visit, "_live_now.html", **visit.read(read))


@router.get("/tasks/{task}/open-model")
def open_model(visit: Buyer, task: TaskId) -> Response:
    """Return the newest model to the task's buyer, and how many rounds made it."""
    found = visit.read(lambda view: view.newest_model(task))
    headers = HEADERS | {"Fedbourse-Round": str(found.number)}
    return Response(found.model, media_type="application/octet-stream", headers=headers)


def _predicted(task: Task, sold: float | None) -> float | None:
    """Return the accuracy that the budgets sold buy, where weights go by precision."""
    said = task.card.assumptions
    if sold is None or said is None or said.accuracy != "precision":
        return None
    import numpy as np

    factor = training_of(task.card).noise_factor
    return accuracy_of(task.card).of(np.array([sold / factor]), 1)
