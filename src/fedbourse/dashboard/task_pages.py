"""The page of a task: its card and state for everybody, and what concerns the visitor."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from fedbourse.dashboard.evidence_pages import evidence_link
from fedbourse.dashboard.live import live_of
from fedbourse.dashboard.owner_pages import own_part
from fedbourse.dashboard.page_context import PageContextDep
from fedbourse.dashboard.pages import page
from fedbourse.dashboard.steps import steps_part
from fedbourse.game.mechanisms import MECHANISMS
from fedbourse.market import documents
from fedbourse.market.records import State
from fedbourse.market.views import View
from fedbourse.tasks.incentives import incentive
from fedbourse.web.paths import TaskId

router = APIRouter()
_LIFE = tuple(state for state in State if state is not State.CANCELLED)


@router.get("/tasks/{task}")
def task_page(context: PageContextDep, task: TaskId) -> Response:
    """Show a task: its card, its state and what everybody may know of it."""

    def read(view: View) -> dict[str, Any]:
        record, caller = view.task(task), view.caller
        return {
            "task": vars(view.task_document(task)) | {"reward": documents.promised(record)},
            "card": record.card,
            "log": view.log(task),
            "fund": view.card(task).fund,
            "incentive": incentive(record.card),
            "mechanism": MECHANISMS.description(record.card.compensation),
            "is_buyer": caller is not None and caller.party == record.buyer,
            "live": live_of(view, record),
            "own": own_part(view, record) if context.may("owner") else None,
            "evidence_link": evidence_link(view, record),
            **steps_part(view, record),
        }

    return page(context, "task.html", states=_LIFE, **context.read(read))
