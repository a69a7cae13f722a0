"""Accounts: balances, statements, deposits and withdrawals."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from fedbourse.market.commands import accounts, payouts
from fedbourse.market.commands.accounts import Deposit
from fedbourse.market.commands.payouts import Payout
from fedbourse.market.document_types import AccountDocument, EntryPage, PayoutPage, WithdrawalDone
from fedbourse.units import MicroCredits
from fedbourse.web.bodies import DepositBody, WithdrawalBody
from fedbourse.web.dependencies import AuthenticatedDep
from fedbourse.web.openapi import EITHER
from fedbourse.web.paging import page
from fedbourse.web.paths import Account, AfterEntry, BeforePayout, Limit
from fedbourse.web.strict_route import StrictRoute

router = APIRouter(route_class=StrictRoute, tags=["accounts"])


@router.get("/accounts/{party}", response_model=AccountDocument, openapi_extra=EITHER)
def show_account(context: AuthenticatedDep, party: Account) -> Response:
    """Show the balance of an account to its party, the operator and auditors.

    A task's escrow is shown to its buyer too: while it trains, as the pay of rounds to come. The
    fund is shown to everybody.
    """
    return context.read(
        lambda view: AccountDocument(party, view.balance(party), view.leaving(party))
    )


@router.get("/accounts/{party}/statement", response_model=EntryPage, openapi_extra=EITHER)
def show_statement(
    context: AuthenticatedDep, party: Account, after: AfterEntry = 0, limit: Limit = 100
) -> Response:
    """List an account's transfers in the order of posting."""
    return context.read(
        lambda view: page(
            EntryPage, view.statement(party, after=after, limit=limit), limit, "sequence"
        )
    )


@router.get("/accounts/{party}/payouts", response_model=PayoutPage, openapi_extra=EITHER)
def list_account_payouts(
    context: AuthenticatedDep, party: Account, before: BeforePayout = None, limit: Limit = 100
) -> Response:
    """List an account's pay-outs with their states, newest first, to its party and the operator."""
    return context.read(
        lambda view: page(PayoutPage, view.payouts(party, before=before, limit=limit), limit, "id")
    )


@router.post("/deposits", status_code=201, response_model=Deposit, openapi_extra=EITHER)
def deposit(context: AuthenticatedDep, body: DepositBody) -> Response:
    """Credit a payment that came in from outside, once for each reference."""
    payment = accounts.look_up(context.caller, context.service.payments, body.reference)
    market = context.service.market
    return context.write(
        lambda tx, caller: accounts.deposit(market, tx, caller, payment), status=201
    )


@router.post("/withdrawals", status_code=201, response_model=WithdrawalDone, openapi_extra=EITHER)
def withdraw_funds(context: AuthenticatedDep, body: WithdrawalBody) -> Response:
    """Take money out of one's own account."""

    def document(payout: Payout, balance: MicroCredits) -> WithdrawalDone:
        return WithdrawalDone(
            id=payout.id,
            party=payout.party,
            amount_micro=payout.amount,
            destination=payout.destination,
            state=payout.state,
            balance_micro=balance,
        )

    return context.write(
        lambda tx, caller: document(
            payouts.request(
                context.service.market,
                tx,
                caller,
                account=body.party or caller.party,
                amount_micro=body.amount_micro,
                destination=body.destination,
            ),
            accounts.balance(tx, caller),
        ),
        status=201,
    )
