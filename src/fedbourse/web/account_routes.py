"""Accounts: what they hold, how it came there, and money in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.market import accounts, payouts
from fedbourse.web.account_documents import (
    AccountDocument,
    DepositDone,
    EntryPage,
    PayoutPage,
    WithdrawalDone,
)
from fedbourse.web.audit_routes import entry_page
from fedbourse.web.bodies import DepositBody, WithdrawalBody  # noqa: TC001 - FastAPI reads them
from fedbourse.web.doors import NEEDS_KEY, Known
from fedbourse.web.openapi import EITHER
from fedbourse.web.paths import (  # noqa: TC001 - as above
    Account,
    AfterEntry,
    BeforePayout,
    Limit,
)
from fedbourse.web.payout_routes import payout_page
from fedbourse.web.strict_route import StrictRoute

if TYPE_CHECKING:
    from fedbourse.market.accounts import Deposit
    from fedbourse.market.payouts import Payout
    from fedbourse.units import MicroCredits

router = APIRouter(route_class=StrictRoute, tags=["accounts"])


@router.get(
    "/accounts/{party}",
    operation_id="show_account",
    response_model=AccountDocument,
    openapi_extra=EITHER,
)
def show_account(visit: Known, party: Account) -> Response:
    """Say what an account holds, to its party, the operator and auditors.

    A task's escrow is shown to its buyer too: while it trains, as the pay of rounds to come. The
    fund is shown to everybody.
    """
    return visit.read(
        lambda view: {
            "party": party,
            "balance_micro": view.balance(party),
            "leaving_micro": view.leaving(party),
        }
    )


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


@router.get(
    "/accounts/{party}/payouts",
    operation_id="list_account_payouts",
    response_model=PayoutPage,
    openapi_extra=EITHER,
)
def list_account_payouts(
    visit: Known, party: Account, before: BeforePayout = None, limit: Limit = 100
) -> Response:
    """List an account's pay-outs with their states, newest first, to its party and the operator."""
    return visit.read(
        lambda view: payout_page(view.payouts(party, before=before, limit=limit), limit)
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
    received = accounts.look_up(visit.caller, visit.service.payments, body.reference)

    def document(done: Deposit) -> object:
        return {
            "party": done.received.account,
            "amount_micro": done.received.amount,
            "reference": done.received.reference,
            "claimed_before": done.claimed_before,
            "claimed_ms": done.claimed_ms,
            "balance_micro": done.balance,
        }

    return visit.write(
        lambda unit, caller: document(
            accounts.deposit(visit.service.market, unit, caller, received)
        ),
        status=201,
    )


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

    def document(payout: Payout, balance: MicroCredits) -> object:
        return {
            "id": payout.id,
            "party": payout.party,
            "amount_micro": payout.amount,
            "destination": payout.destination,
            "state": payout.state,
            "balance_micro": balance,
        }

    return visit.write(
        lambda unit, caller: document(
            payouts.request(
                visit.service.market,
                unit,
                caller,
                account=body.party or caller.party,
                amount_micro=body.amount_micro,
                destination=body.destination,
            ),
            accounts.balance(unit, caller),
        ),
        status=201,
    )
