"""Accounts: what they hold, how it came there, and money in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.market import accounts
from fedbourse.web.account_documents import Balance, DepositDone, EntryPage, WithdrawalDone
from fedbourse.web.audit_routes import entry_page
from fedbourse.web.bodies import DepositBody, WithdrawalBody  # noqa: TC001 - FastAPI reads them
from fedbourse.web.doors import NEEDS_KEY, Known
from fedbourse.web.openapi import EITHER
from fedbourse.web.paths import Account, AfterEntry, Limit  # noqa: TC001 - as above
from fedbourse.web.strict_route import StrictRoute

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit

router = APIRouter(route_class=StrictRoute, tags=["accounts"])


@router.get(
    "/accounts/{party}",
    operation_id="show_account",
    response_model=Balance,
    openapi_extra=EITHER,
)
def show_account(visit: Known, party: Account) -> Response:
    """Say what an account holds, to its party, the operator and auditors.

    A task's escrow is shown to its buyer too: while it trains, as the pay of rounds to come. The
    fund is shown to everybody.
    """
    return visit.read(lambda view: {"party": party, "balance_micro": view.balance(party)})


@router.get(
    "/accounts/{party}/statement",
    operation_id="show_statement",
    response_model=EntryPage,
    openapi_extra=EITHER,
)
def show_statement(
    visit: Known, party: Account, after: AfterEntry = 0, limit: Limit = 100
) -> Response:
    """List an account's transfers in the order of posting."""
    return visit.read(
        lambda view: entry_page(view.statement(party, after=after, limit=limit), limit)
    )


@router.post(
    "/deposits",
    operation_id="deposit",
    status_code=201,
    response_model=DepositDone,
    dependencies=NEEDS_KEY,
    openapi_extra=EITHER,
)
def deposit(visit: Known, body: DepositBody) -> Response:
    """Credit money that came in from outside with a reference, once."""

    def command(unit: Unit, caller: Caller) -> object:
        account, amount = accounts.deposit(
            visit.service.market,
            unit,
            caller,
            visit.service.payments,
            reference=body.reference,
        )
        return {
            "party": account,
            "amount_micro": amount,
            "reference": body.reference,
            "balance_micro": unit.balance(account),
        }

    return visit.write(command, status=201)


@router.post(
    "/withdrawals",
    operation_id="withdraw",
    status_code=201,
    response_model=WithdrawalDone,
    dependencies=NEEDS_KEY,
    openapi_extra=EITHER,
)
def withdraw(visit: Known, body: WithdrawalBody) -> Response:
    """Take money out of one's own account."""

    def command(unit: Unit, caller: Caller) -> object:
        payout = accounts.withdraw(
            visit.service.market,
            unit,
            caller,
            account=body.party or caller.party,
            amount_micro=body.amount_micro,
            destination=body.destination,
        )
        return {
            "id": payout.id,
            "party": payout.party,
            "amount_micro": payout.amount,
            "destination": payout.destination,
            "balance_micro": unit.balance(payout.party),
        }

    return visit.write(command, status=201)
