"""Verify: a task or all books recomputed from their records, and every check in words."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response  # noqa: TC002 - FastAPI reads them

from fedbourse.dashboard.pages import page
from fedbourse.dashboard.visits import KnownPageVisit, SignedIn, signed_in
from fedbourse.errors import TooLarge
from fedbourse.market import views
from fedbourse.market.accounts import visible_escrow
from fedbourse.market.service import escrow, show
from fedbourse.market.verify import verify_books, verify_task
from fedbourse.web.paths import TaskId  # noqa: TC001 - as above

if TYPE_CHECKING:
    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task
    from fedbourse.market.verify import Check

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

    def read(unit: Unit, caller: Caller) -> dict[str, Any]:
        found = show(unit.task(task), caller)
        return {"goal": found.card.goal, "records": _task_size(unit, caller, found)}

    return _page(visit, task=task, **visit.read(read))


@router.post("/tasks/{task}/verify")
def check_task(visit: SignedIn, task: TaskId) -> Response:
    """Recompute a task from all records that the caller may see."""
    visit.computes()

    def read(unit: Unit, caller: Caller) -> dict[str, Any]:
        found = show(unit.task(task), caller)
        size = _task_size(unit, caller, found)
        _refuse_too_many(size, task)
        return {
            "goal": found.card.goal,
            "records": size,
            "documents": _task_records(visit.market, unit, caller, found),
        }

    begun = time.perf_counter()
    found = visit.read(read)
    checks = verify_task(**found.pop("documents"))
    return _page(visit, task=task, checks=checks, took_s=time.perf_counter() - begun, **found)


@router.get("/ledger/verify")
def before_books(visit: Auditor) -> Response:
    """Say what would be recomputed of the books, and how long that takes."""
    return _page(visit, records=visit.read(lambda unit, caller: _transfers(unit)))


@router.post("/ledger/verify")
def check_books(visit: Auditor) -> Response:
    """Recompute every balance of the market from all transfers."""

    def read(unit: Unit, caller: Caller) -> tuple[int, list[Any], list[Any]]:
        size = _transfers(unit)
        _refuse_too_many(size, "books")
        return size, _all_entries(unit), _all_balances(unit)

    begun = time.perf_counter()
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


def _task_size(unit: Unit, caller: Caller, task: Task) -> int:
    """Return how many records the caller's verification reads, about."""
    events = task.last_sequence + 1
    if not caller.scopes & {"auditor", "operator"}:
        return events
    owners = unit.count_interests(task.id)
    signed = unit.count_lines(task.id, state="signed")
    return events + (2 + len(task.totals)) * owners + 2 * signed * task.round


def _task_records(market: Market, unit: Unit, caller: Caller, task: Task) -> dict[str, Any]:
    """Return what ``verify_task`` takes, as far as the caller may see it, of one moment."""
    found: dict[str, Any] = {
        "task": views.task_document(task),
        "card": task.card.document,
        "events": [views.event_document(each) for each in _events(unit, task)],
    }
    if caller.scopes & {"auditor", "operator"}:
        begun = range(min(task.round + 1, task.card.rounds))
        found |= {
            "owners": _owners(unit, caller, task),
            "entries": _all_entries(unit, account=escrow(task.id)),
            "escrow_micro": unit.balance(escrow(task.id)),
            "answers": {
                number: views.round_answers(unit, caller, task.id, round=number)["answers"]
                for number in begun
                if unit.has_round(task.id, number)
            },
        }
    elif caller.party == task.buyer:
        found["escrow_micro"] = visible_escrow(unit, caller, task)
    if "owner" in caller.scopes and unit.interest(task.id, caller.party) is not None:
        own = views.mine(market, unit, caller, task.id)
        proof = views.proof(unit, caller, task.id) if own["line"] else None
        found["own"] = own | {"proof": proof}
    # As the API gives them: a verification reads documents, not the market's own objects.
    answers = found.pop("answers", None)
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain | {"answers": answers}


def _events(unit: Unit, task: Task) -> list[Any]:
    found: list[Any] = []
    while more := unit.events(task.id, after=len(found) - 1, limit=_PAGE):
        found += more
    return found


def _owners(unit: Unit, caller: Caller, task: Task) -> list[Any]:
    found: list[Any] = []
    after: str | None = ""
    while after is not None:
        answer = views.everybody(unit, caller, task.id, after=after, limit=_PAGE)
        found += answer["owners"]
        after = answer["next"]
    return found


def _all_entries(unit: Unit, account: str | None = None) -> list[Any]:
    found: list[Any] = []
    after = 0
    while entries := unit.entries(account=account, after=after, limit=_PAGE):
        found += [asdict(entry) for entry in entries]
        after = entries[-1].sequence
    return found


def _all_balances(unit: Unit) -> list[Any]:
    found: list[Any] = []
    after = ""
    while balances := unit.balances(after=after, limit=_PAGE):
        found += [{"party": name, "balance_micro": held} for name, held in balances]
        after = balances[-1][0]
    return found


def _transfers(unit: Unit) -> int:
    """Return about how many transfers there are: the number of the last, found by halving."""
    low, high = 0, 1
    while unit.entries(after=high, limit=1):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if unit.entries(after=middle, limit=1) else (low, middle)
    return high if unit.entries(after=low, limit=1) else low
