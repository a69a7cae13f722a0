"""What the operator does: access by tokens, and the queue of pay-outs."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from fedbourse.market.commands import access, payouts
from fedbourse.market.commands.payouts import Payout
from fedbourse.market.document_types import (
    EnrolmentTokenMade,
    PayoutPage,
    TokenEnded,
    TokenMade,
    TokenPage,
)
from fedbourse.market.parties import Enrolment, Token
from fedbourse.web.bodies import EnrolmentTokenBody, Nothing, PayoutReturn, TokenBody
from fedbourse.web.dependencies import AuthenticatedDep
from fedbourse.web.openapi import TOKEN
from fedbourse.web.paging import page
from fedbourse.web.paths import AfterName, AfterPayout, Last, Limit, PayoutId, TokenId
from fedbourse.web.strict_route import StrictRoute

router = APIRouter(route_class=StrictRoute, tags=["operator"])


@router.post("/tokens", status_code=201, response_model=TokenMade, openapi_extra=TOKEN)
def make_token(context: AuthenticatedDep, body: TokenBody) -> Response:
    """Make a bearer token; it is shown in this response only."""
    market = context.service.market

    def show(token: Token) -> TokenMade:
        return TokenMade(token.id, token.party, token.scopes, token.expires_ms)

    # What is stored to respond to a repeated request holds no secret.
    return context.write(
        lambda tx, caller: show(
            access.issue_token(
                market, tx, caller, holder=body.party, scopes=body.scopes, days=body.days
            )[0]
        ),
        status=201,
        reveal=lambda document: document | {"token": access.token_secret(market, document["id"])},
    )


@router.get("/tokens", response_model=TokenPage, openapi_extra=TOKEN)
def list_tokens(context: AuthenticatedDep, after: AfterName = "", limit: Limit = 100) -> Response:
    """List tokens; the market stores only their hashes."""
    return context.read(
        lambda view: page(TokenPage, view.tokens(after=after, limit=limit), limit, "id")
    )


@router.delete("/tokens/{id}", response_model=TokenEnded, openapi_extra=TOKEN)
def revoke_token(context: AuthenticatedDep, id: TokenId, last: Last = False) -> Response:
    """Revoke a token; the last one of an operator only with ``last``."""
    market = context.service.market
    return context.write(
        lambda tx, caller: TokenEnded(id, access.revoke_token(market, tx, caller, id, last=last))
    )


@router.post(
    "/enrolment-tokens", status_code=201, response_model=EnrolmentTokenMade, openapi_extra=TOKEN
)
def make_enrolment_token(context: AuthenticatedDep, body: EnrolmentTokenBody) -> Response:
    """Make a one-time token, with which one device of an owner may enrol."""
    market = context.service.market

    def show(enrolment: Enrolment, id: str) -> EnrolmentTokenMade:
        return EnrolmentTokenMade(id, enrolment.owner, enrolment.expires_ms)

    return context.write(
        lambda tx, caller: show(
            *access.issue_enrolment(market, tx, caller, owner=body.owner, hours=body.hours)
        ),
        status=201,
        reveal=lambda document: (
            document | {"token": access.enrolment_secret(market, document["id"])}
        ),
    )


@router.get("/payouts", response_model=PayoutPage, openapi_extra=TOKEN)
def list_payouts(
    context: AuthenticatedDep, after: AfterPayout = "", limit: Limit = 100
) -> Response:
    """List the pay-outs that are neither confirmed nor returned, oldest first."""
    return context.read(
        lambda view: page(PayoutPage, view.payout_queue(after=after, limit=limit), limit, "id")
    )


@router.post("/payouts/{payout}/confirm", response_model=Payout, openapi_extra=TOKEN)
def confirm_payout(context: AuthenticatedDep, payout: PayoutId, body: Nothing) -> Response:
    """Confirm that a pay-out has arrived."""
    return context.execute(payouts.confirm, payout)


@router.post("/payouts/{payout}/return", response_model=Payout, openapi_extra=TOKEN)
def return_payout(context: AuthenticatedDep, payout: PayoutId, body: PayoutReturn) -> Response:
    """Give a pay-out up, and return its money to the account that it came from.

    Return one that was sent only after its money has come back to you.
    """
    service = context.service
    inquiry = payouts.inquire(service.store, service.payments, context.caller, payout)
    return context.execute(payouts.give_back, payout, inquiry=inquiry, reason=body.reason)
