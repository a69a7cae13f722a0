"""The report of a finished trade, from the same template as the demo's."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads them

from fedbourse.dashboard.pages import page
from fedbourse.dashboard.served_report import served_report
from fedbourse.dashboard.visits import PageVisitor  # noqa: TC001 - as above
from fedbourse.report import trade_body
from fedbourse.web.paths import TaskId  # noqa: TC001 - as above

router = APIRouter()


@router.get("/tasks/{task}/report")
def report_page(visit: PageVisitor, task: TaskId) -> Response:
    """Show what a trade brought, paid and cost, as far as the reader may know it."""
    with visit.at_length():
        report = visit.read(lambda view: served_report(view, task))
    return page(visit, "report.html", report=report, body=trade_body(report))
