"""A buyer's own pages: its money and tasks, and a new task with what it would buy."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from fedbourse.dashboard.card_form import STARTS, card_in
from fedbourse.dashboard.forms import CSRF, KEY, Form, InvalidForm
from fedbourse.dashboard.pages import HEADERS, LOOK, page, redirect
from fedbourse.dashboard.visits import KnownPageVisit, signed_in
from fedbourse.dashboard.what_if import answer, supposed_in
from fedbourse.errors import FedbourseError
from fedbourse.game import ACCURACY_MODELS
from fedbourse.market import accounts, buying, documents
from fedbourse.wire.incentives import UNEARNED_INCENTIVES, UPFRONT_INCENTIVE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.dashboard.what_if import Answer
    from fedbourse.market.view import View

router = APIRouter()
Buyer = Annotated[KnownPageVisit, Depends(signed_in("buyer"))]
_TASKS_MAX = 300
MODEL_WORDS = {
    "paper": "the mean over those who take part",
    "population": "the same over all owners",
    "averaged": "the plain average's variance",
    "precision": "answers weighted by precision",
}


class Claim(Form):
    """Money that came in, by its reference."""

    reference: str


@router.get("/buy")
def buyer_page(visit: Buyer) -> Response:
    """Show a buyer its money and its tasks."""
    return _own_page(visit)


def _own_page(
    visit: KnownPageVisit,
    *,
    status: int = 200,
    errors: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    claimed_ms: int | None = None,
) -> Response:
    def read(view: View) -> dict[str, Any]:
        found = view.bought_tasks(limit=_TASKS_MAX)
        rows = [
            document | {"money": money, "reward": documents.promised(task)}
            for document, task, money in found
        ]
        return {
            "balance": view.balance(),
            "tasks": rows,
            "in_escrow": sum(row["money"].escrow for row in rows),
            "paid": sum(row["money"].paid for row in rows),
            "to_fund": sum(row["money"].fund for row in rows),
            "more": len(found) == _TASKS_MAX,
        }

    return page(
        visit,
        "buy.html",
        status=status,
        errors=errors or {},
        values=values or {},
        claimed_ms=claimed_ms,
        **visit.read(read),
    )


@router.post("/buy/deposit")
def deposit(visit: Buyer) -> Response:
    """Claim money that came in."""
    try:
        reference = visit.form(Claim).reference
        received = accounts.look_up(visit.caller, visit.service.payments, reference)
        done = visit.write(
            lambda unit, caller: asdict(accounts.deposit(visit.market, unit, caller, received))
        )
    except InvalidForm as error:
        return _own_page(visit, status=422, errors=error.errors, values=error.values)
    except FedbourseError as error:
        if error.http_status >= 500:
            raise
        said = visit.fields.get("reference", [""])[0]
        errors, values = {"reference": str(error)}, {"reference": said}
        return _own_page(visit, status=error.http_status, errors=errors, values=values)
    if done["claimed_before"]:
        return _own_page(visit, claimed_ms=done["claimed_ms"], values={"reference": reference})
    return redirect("/buy")


@router.get("/buy/new")
def new_task(visit: Buyer) -> Response:
    """Show the form of a new task, and what it would buy as it stands."""
    return _card_page(visit, STARTS)


@router.post("/buy/new")
def create(visit: Buyer) -> Response:
    """Store a draft, or show what is wrong with it at its place."""
    try:
        card = card_in(_said(visit))
    except InvalidForm as error:
        return _card_page(visit, STARTS | error.values, errors=error.errors, status=422)
    try:
        made = visit.write(
            lambda unit, caller: documents.task_document(
                buying.create(visit.market, unit, caller, card)
            )
        )
    except FedbourseError as error:
        if error.http_status >= 500:
            raise
        typed = {name: said[0] for name, said in _said(visit).items()}
        errors = {"form": str(error)}
        return _card_page(visit, STARTS | typed, errors=errors, status=error.http_status)
    return redirect(f"/tasks/{made['task']}")


@router.post("/buy/what-if")
def would_buy(visit: Buyer) -> Response:
    """Say what a card would buy: as a part for scripts, as the whole page for everybody else."""
    said = _said(visit)
    with visit.at_length():
        found, errors = _answer(said)
    if visit.request.header("accept") != "application/json":
        typed = {name: each[0] for name, each in said.items()}
        return _card_page(visit, STARTS | typed, errors=errors, answered=(found, errors))
    # A wrong number is an answer like others: browsers report a status of 422 as a failure.
    html = "" if found is None else _part(found)
    return JSONResponse({"html": html, "errors": errors}, headers=HEADERS)


def _said(visit: KnownPageVisit) -> dict[str, list[str]]:
    return {name: said for name, said in visit.fields.items() if name not in (CSRF, KEY)}


def _answer(fields: dict[str, list[str]]) -> tuple[Answer | None, dict[str, str]]:
    try:
        return answer(supposed_in(fields)), {}
    except InvalidForm as error:
        return None, error.errors
    except FedbourseError as error:
        return None, {"form": str(error)}


def _answered(
    visit: KnownPageVisit, values: Mapping[str, str]
) -> tuple[Answer | None, dict[str, str]]:
    """Say what a card would buy; where it is not the visitor's turn, why it does not say it."""
    try:
        with visit.at_length():
            return _answer({name: [text] for name, text in values.items()})
    except FedbourseError as error:
        return None, {"form": str(error)}


def _part(found: Answer) -> str:
    template = LOOK.environment.get_template("_what_if.html")
    return template.render(found=found, model_words=MODEL_WORDS)


def _card_page(
    visit: KnownPageVisit,
    values: Mapping[str, str],
    *,
    errors: Mapping[str, str] | None = None,
    answered: tuple[Answer | None, dict[str, str]] | None = None,
    status: int = 200,
) -> Response:
    found, wrong = answered or _answered(visit, values)
    balance = visit.read(lambda view: view.balance())
    return page(
        visit,
        "card.html",
        status=status,
        values=values,
        errors=_sentences(errors or {}),
        found=found,
        what_if_error=next(iter(wrong.values()), ""),
        models=ACCURACY_MODELS,
        model_words=MODEL_WORDS,
        balance=balance,
        incentives=UNEARNED_INCENTIVES,
        upfront_incentive=UPFRONT_INCENTIVE,
        fund=visit.market.fund,
    )


def _sentences(errors: Mapping[str, str]) -> dict[str, str]:
    """Return what people read: without how a number was looked for."""
    return {name: said.partition(", unable to")[0] for name, said in errors.items()}
