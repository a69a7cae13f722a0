"""A buyer's own pages: its money and tasks, and a new task with what it would buy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from fedbourse.dashboard.card_form import CHOICES, STARTS, card_in
from fedbourse.dashboard.forms import Form, InvalidForm, typed
from fedbourse.dashboard.owner_pages import Before
from fedbourse.dashboard.page_context import AuthenticatedPageContext, signed_in
from fedbourse.dashboard.pages import HEADERS, LOOK, page, redirect
from fedbourse.dashboard.what_if import WhatIfResult, predict, supposed_in
from fedbourse.errors import FedbourseError
from fedbourse.market import documents
from fedbourse.market.commands import accounts
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.views import View
from fedbourse.tasks.incentives import UNEARNED_INCENTIVES, UPFRONT_INCENTIVE

router = APIRouter()
Buyer = Annotated[AuthenticatedPageContext, Depends(signed_in("buyer"))]
ROWS = 20


class DepositClaim(Form):
    """Money that came in, by its reference."""

    reference: str


@router.get("/buy")
def buyer_page(context: Buyer, before: Before = "") -> Response:
    """Show a buyer its money and its tasks."""
    return _own_page(context, before=before)


def _own_page(
    context: AuthenticatedPageContext,
    *,
    before: str = "",
    status: int = 200,
    errors: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    claimed_ms: int | None = None,
) -> Response:
    def read(view: View) -> dict[str, Any]:
        tasks = view.bought_tasks(before=before or None, limit=ROWS + 1)
        rows = [
            vars(document) | {"money": money, "reward": documents.promised(task)}
            for document, task, money in tasks[:ROWS]
        ]
        return {
            "balance": view.balance(),
            "tasks": rows,
            "all_money": view.bought(),
            "older": rows[-1]["task"] if len(tasks) > ROWS else None,
        }

    return page(
        context,
        "buy.html",
        status=status,
        before=before,
        errors=errors or {},
        values=values or {},
        claimed_ms=claimed_ms,
        **context.read(read),
    )


@router.post("/buy/deposit")
def deposit(context: Buyer) -> Response:
    """Claim money that came in."""
    try:
        reference = context.form(DepositClaim).reference
        received = accounts.look_up(context.caller, context.service.payments, reference)
        done = context.write(
            lambda tx, caller: accounts.deposit(context.market, tx, caller, received)
        )
    except InvalidForm as error:
        return _own_page(context, status=422, errors=error.errors, values=error.values)
    except FedbourseError as error:
        if error.http_status >= 500:
            raise
        errors, values = {"reference": str(error)}, typed(context.fields)
        return _own_page(context, status=error.http_status, errors=errors, values=values)
    if done["claimed_before"]:
        return _own_page(context, claimed_ms=done["claimed_ms"], values={"reference": reference})
    return redirect("/buy")


@router.get("/buy/new")
def new_task(context: Buyer) -> Response:
    """Show the form of a new task, and what it would buy as it stands."""
    return _card_page(context, STARTS)


@router.post("/buy/new")
def create(context: Buyer) -> Response:
    """Store a draft, or show what is wrong with it at its place."""
    try:
        card = card_in(context.fields)
    except InvalidForm as error:
        return _card_page(context, STARTS | error.values, errors=error.errors, status=422)
    try:
        made = context.write(
            lambda tx, caller: documents.task_document(
                buyer_commands.create(context.market, tx, caller, card)
            )
        )
    except FedbourseError as error:
        if error.http_status >= 500:
            raise
        values, errors = STARTS | typed(context.fields), {"form": str(error)}
        return _card_page(context, values, errors=errors, status=error.http_status)
    return redirect(f"/tasks/{made['task']}")


@router.post("/buy/what-if")
def would_buy(context: Buyer) -> Response:
    """Say what a card would buy: as a part for scripts, as the whole page for everybody else."""
    with context.at_length():
        what_if, errors = _preview(context.fields)
    if context.request.header("accept") != "application/json":
        values = STARTS | typed(context.fields)
        return _card_page(context, values, errors=errors, preview=(what_if, errors))
    # Not 422 for a wrong number: browsers report that status as a failure.
    template = LOOK.environment.get_template("_what_if.html")
    html = "" if what_if is None else template.render(what_if=what_if)
    return JSONResponse({"html": html, "errors": errors}, headers=HEADERS)


def _preview(fields: dict[str, list[str]]) -> tuple[WhatIfResult | None, dict[str, str]]:
    try:
        return predict(supposed_in(fields)), {}
    except InvalidForm as error:
        return None, error.errors
    except FedbourseError as error:
        return None, {"form": str(error)}


def _card_page(
    context: AuthenticatedPageContext,
    values: Mapping[str, str],
    *,
    errors: Mapping[str, str] | None = None,
    preview: tuple[WhatIfResult | None, dict[str, str]] | None = None,
    status: int = 200,
) -> Response:
    try:
        with context.at_length() if preview is None else nullcontext():
            what_if, wrong = preview or _preview({name: [text] for name, text in values.items()})
    except FedbourseError as error:  # too many computations at once: the page comes without one
        what_if, wrong = None, {"form": str(error)}
    balance = context.read(lambda view: view.balance())
    return page(
        context,
        "card.html",
        status=status,
        values=values,
        errors=_sentences(errors or {}),
        what_if=what_if,
        what_if_error=next(iter(wrong.values()), ""),
        choices=CHOICES,
        balance=balance,
        incentives=UNEARNED_INCENTIVES,
        upfront_incentive=UPFRONT_INCENTIVE,
        fund=context.market.fund,
    )


def _sentences(errors: Mapping[str, str]) -> dict[str, str]:
    """Return sentences for people, without how a number was parsed."""
    return {name: each.partition(", unable to")[0] for name, each in errors.items()}
