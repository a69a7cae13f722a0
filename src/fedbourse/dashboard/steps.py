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
from fedbourse.market import views
from fedbourse.market.lifecycle import after
from fedbourse.market.previews import Preview, preview
from fedbourse.market.service import role_of, show
from fedbourse.market.task import State
from fedbourse.units import credits_text
from fedbourse.web.paths import TaskId  # noqa: TC001 - as above
from fedbourse.wire.incentives import incentive

if TYPE_CHECKING:
    from fedbourse.dashboard.visits import PageVisit
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.task import Task

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

    def command(unit: Unit, caller: Caller) -> object:
        buyer = unit.task(task).buyer
        before = unit.balance(buyer)
        done = STEPS[step].take(visit.market, unit, caller, task, form)
        taken = before - unit.balance(buyer)
        if taken > form.shown_micro:
            raise Conflict(
                f"this would by now take {credits_text(taken)} credits, more than the page said; "
                "look at the new numbers"
            )
        return views.task_document(done)

    try:
        visit.write(command)
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
    visit.computes()

    def look(unit: Unit, caller: Caller) -> tuple[Task, Preview]:
        task = show(unit.task(task_id), caller)
        return task, preview(unit, caller, task, STEPS[step].command)

    task, seen = visit.read(look)
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
    shown: dict[str, str] = visit.read(
        lambda unit, caller: views.published_card(visit.market, unit, caller, task.id)["fund"]
    )
    return shown


def steps_part(visit: PageVisit, unit: Unit, task: Task) -> dict[str, Any]:
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
    found = []
    for name, step in STEPS.items():
        try:
            after(task.state, step.command, by=role)
            why = _unsigned(unit, task) if name == "train" else ""
        except (Conflict, NotAllowed) as error:
            why = str(error)
        found.append({"name": name, "label": step.label, "why": why})
    if role == "operator" and all(step["why"] for step in found):
        return {"steps": []}
    return {"steps": found, "waiting": _waiting(unit, task)}


def _waiting(unit: Unit, task: Task) -> dict[str, int]:
    """Return how many owners the next step waits for."""
    if task.state is State.OPEN:
        return {"interested": unit.count_interests(task.id)}
    if task.state is State.ANNOUNCED:
        return {"replies": unit.count_replies(task.id, task.tick), "asked": task.asked}
    if task.state is State.SETTLED:
        return {
            "offered": unit.count_lines(task.id, state="offered"),
            "signed": unit.count_lines(task.id, state="signed"),
            "declined": unit.count_lines(task.id, state="declined"),
        }
    return {}


def _unsigned(unit: Unit, task: Task) -> str:
    """Say why training cannot start yet; nothing where all have signed."""
    waiting = unit.count_lines(task.id) - unit.count_lines(task.id, state="signed")
    if not waiting:
        return ""
    who = "1 owner has" if waiting == 1 else f"{waiting} owners have"
    return f"training needs the signatures of all; {who} not signed"
