"""The steps of a task that its buyer takes: what each would do, shown first, and then done.

What a step would move is found by taking it in a transaction that is undone: the page and the step
cannot disagree. What may happen when is said by ``market.lifecycle`` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.dashboard.forms import Form, InvalidForm
from fedbourse.dashboard.pages import page, redirect
from fedbourse.dashboard.visits import KnownPageVisit, signed_in
from fedbourse.errors import Conflict, FedbourseError, NotAllowed, NotFound
from fedbourse.market import buying, training, views
from fedbourse.market.accounts import visible_escrow
from fedbourse.market.lifecycle import Command, after
from fedbourse.market.service import escrow, role_of, show
from fedbourse.market.task import State
from fedbourse.units import credits_text
from fedbourse.web.paths import TaskId  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.dashboard.visits import PageVisit
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task

router = APIRouter()
Stepper = Annotated[KnownPageVisit, Depends(signed_in("buyer", "operator"))]
StepName = Literal["open", "announce", "train", "cancel"]
_REASON_MAX = 400


@dataclass(frozen=True)
class Step:
    """Something that a buyer does to a task."""

    command: Command
    label: str
    confirm: str
    take: Callable[[Market, Unit, Caller, str], Task]


STEPS: dict[str, Step] = {
    "open": Step(Command.OPEN, "Publish it", "Publish the task", buying.open_task),
    "announce": Step(
        Command.ANNOUNCE, "Announce the reward", "Hold the reward and announce it", buying.announce
    ),
    "train": Step(Command.TRAIN, "Start training", "Start training", training.start),
    "cancel": Step(Command.CANCEL, "Cancel the task", "Cancel the task", buying.cancel),
}


@dataclass(frozen=True)
class Move:
    """Money on its way."""

    source: str
    target: str
    micro: int


@dataclass(frozen=True)
class Preview:
    """What a step would do."""

    refusal: str = ""
    """Why it cannot be taken now; empty where it can."""
    moves: tuple[Move, ...] = ()
    balance: int = 0
    balance_after: int = 0
    escrow: int = 0
    escrow_after: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    """What the log would say of it."""

    @property
    def taken(self) -> int:
        """What would leave the buyer's account."""
        return max(0, self.balance - self.balance_after)


class Confirm(Form):
    """That a step was looked at, and is wanted."""

    shown_micro: Annotated[int, Field(ge=0)]
    """What the page said would leave the account."""
    reason: Annotated[str, Field(max_length=_REASON_MAX)] = ""


class _UndoneError(Exception):
    """Ends a transaction that only tried something out."""


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
        if step == "cancel":
            done = buying.cancel(visit.market, unit, caller, task, reason=form.reason)
        else:
            done = STEPS[step].take(visit.market, unit, caller, task)
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
    task, found = preview(visit, task_id, step)
    errors = {} if wrong is None else wrong.errors
    if wrong is not None and set(errors) != {"reason"}:
        error = str(wrong)
    return page(
        visit,
        "step.html",
        status=status,
        task=task,
        card=task.card,
        step=step,
        known=STEPS[step],
        found=found,
        error=error,
        errors=errors,
        values={} if wrong is None else wrong.values,
        is_buyer=visit.caller.party == task.buyer,
    )


def preview(visit: KnownPageVisit, task_id: str, step: str) -> tuple[Task, Preview]:
    """Take a step, look at what it did, and undo it."""
    known, market, caller = STEPS[step], visit.market, visit.caller
    found = Preview()
    with visit.service.store.begin() as unit:
        task = show(unit.task(task_id, lock="change"), caller)
        role_of(caller, task)
        held, kept = int(unit.balance(task.buyer)), int(visible_escrow(unit, caller, task))
        hidden = kept - int(unit.balance(escrow(task.id)))
        try:
            with unit.savepoint():
                known.take(market, unit, caller, task.id)
                found = _difference(unit, task, held, kept, hidden)
                raise _UndoneError
        except _UndoneError:
            pass
        except NotAllowed:
            raise
        except FedbourseError as error:
            if error.http_status >= 500:
                raise
            found = Preview(
                refusal=str(error), balance=held, balance_after=held, escrow=kept, escrow_after=kept
            )
    return task, found


def _difference(unit: Unit, task: Task, held: int, kept: int, hidden: int) -> Preview:
    """Return what a step that was just taken has moved.

    What the open round's answers have earned is hidden: a cancellation, which alone can be taken
    then, is shown as if it gave that back as well.
    """
    held_after = int(unit.balance(task.buyer)) + hidden
    kept_after = int(unit.balance(escrow(task.id)))
    to_owners = (held - held_after) + (kept - kept_after)
    moves = (
        Move("account", "escrow", held - held_after),
        Move("escrow", "owners", to_owners),
        Move("escrow", "account", held_after - held),
    )
    facts: dict[str, Any] = {}
    for event in unit.events(task.id, after=task.last_sequence, limit=10):
        facts |= event.body
    if hidden:
        facts["refunded_micro"] += hidden
    return Preview(
        moves=tuple(move for move in moves if move.micro > 0),
        balance=held,
        balance_after=held_after,
        escrow=kept,
        escrow_after=kept_after,
        facts=facts,
    )


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
            why = ""
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
        return {"planned": unit.count_replies(task.id, task.tick)}
    if task.state is State.SETTLED:
        return {
            "offered": unit.count_lines(task.id, state="offered"),
            "signed": unit.count_lines(task.id, state="signed"),
            "declined": unit.count_lines(task.id, state="declined"),
        }
    return {}
