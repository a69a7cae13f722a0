"""The steps of a task that its buyer takes: what each would do, shown first, and then done.

What may happen when is said by ``market.lifecycle`` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.dashboard.forms import InvalidForm
from fedbourse.dashboard.pages import page, redirect
from fedbourse.dashboard.step_commands import STEPS, Confirm
from fedbourse.dashboard.visits import KnownPageVisit, signed_in
from fedbourse.errors import Conflict, FedbourseError, NotAllowed, NotFound
from fedbourse.market import documents
from fedbourse.market.buying import take_as_shown
from fedbourse.market.lifecycle import after
from fedbourse.market.service import role_of
from fedbourse.market.task import State
from fedbourse.web.paths import TaskId  # noqa: TC001 - as above
from fedbourse.wire.incentives import incentive

if TYPE_CHECKING:
    from fedbourse.dashboard.visits import PageVisit
    from fedbourse.market.task import Task
    from fedbourse.market.view import View

router = APIRouter()
Stepper = Annotated[KnownPageVisit, Depends(signed_in("buyer", "operator"))]
StepName = Literal["open", "announce", "train", "cancel"]


@router.get("/tasks/{task}/steps/{step}")
def step_page(visit: Stepper, task: TaskId, step: StepName) -> Response:
    """Say what a step would do, and which money it would move."""
    return _step_page(visit, task, step)


@router.post("/tasks/{task}/steps/{step}")
def take_step(visit: Stepper, task: TaskId, step: StepName) -> Response:
    """Take a step, if it takes no more money than the page said."""
    try:
        form = visit.form(Confirm)
    except InvalidForm as wrong:
        return _step_page(visit, task, step, wrong=wrong, status=422)

    try:
        visit.write(
            lambda unit, caller: documents.task_document(
                take_as_shown(
                    unit,
                    caller,
                    task,
                    lambda: STEPS[step].take(visit.market, unit, caller, task, form),
                    shown_micro=form.shown_micro,
                )
            )
        )
    except FedbourseError as error:
        if error.http_status >= 500 or isinstance(error, (NotAllowed, NotFound)):
            raise
        return _step_page(visit, task, step, error=str(error), status=error.http_status)
    return redirect(f"/tasks/{task}")


def _step_page(
    visit: KnownPageVisit,
    task_id: str,
    step: str,
    *,
    error: str = "",
    wrong: InvalidForm | None = None,
    status: int = 200,
) -> Response:
    with visit.at_length():
        task, seen = visit.read(
            lambda view: (view.task(task_id), view.preview(task_id, STEPS[step].command))
        )
    errors = {} if wrong is None else wrong.errors
    if wrong is not None and set(errors) != {"reason"}:
        error = str(wrong)
    if step == "open" and task.card.vesting == "upfront" and error:
        errors = errors | {"confirm_upfront": "confirm this to publish the task"}
    return page(
        visit,
        "step.html",
        status=status,
        task=task,
        card=task.card,
        step=step,
        action=STEPS[step],
        preview=seen,
        fund=visit.market.fund if task.state is State.DRAFT else _pinned_fund(visit, task),
        incentive=incentive(task.card),
        error=error,
        errors=errors,
        values={} if wrong is None else wrong.values,
        is_buyer=visit.caller.party == task.buyer,
    )


def _pinned_fund(visit: KnownPageVisit, task: Task) -> dict[str, str]:
    shown: dict[str, str] = visit.read(lambda view: view.card(task.id)["fund"])
    return shown


def steps_part(visit: PageVisit, view: View, task: Task) -> dict[str, Any]:
    """Return, for the page of a task, the steps that the visitor may take, and why not others."""
    caller = visit.caller
    if caller is None or not caller.scopes & {"buyer", "operator"}:
        return {"steps": []}
    try:
        role = role_of(caller, task)
    except NotAllowed:
        return {"steps": []}
    if role not in ("buyer", "operator"):
        return {"steps": []}
    waiting, found = view.waited_for(task), []
    for name, step in STEPS.items():
        try:
            after(task.state, step.command, by=role)
            why = _unsigned(waiting) if name == "train" else ""
        except (Conflict, NotAllowed) as error:
            why = str(error)
        found.append({"name": name, "label": step.label, "why": why})
    if role == "operator" and all(step["why"] for step in found):
        return {"steps": []}
    return {"steps": found, "waiting": waiting}


def _unsigned(counts: dict[str, int]) -> str:
    """Say why training cannot start yet; nothing where all have signed."""
    waiting = counts["offered"] + counts["declined"]
    if not waiting:
        return ""
    who = "1 owner has" if waiting == 1 else f"{waiting} owners have"
    return f"training needs the signatures of all; {who} not signed"
