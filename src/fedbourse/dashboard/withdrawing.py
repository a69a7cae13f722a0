"""An owner steps back from a task before it is settled: what that means, shown first, then done."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.dashboard.forms import Form
from fedbourse.dashboard.owner_pages import Owner, own_part
from fedbourse.dashboard.pages import page, redirect
from fedbourse.errors import Conflict, NotFound
from fedbourse.market import selling
from fedbourse.web.paths import TaskId  # noqa: TC001 - as above

if TYPE_CHECKING:
    from fedbourse.market.view import View

router = APIRouter()


class Confirmed(Form):
    """That an owner has read what it means."""


@router.get("/tasks/{task}/withdraw")
def withdraw_page(visit: Owner, task: TaskId) -> Response:
    """Say what it means to withdraw, and ask."""
    return _page(visit, task)


@router.post("/tasks/{task}/withdraw")
def withdraw(visit: Owner, task: TaskId) -> Response:
    """Withdraw, or say why that cannot be any more."""
    visit.form(Confirmed)
    try:
        visit.write(lambda unit, caller: asdict(selling.withdraw(visit.market, unit, caller, task)))
    except Conflict as error:
        return _page(visit, task, error=str(error), status=error.http_status)
    return redirect(f"/tasks/{task}")


def _page(visit: Owner, task_id: str, *, error: str = "", status: int = 200) -> Response:
    def read(view: View) -> dict[str, Any]:
        task = view.task(task_id)
        own = own_part(view, task)
        if own is None:
            raise NotFound(f"{visit.caller.party} registered no interest in task {task.id}")
        return {"task": task, "own": own}

    return page(visit, "withdraw_interest.html", status=status, error=error, **visit.read(read))
