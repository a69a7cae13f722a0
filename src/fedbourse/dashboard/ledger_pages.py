"""Money for people: balances, statements, and taking money out."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response  # noqa: TC002 - FastAPI reads them

from fedbourse.dashboard.forms import Form, InvalidForm
from fedbourse.dashboard.pages import page, redirect
from fedbourse.dashboard.visits import KnownPageVisit, SignedIn, signed_in
from fedbourse.errors import Conflict, InvalidInput, InvalidTransfer
from fedbourse.ledger import OUTSIDE
from fedbourse.market import accounts, payouts
from fedbourse.market.service import FUND
from fedbourse.units import micro_credits
from fedbourse.web.paths import Account, AfterName  # noqa: TC001 - as above

if TYPE_CHECKING:
    from fedbourse.market.task import Entry
    from fedbourse.market.view import View

router = APIRouter()
ROWS = 50
PAYOUT_ROWS = 10
"""How many of an account's newest pay-outs a page shows."""
_PAGES_LIGHT = 20
"""Pages further back are computed at length: all that is newer is summed up."""
_ESCROWS = 100
_TOO_MUCH = "this is more than the account holds"
Mover = Annotated[KnownPageVisit, Depends(signed_in(*accounts.MOVERS))]
_AMOUNT = re.compile(r"-?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)(\.[0-9]*)?|\.[0-9]+")
PayoutId = Annotated[str, Query(max_length=100)]
PageNumber = Annotated[int, Query(alias="page", ge=1, le=10_000)]


class WithdrawForm(Form):
    """How much, to where; ``confirmed`` once both were shown again."""

    amount: str
    destination: str = Field(max_length=200)
    confirmed: bool = False


@router.get("/ledger")
def ledger_page(visit: SignedIn, after: AfterName = "") -> Response:
    """Show the balances that the caller may see."""
    sees_all = visit.may("operator", "auditor")

    def read(view: View) -> dict[str, Any]:
        found = view.accounts(after=after, limit=ROWS) if sees_all else []
        held = view.escrows(limit=_ESCROWS) if visit.may("buyer") else []
        return {
            "balance": view.balance(),
            "accounts": found,
            "next": found[-1][0] if len(found) == ROWS else None,
            "escrows": [(task, money.escrow) for task, money in held],
        }

    return page(visit, "ledger.html", sees_all=sees_all, after=after, **visit.read(read))


@router.post("/ledger/withdraw")
def withdraw(visit: Mover) -> Response:
    """Show what a withdrawal moves; carry it out once that is confirmed."""
    try:
        form = visit.form(WithdrawForm)
        amount = _amount(visit, form)
    except InvalidForm as wrong:
        return _statement(visit, visit.caller.party, errors=wrong.errors, values=wrong.values)
    if not form.confirmed:
        balance = visit.read(lambda view: view.balance())
        return page(visit, "withdraw.html", form=form, amount=amount, balance=balance)

    try:
        made = visit.write(
            lambda unit, caller: asdict(
                payouts.request(
                    visit.market,
                    unit,
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
        return _statement(
            visit,
            visit.caller.party,
            errors={at: _TOO_MUCH if short else str(error)},
            values=_said(form),
        )
    return redirect(f"/ledger/{visit.caller.party}?done={made['id']}")


def _said(form: WithdrawForm) -> dict[str, str]:
    return {"amount": form.amount, "destination": form.destination}


def _amount(visit: KnownPageVisit, form: WithdrawForm) -> int:
    """Return how much is asked for, if the account holds it."""
    said = _said(form)
    if not _AMOUNT.fullmatch(form.amount):
        raise InvalidForm(
            {
                "amount": "this must be a whole or decimal number of credits, such as 1250.5 or "
                f"1,250.5; found {form.amount:.30}"
            },
            said,
        )
    try:
        amount = micro_credits(form.amount.replace(",", ""))
    except InvalidInput as error:
        raise InvalidForm({"amount": str(error)}, said) from None
    held = visit.read(lambda view: view.balance())
    if amount <= 0:
        raise InvalidForm({"amount": "this must be above 0"}, said)
    # A confirmed one is refused by the books themselves, or answered as it was the first time.
    if amount > held and not form.confirmed:
        raise InvalidForm({"amount": _TOO_MUCH}, said)
    return amount


@router.get("/ledger/{party}")
def statement_page(
    visit: SignedIn, party: Account, number: PageNumber = 1, done: PayoutId = ""
) -> Response:
    """Show how an account came to hold what it holds, newest first."""
    return _statement(visit, party, number=number, done=done)


def _statement(
    visit: KnownPageVisit,
    party: str,
    *,
    number: int = 1,
    done: str = "",
    errors: dict[str, str] | None = None,
    values: dict[str, str] | None = None,
) -> Response:
    def read(view: View) -> dict[str, Any]:
        rows, count = view.last_entries(party, page=number, rows=ROWS)
        words = [asdict(row) | {"entry": row.entry} | _words(row.entry) for row in rows]
        shows_payouts = party == visit.caller.party or visit.may("operator")
        return {
            "rows": words,
            "count": count,
            "balance": view.balance(party),
            "payouts": view.payouts(party, limit=PAYOUT_ROWS) if shows_payouts else [],
        }

    with visit.at_length() if number > _PAGES_LIGHT else nullcontext():
        found = visit.read(read)
    # Anybody can write such an address: it is the books that say whether it is true.
    newest = found["rows"][0]["entry"].id if found["rows"] and number == 1 else None
    return page(
        visit,
        "statement.html",
        status=422 if errors else 200,
        party=party,
        pays_to=visit.market.fund_pays_to if party == FUND else None,
        number=number,
        last=max(1, -(-found["count"] // ROWS)),
        at=lambda number: f"/ledger/{party}?page={number}",
        done=visit.caller.party == party and newest == f"withdrawal/{done}",
        errors=errors or {},
        values=values or {},
        movable=visit.caller.party == party and visit.may(*accounts.MOVERS),
        limits=visit.market.payout_limits,
        **found,
    )


def _words(entry: Entry) -> dict[str, Any]:
    """Say what a transfer was for, and to which task it belongs."""
    accounts = (entry.source, entry.target)
    held = next((name for name in accounts if name.startswith("escrow:")), None)
    if entry.id.startswith("deposit/"):
        what = "deposit"
    elif entry.id.startswith("withdrawal/"):
        what = "withdrawal"
    elif entry.id.startswith("payout/"):
        what = "pay-out confirmed" if entry.target == OUTSIDE else "pay-out returned"
    elif held is None:
        what = entry.memo
    elif entry.target == held:
        what = "reward reserved in escrow"
    elif entry.target == FUND:
        what = f"to the fund: {entry.memo}"
    elif entry.target.startswith("buyer:"):
        what = f"back from escrow: {entry.memo}"
    else:
        what = f"pay: {entry.memo}"
    return {"what": what, "task": held.partition(":")[2] if held else None}
