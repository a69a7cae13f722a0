"""Money for people: balances, statements, and taking money out."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response

from fedbourse.dashboard.forms import Form, InvalidForm, typed
from fedbourse.dashboard.page_context import AuthenticatedPageContext, SignedIn, signed_in
from fedbourse.dashboard.pages import page, redirect
from fedbourse.errors import Conflict, InvalidInput, InvalidTransfer
from fedbourse.ledger import OUTSIDE
from fedbourse.market.commands import accounts, payouts
from fedbourse.market.records import Entry
from fedbourse.market.service import FUND
from fedbourse.market.views import View
from fedbourse.units import micro_credits
from fedbourse.web.paths import Account, AfterName

router = APIRouter()
ROWS = 50
PAYOUT_ROWS = 10
"""How many of an account's newest pay-outs a page shows."""
_PAGES_LIGHT = 20
"""Pages further back are computed at length: all is counted, and what is newer summed up."""
_ESCROWS = 100
_TOO_MUCH = "this is more than the account holds"
Mover = Annotated[AuthenticatedPageContext, Depends(signed_in(*accounts.MOVERS))]
_AMOUNT = re.compile(r"-?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)(\.[0-9]*)?|\.[0-9]+")
PayoutId = Annotated[str, Query(max_length=100)]
PageNumber = Annotated[int, Query(alias="page", ge=1, le=10_000)]


class WithdrawForm(Form):
    """How much, to where; ``confirmed`` once both were shown again."""

    amount: str
    destination: str = Field(max_length=200)
    confirmed: bool = False


@router.get("/ledger")
def ledger_page(context: SignedIn, after: AfterName = "") -> Response:
    """Show the balances that the caller may see."""
    sees_all = context.may("operator", "auditor")

    def read(view: View) -> dict[str, Any]:
        rows = view.accounts(after=after, limit=ROWS) if sees_all else []
        held = view.escrows(limit=_ESCROWS) if context.may("buyer") else []
        return {
            "balance": view.balance(),
            "accounts": rows,
            "next": rows[-1][0] if len(rows) == ROWS else None,
            "escrows": [(task, money.escrow) for task, money in held],
        }

    return page(context, "ledger.html", sees_all=sees_all, after=after, **context.read(read))


@router.post("/ledger/withdraw")
def withdraw(context: Mover) -> Response:
    """Show what a withdrawal moves; carry it out once that is confirmed."""
    try:
        form = context.form(WithdrawForm)
        amount = _amount(context, form)
    except InvalidForm as wrong:
        return _withdraw_again(context, wrong.errors)
    except InvalidInput as error:
        return _withdraw_again(context, {"amount": str(error)})
    if not form.confirmed:
        balance = context.read(lambda view: view.balance())
        return page(context, "withdraw.html", form=form, amount=amount, balance=balance)

    try:
        made = context.write(
            lambda tx, caller: asdict(
                payouts.request(
                    context.market,
                    tx,
                    caller,
                    account=caller.party,
                    amount_micro=amount,
                    destination=form.destination,
                )
            )
        )
    except (InvalidInput, Conflict) as error:
        short = isinstance(error, InvalidTransfer)
        at = "destination" if str(error).startswith("destination") else "amount"
        return _withdraw_again(context, {at: _TOO_MUCH if short else str(error)})
    return redirect(f"/ledger/{context.caller.party}?done={made['id']}")


def _withdraw_again(context: AuthenticatedPageContext, errors: dict[str, str]) -> Response:
    return _statement(context, context.caller.party, errors=errors, values=typed(context.fields))


def _amount(context: AuthenticatedPageContext, form: WithdrawForm) -> int:
    """Return how much is asked for, if the account holds it."""
    if not _AMOUNT.fullmatch(form.amount):
        raise InvalidInput(
            "this must be a whole or decimal number of credits, such as 1250.5 or 1,250.5; "
            f"found {form.amount:.30}"
        )
    amount = micro_credits(form.amount.replace(",", ""))
    if amount <= 0:
        raise InvalidInput("this must be above 0")
    # A confirmed one is refused by the books themselves, or gets its first response again.
    if not form.confirmed and amount > context.read(lambda view: view.balance()):
        raise InvalidInput(_TOO_MUCH)
    return amount


@router.get("/ledger/{party}")
def statement_page(
    context: SignedIn, party: Account, number: PageNumber = 1, done: PayoutId = ""
) -> Response:
    """Show how an account came to hold what it holds, newest first."""
    return _statement(context, party, number=number, done=done)


def _statement(
    context: AuthenticatedPageContext,
    party: str,
    *,
    number: int = 1,
    done: str = "",
    errors: dict[str, str] | None = None,
    values: dict[str, str] | None = None,
) -> Response:
    count_max = _PAGES_LIGHT * ROWS if number <= _PAGES_LIGHT else None

    def read(view: View) -> dict[str, Any]:
        rows, count = view.last_entries(party, page=number, rows=ROWS, count_max=count_max)
        words = [asdict(row) | {"entry": row.entry} | _words(row.entry) for row in rows]
        shows_payouts = party == context.caller.party or context.may("operator")
        return {
            "rows": words,
            "count": count,
            "balance": view.balance(party),
            "payouts": view.payouts(party, limit=PAYOUT_ROWS) if shows_payouts else [],
        }

    with context.at_length() if number > _PAGES_LIGHT else nullcontext():
        account = context.read(read)
    # Anybody can write such an address: it is the books that say whether it is true.
    newest = account["rows"][0]["entry"].id if account["rows"] and number == 1 else None
    return page(
        context,
        "statement.html",
        status=422 if errors else 200,
        party=party,
        pays_to=context.market.fund_pays_to if party == FUND else None,
        number=number,
        last=max(1, -(-account["count"] // ROWS)),
        count_max=count_max,
        at=lambda number: f"/ledger/{party}?page={number}",
        done=context.caller.party == party and newest == f"withdrawal/{done}",
        errors=errors or {},
        values=values or {},
        movable=context.caller.party == party and context.may(*accounts.MOVERS),
        limits=context.market.payout_limits,
        **account,
    )


def _words(entry: Entry) -> dict[str, Any]:
    """Say what a transfer was for, and to which task it belongs."""
    accounts = (entry.debit, entry.credit)
    held = next((name for name in accounts if name.startswith("escrow:")), None)
    if entry.id.startswith("deposit/"):
        what = "deposit"
    elif entry.id.startswith("withdrawal/"):
        what = "withdrawal"
    elif entry.id.startswith("payout/"):
        what = "pay-out confirmed" if entry.credit == OUTSIDE else "pay-out returned"
    elif held is None:
        what = entry.memo
    elif entry.credit == held:
        what = "reward reserved in escrow"
    elif entry.credit == FUND:
        what = f"to the fund: {entry.memo}"
    elif entry.credit.startswith("buyer:"):
        what = f"back from escrow: {entry.memo}"
    else:
        what = f"pay: {entry.memo}"
    return {"what": what, "task": held.partition(":")[2] if held else None}
