"""Verify: a task or all books recomputed from their records, with the result of each check."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from operator import attrgetter, itemgetter
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends
from starlette.responses import Response

from fedbourse.dashboard.page_context import AuthenticatedPageContext, SignedIn, signed_in
from fedbourse.dashboard.pages import page
from fedbourse.encoding.documents import plain
from fedbourse.errors import TooLarge
from fedbourse.market import documents
from fedbourse.market.audit import Check, verify_books, verify_task
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.records import Task
from fedbourse.market.service import escrow
from fedbourse.market.views import View
from fedbourse.web.paths import TaskId

router = APIRouter()
Auditor = Annotated[AuthenticatedPageContext, Depends(signed_in("auditor", "operator"))]
_PAGE = 10_000
_SEQUENCE = attrgetter("sequence")
RECORDS_MAX = 300_000
"""More than this is verified on the caller's own machine, by ``fedbourse verify``."""
RECORDS_PER_S = 10_000
"""What a small machine recomputes; slow rather than fast, for it is a promise."""
KEPT_NUMBERS_MAX = 2**21
"""Evidence of more numbers than this is recomputed by ``fedbourse verify`` alone."""
TITLES = {
    "card": "The card is the one that was published",
    "log": "The log is whole",
    "life cycle": "Every step was allowed",
    "reward": "The reward follows from the card",
    "totals": "The announced totals follow from the replies",
    "interests": "Interests are what the log vouches for",
    "replies": "Replies to ticks are what the log vouches for",
    "sums": "The sums of each tick follow from its replies",
    "activity": "Every owner's replies obey the activity rule",
    "settlement": "The task settled at the tick that the rule picks",
    "plans": "Plans are the replies to that tick",
    "payments": "Payments are shared by the rule and sum to the reward",
    "allocations": "Each owner's allocation is what the log vouches for",
    "terms": "Signed terms are those that were offered",
    "updates": "Updates are those that were counted",
    "evidence": "What evidence found follows from the updates and the buyer's records",
    "vesting": "Everybody was paid what it earned",
    "escrow": "What escrow held went to owners, the fund and the buyer by the rules",
    "own allocation": "Your allocation is in the log",
    "own payment": "Your pay follows from your budget",
    "own earnings": "You were paid for the updates that you delivered",
    "transfers": "No transfer overdraws an account",
    "balances": "Every balance follows from the transfers",
    "conservation": "No credit was made or lost",
}


@router.get("/tasks/{task}/verify")
def before_task(context: SignedIn, task: TaskId) -> Response:
    """Say what would be recomputed of a task, and how long that takes."""

    def read(view: View) -> dict[str, Any]:
        record = view.task(task)
        return {"goal": record.card.goal, "records": _task_size(view, record)}

    return _page(context, task=task, **context.read(read))


@router.post("/tasks/{task}/verify")
def check_task(context: SignedIn, task: TaskId) -> Response:
    """Recompute a task from all records that the caller may see."""

    def read(view: View) -> dict[str, Any]:
        record = view.task(task)
        size = _task_size(view, record)
        _refuse_too_many(size, task)
        return {
            "goal": record.card.goal,
            "records": size,
            "documents": _task_records(view, record),
        }

    start = time.perf_counter()
    with context.at_length():
        values = context.read(read)
        checks = verify_task(**values.pop("documents"))
    return _page(context, task=task, checks=checks, took_s=time.perf_counter() - start, **values)


@router.get("/ledger/verify")
def before_books(context: Auditor) -> Response:
    """Say what would be recomputed of the books, and how long that takes."""
    return _page(context, records=context.read(lambda view: view.last_transfer()))


@router.post("/ledger/verify")
def check_books(context: Auditor) -> Response:
    """Recompute every balance of the market from all transfers."""

    def read(view: View) -> tuple[int, list[Any], list[Any]]:
        size = view.last_transfer()
        _refuse_too_many(size, "books")
        entries = _all(view.transfers, 0, _SEQUENCE)
        accounts = _all(view.accounts, "", itemgetter(0))
        balances = [{"party": name, "balance_micro": held} for name, held in accounts]
        return size, plain(entries), balances

    start = time.perf_counter()
    with context.at_length():
        size, entries, balances = context.read(read)
        checks = verify_books(entries=entries, accounts=balances)
    return _page(context, records=size, checks=checks, took_s=time.perf_counter() - start)


