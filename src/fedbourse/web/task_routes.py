"""What a buyer does with its tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from fedbourse.market import buying, documents, training, what_if
from fedbourse.web.bodies import (  # noqa: TC001 - FastAPI reads them
    Cancellation,
    Nothing,
    Opening,
)
from fedbourse.web.cards import CardBody  # noqa: TC001 - as above
from fedbourse.web.doors import NEEDS_KEY, Known, KnownVisit
from fedbourse.web.openapi import MODEL_ANSWER, TOKEN
from fedbourse.web.paths import OwnersAssumed, Rewards, TaskId  # noqa: TC001 - as above
from fedbourse.web.strict_route import StrictRoute
from fedbourse.web.task_documents import TaskDocument, TaskReport, WhatIfDocument
from fedbourse.wire.card import TaskCard

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.market.parties import Caller
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Task

router = APIRouter(route_class=StrictRoute, tags=["buyer"])


def _move(
    visit: KnownVisit, task: str, command: Callable[[Market, Unit, Caller, str], Task]
) -> Response:
    """Carry out a command on a task, and answer with the task."""
    market = visit.service.market
    return visit.write(
        lambda unit, caller: documents.task_document(command(market, unit, caller, task))
    )


@router.post(
    "/tasks",
    operation_id="create_task",
    status_code=201,
    response_model=TaskDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def create_task(visit: Known, card: CardBody) -> Response:
    """Store a draft."""
    market = visit.service.market
    return visit.write(
        lambda unit, caller: documents.task_document(
            buying.create(market, unit, caller, TaskCard.of(card))
        ),
        status=201,
    )


@router.post(
    "/tasks/{task}/open",
    operation_id="open_task",
    response_model=TaskDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def open_task(visit: Known, task: TaskId, body: Opening | None = None) -> Response:
    """Publish a draft and reserve its reward: owners can register their interest."""
    confirmed = body is not None and body.confirm_upfront
    return _move(visit, task, partial(buying.open_task, confirm_upfront=confirmed))


@router.post(
    "/tasks/{task}/announce",
    operation_id="announce_task",
    response_model=TaskDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def announce_task(visit: Known, task: TaskId, body: Nothing | None = None) -> Response:
    """End the time for interest: fix the reward, and give back what was reserved beyond it."""
    return _move(visit, task, buying.announce)


@router.post(
    "/tasks/{task}/train",
    operation_id="train_task",
    response_model=TaskDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def train_task(visit: Known, task: TaskId, body: Nothing | None = None) -> Response:
    """End the time for review: open round 0 with those who signed."""
    return _move(visit, task, training.start)


@router.post(
    "/tasks/{task}/cancel",
    operation_id="cancel_task",
    response_model=TaskDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=TOKEN,
)
def cancel_task(visit: Known, task: TaskId, body: Cancellation | None = None) -> Response:
    """End a task before its time; the pay of rounds that were not closed goes to the buyer."""
    reason = body.reason if body else ""
    return _move(
        visit,
        task,
        lambda market, unit, caller, id: buying.cancel(market, unit, caller, id, reason=reason),
    )


@router.get(
    "/tasks/{task}/what-if",
    operation_id="what_if_task",
    response_model=WhatIfDocument,
    openapi_extra=TOKEN,
)
def what_if_task(
    visit: Known, task: TaskId, rewards: Rewards, owners: OwnersAssumed = None
) -> Response:
    """Show what rewards would buy to a task's buyer, the operator and auditors, before it settles.

    From the values that owners told, where five or more did; otherwise from what the card assumes.
    """
    amounts = what_if.rewards_in(rewards)
    return visit.read(lambda view: view.what_if(task, rewards=amounts, owners=owners), heavy=True)


@router.get(
    "/tasks/{task}/report",
    operation_id="report_task",
    response_model=TaskReport,
    openapi_extra=TOKEN,
)
def report_task(visit: Known, task: TaskId) -> Response:
    """Show a task's totals to its buyer, the operator and auditors."""
    return visit.read(lambda view: view.report(task), heavy=True)


@router.get(
    "/tasks/{task}/model",
    operation_id="fetch_model",
    response_class=Response,
    responses=MODEL_ANSWER,
    openapi_extra=TOKEN,
)
def fetch_model(visit: Known, task: TaskId) -> Response:
    """Return the model of a completed task to its buyer and the operator."""
    return visit.read_model(lambda view: view.model(task))
