"""The market's log and its signed heads: anybody may keep them, and compare later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.market import documents
from fedbourse.web.doors import Visitor  # noqa: TC001 - FastAPI reads it
from fedbourse.web.log_documents import SignedHead
from fedbourse.web.openapi import ANYBODY
from fedbourse.web.paths import AfterOpening, Limit, TaskId  # noqa: TC001 - as above
from fedbourse.web.strict_route import StrictRoute
from fedbourse.web.task_documents import EventPage

if TYPE_CHECKING:
    from fedbourse.market.view import View

router = APIRouter(route_class=StrictRoute)


@router.get(
    "/log",
    operation_id="list_openings",
    tags=["market"],
    response_model=EventPage,
    openapi_extra=ANYBODY,
)
def list_openings(visit: Visitor, after: AfterOpening = -1, limit: Limit = 100) -> Response:
    """List the events that opened tasks, each holding its number and the opening before."""

    def openings(view: View) -> object:
        found = view.openings(after=after, limit=limit)
        return {
            "events": [documents.event_document(event) for event in found],
            "next": found[-1].body["opening"] if len(found) == limit else None,
        }

    return visit.read(openings)


@router.get(
    "/log/head",
    operation_id="show_market_head",
    tags=["market"],
    response_model=SignedHead,
    openapi_extra=ANYBODY,
)
def show_market_head(visit: Visitor) -> Response:
    """Show where the list of opened tasks ends, signed with the time: keep it to compare later."""
    return visit.read(lambda view: visit.service.heads.signed(view.market_head()))


@router.get(
    "/tasks/{task}/head",
    operation_id="show_task_head",
    tags=["tasks"],
    response_model=SignedHead,
    openapi_extra=ANYBODY,
)
def show_task_head(visit: Visitor, task: TaskId) -> Response:
    """Show where a task's log ends, signed with the time: keep it to compare later."""
    return visit.read(lambda view: visit.service.heads.signed(view.task_head(task)))
