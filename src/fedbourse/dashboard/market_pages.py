"""What everybody sees first: the list of tasks."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.responses import Response

from fedbourse.dashboard.page_context import PageContextDep
from fedbourse.dashboard.pages import page
from fedbourse.market.records import State, TaskOrder
from fedbourse.market.views import View

router = APIRouter()
ROWS = 20
SORTS = {"newest": "newest", "reward": "highest reward", "deadline": "next deadline"}

Text = Annotated[str, Query(max_length=200)]


@router.get("/")
def market_page(
    context: PageContextDep,
    state: State | Literal[""] = "",
    text: Text = "",
    sort: TaskOrder = "newest",
    number: Annotated[int, Query(alias="page", ge=1, le=1000)] = 1,
) -> Response:
    """List the tasks."""
    wanted = State(state) if state else None

    words = text.casefold().split()

    def rows(view: View) -> dict[str, Any]:
        tasks, count = view.search_tasks(
            state=wanted, words=words, order=sort, page=number, rows=ROWS
        )
        return {"tasks": tasks, "count": count, "fund": view.fund()}

    with context.at_length() if words else nullcontext():
        listing = context.read(rows)
    filters = {"state": state, "text": text, "sort": sort if sort != "newest" else ""}
    query = {name: value for name, value in filters.items() if value}
    last = max(1, -(-listing["count"] // ROWS))
    return page(
        context,
        "_tasks.html" if context.by_script else "market.html",
        **listing,
        states=[each for each in State if each is not State.DRAFT or context.caller is not None],
        sorts=SORTS,
        state=state,
        text=text,
        sort=sort,
        number=number,
        last=last,
        at=lambda number: "/?" + urlencode({**query, "page": number}),
    )
