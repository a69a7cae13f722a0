"""Verify: a task or all books recomputed from their records, and every check in words."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response  # noqa: TC002 - FastAPI reads them

from fedbourse.dashboard.pages import page
from fedbourse.dashboard.visits import KnownPageVisit, SignedIn, signed_in
from fedbourse.errors import TooLarge
from fedbourse.market import documents
from fedbourse.market.service import escrow
from fedbourse.market.verify import verify_books, verify_task
from fedbourse.web.paths import TaskId  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.task import Entry, Task
    from fedbourse.market.verify import Check
    from fedbourse.market.view import View

router = APIRouter()
Auditor = Annotated[KnownPageVisit, Depends(signed_in("auditor", "operator"))]
_PAGE = 10_000
RECORDS_MAX = 300_000
"""More than this is verified on the caller's own machine, by ``fedbourse verify``."""
RECORDS_PER_S = 10_000
"""What a small machine recomputes; slow rather than fast, for it is a promise."""
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
    "lines": "Each owner's line is what the log vouches for",
    "terms": "Signed terms are those that were offered",
    "answers": "Answers are those that were counted",
    "vesting": "Everybody was paid what it earned",
    "escrow": "What escrow held went to owners, the fund and the buyer by the rules",
    "own line": "Your line is in the log",
    "own payment": "Your pay follows from your budget",
    "own earnings": "You were paid for the rounds that you answered",
    "transfers": "No transfer overdraws an account",
    "balances": "Every balance follows from the transfers",
    "conservation": "No credit was made or lost",
}


@router.get("/tasks/{task}/verify")
def before_task(visit: SignedIn, task: TaskId) -> Response:
    """Say what would be recomputed of a task, and how long that takes."""

    def read(view: View) -> dict[str, Any]:
        found = view.task(task)
        return {"goal": found.card.goal, "records": _task_size(view, found)}

    return _page(visit, task=task, **visit.read(read))


@router.post("/tasks/{task}/verify")
def check_task(visit: SignedIn, task: TaskId) -> Response:
    """Recompute a task from all records that the caller may see."""

    def read(view: View) -> dict[str, Any]:
        found = view.task(task)
        size = _task_size(view, found)
        _refuse_too_many(size, task)
        return {
            "goal": found.card.goal,
            "records": size,
            "documents": _task_records(view, found),
        }

    begun = time.perf_counter()
    with visit.at_length():
        found = visit.read(read)
        checks = verify_task(**found.pop("documents"))
    return _page(visit, task=task, checks=checks, took_s=time.perf_counter() - begun, **found)


@router.get("/ledger/verify")
def before_books(visit: Auditor) -> Response:
    """Say what would be recomputed of the books, and how long that takes."""
    return _page(visit, records=visit.read(lambda view: view.last_transfer()))


@router.post("/ledger/verify")
def check_books(visit: Auditor) -> Response:
    """Recompute every balance of the market from all transfers."""

    def read(view: View) -> tuple[int, list[Any], list[Any]]:
        size = view.last_transfer()
        _refuse_too_many(size, "books")
        return size, _all(view.transfers), _all_balances(view)

    begun = time.perf_counter()
    with visit.at_length():
        size, entries, balances = visit.read(read)
        checks = verify_books(entries=entries, accounts=balances)
    return _page(visit, records=size, checks=checks, took_s=time.perf_counter() - begun)


def _page(
    visit: KnownPageVisit,
    *,
    records: int,
    task: str | None = None,
    goal: str = "",
    checks: list[Check] | None = None,
    took_s: float = 0.0,
) -> Response:
    counts = [sum(check.passed is each for check in checks or ()) for each in (True, False, None)]
    return page(
        visit,
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
        sees_all=visit.may("auditor", "operator"),
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
    found: dict[str, Any] = {
        "task": documents.task_document(task),
        "card": task.card.document,
        "events": [documents.event_document(each) for each in _events(view, task)],
    }
    if view.sees_all:
        begun = range(min(task.round + 1, task.card.rounds))
        account = escrow(task.id)
        found |= {
            "owners": _owners(view, task),
            "entries": _all(partial(view.statement, account)),
            "escrow_micro": view.balance(account),
            "answers": {
                number: _answers(view, task, number)
                for number in begun
                if view.has_round(task.id, number)
            },
        }
    if "owner" in view.known.scopes and (own := view.mine(task.id))["interest"] is not None:
        proof = view.proof(task.id) if own["line"] else None
        found["own"] = own | {"proof": proof}
    # As the API gives them: a verification reads documents, not the market's own objects.
    answers = found.pop("answers", None)
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain | {"answers": answers}


def _events(view: View, task: Task) -> list[Any]:
    found: list[Any] = []
    while more := view.events(task.id, after=len(found) - 1, limit=_PAGE):
        found += more
    return found


def _owners(view: View, task: Task) -> list[Any]:
    found: list[Any] = []
    after: str | None = ""
    while after is not None:
        answer = view.owners(task.id, after=after, limit=_PAGE)
        found += answer["owners"]
        after = answer["next"]
    return found


def _answers(view: View, task: Task, number: int) -> list[Any]:
    found: list[Any] = []
    after: str | None = ""
    while after is not None:
        answer = view.answers(task.id, round=number, after=after, limit=_PAGE)
        found += answer["answers"]
        after = answer["next"]
    return found


def _all(entries_after: Callable[..., list[Entry]]) -> list[Any]:
    found: list[Any] = []
    after = 0
    while entries := entries_after(after=after, limit=_PAGE):
        found += [asdict(entry) for entry in entries]
        after = entries[-1].sequence
    return found


def _all_balances(view: View) -> list[Any]:
    found: list[Any] = []
    after = ""
    while balances := view.accounts(after=after, limit=_PAGE):
        found += [{"party": name, "balance_micro": held} for name, held in balances]
        after = balances[-1][0]
    return found
