"""What evidence found in a task that has ended; before training, what it will be able to tell."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from fedbourse.dashboard.page_context import AuthenticatedPageContext, SignedIn
from fedbourse.dashboard.pages import page
from fedbourse.errors import Conflict, NotFound
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.records import State, Task
from fedbourse.market.views import View
from fedbourse.web.paths import TaskId

router = APIRouter()
FINDINGS_SHOWN = 200
_BEFORE_TRAINING = (State.DRAFT, State.OPEN, State.ANNOUNCED, State.SETTLED)
_VERDICTS = {
    "shown": "follow the reference",
    "undecided": "too little to tell",
    "dismissed": "do not follow it",
}


@router.get("/tasks/{task}/evidence")
def evidence_page(context: SignedIn, task: TaskId) -> Response:
    """Show what evidence found, as far as it is the visitor's to know."""
    with context.at_length():
        values = context.read(lambda view: _values(context, view, task))
    return page(context, "evidence.html", verdicts=_VERDICTS, most=FINDINGS_SHOWN, **values)


def _values(context: AuthenticatedPageContext, view: View, task_id: str) -> dict[str, Any]:
    task = view.task(task_id)
    if task.card.evidence is None:
        raise NotFound(f"the card of task {task.id} has no evidence")
    is_buyer = context.caller.party == task.buyer
    values: dict[str, Any] = {"task": task, "is_buyer": is_buyer, "sees_all": view.sees_all}
    values |= {"report": None, "outlook": None, "refusal": ""}
    if task.state in ENDED:
        return values | {"report": view.evidence(task.id, limit=FINDINGS_SHOWN)}
    if task.state in _BEFORE_TRAINING and (is_buyer or context.may("operator")):
        try:
            return values | {"outlook": view.evidence_outlook(task.id)}
        except Conflict as error:  # the reference is still to come
            return values | {"refusal": str(error)}
    return values


def evidence_link(view: View, task: Task) -> str:
    """Return what a link to the page of evidence says to this visitor; empty for no link."""
    caller = view.caller
    if caller is None or task.card.evidence is None:
        return ""
    if task.state in _BEFORE_TRAINING:
        return "What evidence can tell" if caller.party == task.buyer else ""
    if task.state not in ENDED:
        return ""
    took_part = caller.party == task.buyer or any(
        each.trained for each in view.allocations(task.id)
    )
    return "What evidence found" if took_part or view.sees_all else ""
