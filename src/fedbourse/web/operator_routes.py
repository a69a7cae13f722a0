"""Who is let in: tokens, and one-time tokens for devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.market import access
from fedbourse.web.account_documents import EnrolmentTokenMade, TokenEnded, TokenMade, TokenPage
from fedbourse.web.bodies import EnrolmentTokenBody, TokenBody  # noqa: TC001 - FastAPI reads them
from fedbourse.web.doors import NEEDS_KEY, Known
from fedbourse.web.openapi import TOKEN
from fedbourse.web.paths import AfterName, Last, Limit, TokenId  # noqa: TC001 - as above
from fedbourse.web.strict_route import StrictRoute

if TYPE_CHECKING:
    from fedbourse.market.parties import Enrolment, Token
    from fedbourse.market.view import View

router = APIRouter(route_class=StrictRoute, tags=["operator"])


@router.post(
    "/tokens",
    operation_id="make_token",
    status_code=201,
    response_model=TokenMade,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def make_token(visit: Known, body: TokenBody) -> Response:
    """Make a bearer token; it is shown in this answer only."""
    market = visit.service.market

    def document(token: Token) -> object:
        return {
            "id": token.id,
            "party": token.party,
            "scopes": sorted(token.scopes),
            "expires_ms": token.expires_ms,
        }

    # What is kept for a repetition has no secret in it.
    return visit.write(
        lambda unit, caller: document(
            access.issue_token(
                market, unit, caller, holder=body.party, scopes=body.scopes, days=body.days
            )[0]
        ),
        status=201,
        reveal=lambda kept: kept | {"token": access.token_secret(market, kept["id"])},
    )


@router.get("/tokens", operation_id="list_tokens", response_model=TokenPage, openapi_extra=TOKEN)
def list_tokens(visit: Known, after: AfterName = "", limit: Limit = 100) -> Response:
    """List tokens; the market itself knows their hashes only."""

    def tokens(view: View) -> object:
        found = view.tokens(after=after, limit=limit)
        return {
            "tokens": [
                {
                    "id": token.id,
                    "party": token.party,
                    "scopes": sorted(token.scopes),
                    "created_ms": token.created_ms,
                    "expires_ms": token.expires_ms,
                    "revoked_ms": token.revoked_ms,
                }
                for token in found
            ],
            "next": found[-1].id if len(found) == limit else None,
        }

    return visit.read(tokens)


@router.delete(
    "/tokens/{id}",
    operation_id="revoke_token",
    response_model=TokenEnded,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def revoke_token(visit: Known, id: TokenId, last: Last = False) -> Response:
    """End a token at once; the last one of an operator only where ``last`` says so."""
    market = visit.service.market
    return visit.write(
        lambda unit, caller: {
            "id": id,
            "revoked_ms": access.revoke_token(market, unit, caller, id, last=last),
        }
    )


@router.post(
    "/enrolment-tokens",
    operation_id="make_enrolment_token",
    status_code=201,
    response_model=EnrolmentTokenMade,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def make_enrolment_token(visit: Known, body: EnrolmentTokenBody) -> Response:
    """Make a one-time token, with which one device of an owner may enrol."""
    market = visit.service.market

    def document(enrolment: Enrolment, id: str) -> object:
        return {"id": id, "owner": enrolment.owner, "expires_ms": enrolment.expires_ms}

    return visit.write(
        lambda unit, caller: document(
            *access.issue_enrolment(market, unit, caller, owner=body.owner, hours=body.hours)
        ),
        status=201,
        reveal=lambda kept: kept | {"token": access.enrolment_secret(market, kept["id"])},
    )
