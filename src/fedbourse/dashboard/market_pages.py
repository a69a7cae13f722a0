"""What everybody sees first: the list of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.responses import Response  # noqa: TC002 - FastAPI reads them

from fedbourse.dashboard.pages import page
from fedbourse.dashboard.visits import PageVisitor  # noqa: TC001 - as above
from fedbourse.market import views
from fedbourse.market.service import FUND
from fedbourse.market.task import State
from fedbourse.units import micro_credits

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.task import Task
    from fedbourse.wire.card import TaskCard


router = APIRouter()
ROWS = 20
SEARCHED_MAX = 1000
"""Of more tasks than this only the newest are listed."""
SORTS = {"newest": "newest", "reward": "highest reward", "deadline": "next deadline"}

Sort = Literal["newest", "reward", "deadline"]
Text = Annotated[str, Query(max_length=200)]


@router.get("/")
def market_page(
    visit: PageVisitor,
    state: State | Literal[""] = "",
    text: Text = "",
    sort: Sort = "newest",
    number: Annotated[int, Query(alias="page", ge=1, le=1000)] = 1,
) -> Response:
    """List the tasks."""
    wanted = State(state) if state else None

    def rows(unit: Unit, caller: Caller | None) -> dict[str, Any]:
        found, more = _all_tasks(unit, caller, wanted)
        found = [task for task in found if _mentions(task, text)]
        found.sort(key=_order(sort))
        start = (number - 1) * ROWS
        shown = found[start : start + ROWS]
        for task in shown:
            if task["state"] == State.OPEN:
                task["interested"] = unit.count_interests(task["task"])
        return {
            "tasks": shown,
            "count": len(found),
            "more": more,
            "fund": visit.market.fund | {"balance_micro": unit.balance(FUND)},
        }

    found = visit.read(rows)
    asked = {"state": state, "text": text, "sort": sort if sort != "newest" else ""}
    query = {name: value for name, value in asked.items() if value}
    last = max(1, -(-found["count"] // ROWS))
    return page(
        visit,
        "_tasks.html" if visit.by_script else "market.html",
        **found,
        states=[each for each in State if each is not State.DRAFT or visit.caller is not None],
        sorts=SORTS,
        state=state,
        text=text,
        sort=sort,
        number=number,
        last=last,
        searched_max=SEARCHED_MAX,
        at=lambda number: "/?" + urlencode({**query, "page": number}),
    )


def promised(task: Task) -> dict[str, Any]:
    """Return the reward as it is known now: fixed, said by the card, or still to be computed."""
    if task.reward is not None:
        return {"micro": task.reward, "fixed": True}
    return {"micro": _card_reward(task.card), "fixed": False}


def _card_reward(card: TaskCard) -> int | None:
    return None if isinstance(card.reward, str) else micro_credits(f"{card.reward:.6f}")


def _all_tasks(
    unit: Unit, caller: Caller | None, state: State | None
) -> tuple[list[dict[str, Any]], bool]:
    """Return tasks with their rewards, newest first, and whether older ones were left out."""
    answer = views.tasks(unit, caller, state=state, before=None, limit=SEARCHED_MAX)
    for task in answer["tasks"]:
        fixed = task["reward_micro"] is not None
        task["reward"] = (
            {"micro": task["reward_micro"], "fixed": True}
            if fixed
            else promised(unit.task(task["task"]))
        )
    return answer["tasks"], answer["next"] is not None


def _mentions(task: dict[str, Any], text: str) -> bool:
    words = text.casefold().split()
    said = f"{task['goal']} {task['data']} {task['buyer']} {task['task']}".casefold()
    return all(word in said for word in words)


def _order(sort: Sort) -> Callable[[dict[str, Any]], Any]:
    """Return the key that puts tasks in order; what has no reward or deadline comes last."""
    if sort == "reward":
        return lambda task: (task["reward"]["micro"] is None, -(task["reward"]["micro"] or 0))
    if sort == "deadline":
        return lambda task: (task["deadline_ms"] is None, task["deadline_ms"] or 0)
    return lambda task: (-task["created_ms"], task["task"])
