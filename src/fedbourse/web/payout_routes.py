"""Pay-outs as the operator sees them: the queue, and how each of them ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.market import payouts
from fedbourse.web.account_documents import PayoutDocument, PayoutPage
from fedbourse.web.bodies import Nothing, PayoutReturn  # noqa: TC001 - FastAPI reads them
from fedbourse.web.doors import NEEDS_KEY, Known
from fedbourse.web.openapi import TOKEN
from fedbourse.web.paths import AfterPayout, Limit, PayoutId  # noqa: TC001 - as above
from fedbourse.web.strict_route import StrictRoute

if TYPE_CHECKING:
    from fedbourse.market.payouts import Payout

router = APIRouter(route_class=StrictRoute, tags=["operator"])


@router.get("/payouts", operation_id="list_payouts", response_model=PayoutPage, openapi_extra=TOKEN)
def list_payouts(visit: Known, after: AfterPayout = "", limit: Limit = 100) -> Response:
    """List the pay-outs that are neither confirmed nor returned, oldest first."""
    return visit.read(lambda view: payout_page(view.payout_queue(after=after, limit=limit), limit))


@router.post(
    "/payouts/{payout}/confirm",
    operation_id="confirm_payout",
    response_model=PayoutDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def confirm_payout(visit: Known, payout: PayoutId, body: Nothing) -> Response:
    """Say that a pay-out that was sent has arrived."""
    market = visit.service.market
    return visit.write(
        lambda unit, caller: payout_document(payouts.confirm(market, unit, caller, payout))
    )


@router.post(
    "/payouts/{payout}/return",
    operation_id="return_payout",
    response_model=PayoutDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def return_payout(visit: Known, payout: PayoutId, body: PayoutReturn) -> Response:
    """Give a pay-out up, and move its money back to the account that it came from.

    One that was sent is yours to return only when its money has come back to you.
    """
    service = visit.service
    inquiry = payouts.inquire(service.store, service.payments, visit.caller, payout)
    return visit.write(
        lambda unit, caller: payout_document(
            payouts.give_back(
                service.market, unit, caller, payout, inquiry=inquiry, reason=body.reason
            )
        )
    )


def payout_page(found: list[Payout], limit: int) -> dict[str, object]:
    """Return a page of pay-outs."""
    return {
        "payouts": [payout_document(payout) for payout in found],
        "next": found[-1].id if len(found) == limit else None,
    }


def payout_document(payout: Payout) -> dict[str, object]:
    """Return what its party and the operator see of a pay-out."""
    return {
        "id": payout.id,
        "party": payout.party,
        "amount_micro": payout.amount,
        "destination": payout.destination,
        "at_ms": payout.at_ms,
        "state": payout.state.value,
        "changed_ms": payout.changed_ms,
        "note": payout.note,
        "attempts": payout.attempts,
    }