def _page(
    context: AuthenticatedPageContext,
    *,
    records: int,
    task: str | None = None,
    goal: str = "",
    checks: list[Check] | None = None,
    took_s: float = 0.0,
) -> Response:
    counts = [sum(check.passed is each for check in checks or ()) for each in (True, False, None)]
    return page(
        context,
        "verified.html",
        task=task,
        goal=goal,
        records=records,
        too_many=records > RECORDS_MAX,
        seconds=max(1, round(records / RECORDS_PER_S)),
        checks=checks,
        titles=TITLES,
        took_s=took_s,
        counts=counts,
        sees_all=context.may("auditor", "operator"),
    )


def _refuse_too_many(size: int, name: str) -> None:
    if size > RECORDS_MAX:
        raise TooLarge(
            f"these are {size:,} records, too many for a page; "
            f"run fedbourse verify {name} on a machine of yours"
        )


def _task_size(view: View, task: Task) -> int:
    """Return how many records the caller's verification reads, about."""
    events = task.last_sequence + 1
    if not view.sees_all:
        return events
    owners, signed = view.counts(task.id)
    return events + (2 + len(task.totals)) * owners + 2 * signed * task.round


def _task_records(view: View, task: Task) -> dict[str, Any]:
    """Return what ``verify_task`` takes, as far as the caller may see it, of one moment."""
    records: dict[str, Any] = {
        "task": documents.task_document(task),
        "card": task.card.document,
        "events": _all(partial(view.events, task.id), -1, _SEQUENCE),
        "updates": None,
    }
    if view.sees_all:
        begun_rounds = range(min(task.round + 1, task.card.rounds))
        account = escrow(task.id)
        records |= {
            "owners": _pages(partial(view.owners, task.id, limit=_PAGE), "owners"),
            "entries": _all(partial(view.statement, account), 0, _SEQUENCE),
            "escrow_micro": view.balance(account),
            "updates": {
                number: _pages(partial(view.updates, task.id, round=number, limit=_PAGE), "updates")
                for number in begun_rounds
                if view.has_round(task.id, number)
            },
        }
    if (
        "owner" in view.authenticated.scopes
        and (own := view.participation(task.id)).interest is not None
    ):
        proof = view.proof(task.id) if own.allocation else None
        records["own"] = vars(own) | {"proof": proof}
    # As the API gives them: a verification reads documents, not the market's own objects.
    texts = cast("dict[str, Any]", plain(records))
    return texts | ({"evidence": _evidence(view, task)} if _recomputes_evidence(view, task) else {})


def _recomputes_evidence(view: View, task: Task) -> bool:
    """Say whether a page recomputes evidence: of a task that has ended, if it is not too large."""
    if not view.sees_all or task.card.evidence is None or task.state not in ENDED:
        return False
    _, signed = view.counts(task.id)
    return signed * task.card.rounds * task.card.dimension <= KEPT_NUMBERS_MAX


def _evidence(view: View, task: Task) -> dict[str, Any]:
    rounds = {}
    for closed in view.closed_rounds(task.id):
        updates = _pages(partial(view.kept_updates, task.id, closed.number), "updates")
        vectors = {each.owner: each.vector for each in updates}
        rounds[closed.number] = vars(view.kept_round(task.id, closed.number)) | {"updates": vectors}
    report = view.evidence(task.id)
    reference = view.reference(task.id) if report.revealed else None
    return {"findings": plain(report.findings), "rounds": rounds, "reference": reference}


def _pages(read_page: Callable[..., Any], items: str) -> list[Any]:
    """Return the items of every page of a list."""
    rows: list[Any] = []
    after: str | None = ""
    while after is not None:
        page = read_page(after=after)
        rows += getattr(page, items)
        after = page.next
    return rows


def _all(read_list: Callable[..., list[Any]], after: Any, place: Callable[[Any], Any]) -> list[Any]:
    """Return the items of a list that is read in parts, from after a place on."""
    rows: list[Any] = []
    while more := read_list(after=after, limit=_PAGE):
        rows += more
        after = place(more[-1])
    return rows
