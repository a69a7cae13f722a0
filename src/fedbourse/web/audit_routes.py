"""What auditors and the operator may read: every line, every account, every transfer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.web.account_documents import BalancePage, EntryPage
from fedbourse.web.doors import Known  # noqa: TC001 - FastAPI reads it
from fedbourse.web.openapi import EITHER, TOKEN
from fedbourse.web.owner_documents import AnswerPage, DriftPage, OwnerPage
from fedbourse.web.paths import AfterEntry, AfterName, Limit, RoundNumber, TaskId  # noqa: TC001 - as above
from fedbourse.web.strict_route import StrictRoute

if TYPE_CHECKING:
    from fedbourse.market.task import Entry
    from fedbourse.market.view import View

router = APIRouter(route_class=StrictRoute, tags=["audit"])


def entry_page(entries: list[Entry], limit: int) -> dict[str, object]:
    """Return transfers, and where the next page begins."""
    return {
        "entries": [asdict(entry) for entry in entries],
        "next": entries[-1].sequence if len(entries) == limit else None,
    }


@router.get(
    "/tasks/{task}/lines",
    operation_id="list_lines",
    response_model=OwnerPage,
    openapi_extra=TOKEN,
)
def list_lines(visit: Known, task: TaskId, after: AfterName = "", limit: Limit = 100) -> Response:
    """List what owners said and were promised, in full."""
    return visit.read(lambda view: view.owners(task, after=after, limit=limit))


@router.get(
    "/tasks/{task}/rounds/{number}/answers",
    operation_id="list_answers",
    response_model=AnswerPage,
    openapi_extra=TOKEN,
)
def list_answers(
    visit: Known, task: TaskId, number: RoundNumber, after: AfterName = "", limit: Limit = 100
) -> Response:
    """List who answered a round, and the hash of each answer, which the log vouches for."""
    return visit.read(lambda view: view.answers(task, round=number, after=after, limit=limit))


@router.get(
    "/tasks/{task}/drift",
    operation_id="show_drift",
    response_model=DriftPage,
    openapi_extra=EITHER,
)
def show_drift(visit: Known, task: TaskId, after: AfterName = "", limit: Limit = 100) -> Response:
    """Show what the answers of each device say of it over rounds; to an owner, its own.

    It flags, and never withholds pay.
    """
    return visit.read(lambda view: view.drift(task, after=after, limit=limit))


@router.get(
    "/accounts", operation_id="list_accounts", response_model=BalancePage, openapi_extra=TOKEN
)
def list_accounts(visit: Known, after: AfterName = "", limit: Limit = 100) -> Response:
    """List every account by name, and what it holds."""

    def balances(view: View) -> object:
        found = view.accounts(after=after, limit=limit)
        return {
            "accounts": [{"party": name, "balance_micro": amount} for name, amount in found],
            "next": found[-1][0] if len(found) == limit else None,
        }

    return visit.read(balances)


@router.get(
    "/transfers", operation_id="list_transfers", response_model=EntryPage, openapi_extra=TOKEN
)
def list_transfers(visit: Known, after: AfterEntry = 0, limit: Limit = 100) -> Response:
    """List every transfer in the order of posting."""
    return visit.read(lambda view: entry_page(view.transfers(after=after, limit=limit), limit))
