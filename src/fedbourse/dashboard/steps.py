"""The steps of a task that its buyer takes: what each would do, shown first, and then done.

What may happen when is said by ``market.lifecycle`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.responses import Response

from fedbourse.dashboard.forms import Form, InvalidForm
from fedbourse.dashboard.page_context import AuthenticatedPageContext, signed_in
from fedbourse.dashboard.pages import page, redirect
from fedbourse.errors import Conflict, FedbourseError, NotAllowed, NotFound
from fedbourse.market import documents
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import training as training_commands
from fedbourse.market.evidence_outlook import EvidenceOutlook
from fedbourse.market.lifecycle import Command, after
from fedbourse.market.previews import Preview
from fedbourse.market.records import State, Task
from fedbourse.market.service import role_of
from fedbourse.market.views import View
from fedbourse.tasks.incentives import incentive
from fedbourse.web.paths import TaskId

router = APIRouter()
Stepper = Annotated[AuthenticatedPageContext, Depends(signed_in("buyer", "operator"))]
StepName = Literal["open", "announce", "train", "cancel"]
_REASON_MAX = 400


class Confirm(Form):
    """That a step was looked at, and is wanted."""

    shown_micro: Annotated[int, Field(ge=0)]
    """What the page said would leave the account."""
    reason: Annotated[str, Field(max_length=_REASON_MAX)] = ""
    confirm_upfront: bool = False
    """That all of the reward is paid before round 0, whoever then delivers."""


@dataclass(frozen=True)
class Step:
    """Something that a buyer does to a task."""

    command: Command
    label: str
    confirm: str
    take: Callable[..., Task]
    options: tuple[str, ...] = ()
    """The fields of ``Confirm`` that it takes."""


STEPS: dict[str, Step] = {
    "open": Step(
        Command.OPEN,
        "Publish it",
        "Reserve the reward and publish the task",
        buyer_commands.open_task,
        ("confirm_upfront",),
    ),
    "announce": Step(
        Command.ANNOUNCE, "Announce the reward", "Announce the reward", buyer_commands.announce
    ),
    "train": Step(Command.TRAIN, "Start training", "Start training", training_commands.start),
    "cancel": Step(
        Command.CANCEL, "Cancel the task", "Cancel the task", buyer_commands.cancel, ("reason",)
    ),
}


@router.get("/tasks/{task}/steps/{step}")
def step_page(context: Stepper, task: TaskId, step: StepName) -> Response:
    """Say what a step would do, and which money it would move."""
    return _step_page(context, task, step)


@router.post("/tasks/{task}/steps/{step}")
def take_step(context: Stepper, task: TaskId, step: StepName) -> Response:
    """Take a step, if it takes no more money than the page said."""
    try:
        form = context.form(Confirm)
    except InvalidForm as wrong:
        return _step_page(context, task, step, wrong=wrong, status=422)
    options = {name: getattr(form, name) for name in STEPS[step].options}
    try:
        context.write(
            lambda tx, caller: documents.task_document(
                buyer_commands.take_as_shown(
                    tx,
                    caller,
                    task,
                    lambda: STEPS[step].take(context.market, tx, caller, task, **options),
                    shown_micro=form.shown_micro,
                )
            )
        )
    except FedbourseError as error:
        if error.http_status >= 500 or isinstance(error, (NotAllowed, NotFound)):
            raise
        return _step_page(context, task, step, error=str(error), status=error.http_status)
    return redirect(f"/tasks/{task}")


def _step_page(
    context: AuthenticatedPageContext,
    task_id: str,
    step: str,
    *,
    error: str = "",
    wrong: InvalidForm | None = None,
    status: int = 200,
) -> Response:
    def read(view: View) -> tuple[Task, Preview, EvidenceOutlook | None]:
        task, preview = view.task(task_id), view.preview(task_id, STEPS[step].command)
        tells = task.card.evidence is not None and step in ("open", "train") and not preview.refusal
        return task, preview, view.evidence_outlook(task_id) if tells else None

    with context.at_length():
        task, preview, outlook = context.read(read)
    errors = {} if wrong is None else wrong.errors
    if wrong is not None and set(errors) != {"reason"}:
        error = str(wrong)
    if step == "open" and task.card.vesting == "upfront" and error:
        errors = errors | {"confirm_upfront": "confirm this to publish the task"}
    return page(
        context,
        "step.html",
        status=status,
        task=task,
        card=task.card,
        step=step,
        action=STEPS[step],
        preview=preview,
        outlook=outlook,
        fund=context.market.fund if task.state is State.DRAFT else _pinned_fund(context, task),
        incentive=incentive(task.card),
        error=error,
        errors=errors,
        values={} if wrong is None else wrong.values,
        is_buyer=context.caller.party == task.buyer,
    )


def _pinned_fund(context: AuthenticatedPageContext, task: Task) -> Mapping[str, str]:
    return context.read(lambda view: view.card(task.id).fund)


def steps_part(view: View, task: Task) -> dict[str, Any]:
    """Return, for the page of a task, the steps that the visitor may take, and why not others."""
    caller = view.caller
    if caller is None or not caller.scopes & {"buyer", "operator"}:
        return {"steps": []}
    try:
        role = role_of(caller, task)
    except NotAllowed:
        return {"steps": []}
    if role not in ("buyer", "operator"):
        return {"steps": []}
    waiting, steps = view.waited_for(task), []
    for name, step in STEPS.items():
        try:
            after(task.state, step.command, by=role)
            why = _unsigned(waiting) if name == "train" else ""
        except (Conflict, NotAllowed) as error:
            why = str(error)
        steps.append({"name": name, "label": step.label, "why": why})
    if role == "operator" and all(step["why"] for step in steps):
        return {"steps": []}
    return {"steps": steps, "waiting": waiting}


def _unsigned(counts: dict[str, int]) -> str:
    """Say why training cannot start yet; nothing where all have signed."""
    waiting = counts["offered"] + counts["declined"]
    if not waiting:
        return ""
    who = "1 owner has" if waiting == 1 else f"{waiting} owners have"
    return f"training needs the signatures of all; {who} not signed"
