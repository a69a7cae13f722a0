"""What auditors and the operator may read: every allocation, account and transfer."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from fedbourse.market.document_types import Balance, BalancePage, EntryPage, OwnerPage, UpdatePage
from fedbourse.market.evidence_report import KeptRound, KeptUpdatePage
from fedbourse.market.monitoring import MonitoringPage
from fedbourse.market.views import View
from fedbourse.web.dependencies import AuthenticatedDep
from fedbourse.web.openapi import EITHER, TOKEN
from fedbourse.web.paging import page
from fedbourse.web.paths import AfterEntry, AfterName, Limit, RoundNumber, TaskId
from fedbourse.web.strict_route import StrictRoute

router = APIRouter(route_class=StrictRoute, tags=["audit"])
_DEVICES_LIGHT = 100
"""More than this is heavy work: the noise of each device is computed."""


@router.get("/tasks/{task}/allocations", response_model=OwnerPage, openapi_extra=TOKEN)
def list_allocations(
    context: AuthenticatedDep, task: TaskId, after: AfterName = "", limit: Limit = 100
) -> Response:
    """List what owners offered and were promised, in full.

    A page holds fewer owners than the limit where each has replied to many ticks.
    """
    return context.read(lambda view: view.owners(task, after=after, limit=limit))


@router.get("/tasks/{task}/rounds/{number}/updates", response_model=UpdatePage, openapi_extra=TOKEN)
def list_updates(
    context: AuthenticatedDep,
    task: TaskId,
    number: RoundNumber,
    after: AfterName = "",
    limit: Limit = 100,
) -> Response:
    """List who sent an update in a round, with the hash of each, as the log holds it."""
    return context.read(lambda view: view.updates(task, round=number, after=after, limit=limit))


@router.get("/tasks/{task}/rounds/{number}/kept", response_model=KeptRound, openapi_extra=TOKEN)
def show_kept_round(context: AuthenticatedDep, task: TaskId, number: RoundNumber) -> Response:
    """Show a round's model of a task with evidence, once the task has ended.

    Auditors recompute every score from it, from the updates, and from the reference records.
    """
    return context.read(lambda view: view.kept_round(task, number))


@router.get(
    "/tasks/{task}/rounds/{number}/kept/updates",
    response_model=KeptUpdatePage,
    openapi_extra=TOKEN,
)
def list_kept_updates(
    context: AuthenticatedDep,
    task: TaskId,
    number: RoundNumber,
    after: AfterName = "",
    limit: Limit = 100,
) -> Response:
    """List a round's updates of a task with evidence, once the task has ended.

    A page holds fewer than the limit where updates are long.
    """
    return context.read(lambda view: view.kept_updates(task, number, after=after, limit=limit))


@router.get("/tasks/{task}/monitoring", response_model=MonitoringPage, openapi_extra=EITHER)
def show_monitoring(
    context: AuthenticatedDep, task: TaskId, after: AfterName = "", limit: Limit = 100
) -> Response:
    """Show what many rounds of updates say about each device; to an owner, about its own.

    Devices are flagged; no pay is ever withheld.
    """
    return context.read(
        lambda view: view.monitoring(task, after=after, limit=limit), heavy=limit > _DEVICES_LIGHT
    )


@router.get("/accounts", response_model=BalancePage, openapi_extra=TOKEN)
def list_accounts(context: AuthenticatedDep, after: AfterName = "", limit: Limit = 100) -> Response:
    """List every account by name, and what it holds."""

    def balances(view: View) -> BalancePage:
        accounts = [Balance(*account) for account in view.accounts(after=after, limit=limit)]
        return page(BalancePage, accounts, limit, "party")

    return context.read(balances)


@router.get("/transfers", response_model=EntryPage, openapi_extra=TOKEN)
def list_transfers(
    context: AuthenticatedDep, after: AfterEntry = 0, limit: Limit = 100
) -> Response:
    """List every transfer in the order of posting."""
    return context.read(
        lambda view: page(EntryPage, view.transfers(after=after, limit=limit), limit, "sequence")
    )
