"""The dashboard on the market's application: its pages, its files, and errors as pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, FastAPI, Header
from fastapi.routing import APIRoute
from starlette.responses import Response

from fedbourse.dashboard.buyer_pages import router as buyer
from fedbourse.dashboard.evidence_pages import router as evidence
from fedbourse.dashboard.ledger_pages import router as ledger
from fedbourse.dashboard.live import router as live
from fedbourse.dashboard.market_pages import router as market
from fedbourse.dashboard.owner_pages import router as owner
from fedbourse.dashboard.pages import LOOK
from fedbourse.dashboard.problem_pages import ProblemPages
from fedbourse.dashboard.report_pages import router as report
from fedbourse.dashboard.sign_in import router as sign_in
from fedbourse.dashboard.steps import router as steps
from fedbourse.dashboard.task_pages import router as task
from fedbourse.dashboard.verify_pages import router as verify
from fedbourse.web.limits import SecurityHeaders
from fedbourse.web.problems import LastResort

ROUTERS: tuple[APIRouter, ...] = (
    sign_in,
    market,
    task,
    owner,
    verify,
    ledger,
    report,
    evidence,
    buyer,
    steps,
    live,
)
_files = APIRouter()


@_files.get("/static/{name:path}")
async def static(
    name: str,
    v: str = "",
    if_none_match: Annotated[str, Header()] = "",
    accept_encoding: Annotated[str, Header()] = "",
) -> Response:
    """Return a script, a style or a picture."""
    return LOOK.files.response(name, version=v, etags=if_none_match, encodings=accept_encoding)


def add_dashboard(app: FastAPI) -> None:
    """Add the pages to the service that ``web.app.create_app`` made."""
    for router in (_files, *ROUTERS):
        for route in router.routes:
            if isinstance(route, APIRoute) and route.methods and "GET" in route.methods:
                route.methods.add("HEAD")
        app.include_router(router, include_in_schema=False)
    app.add_middleware(ProblemPages)
    # Nothing runs outside these two: a fault of the pages themselves is a problem, with headers.
    app.add_middleware(LastResort)
    app.add_middleware(SecurityHeaders)
