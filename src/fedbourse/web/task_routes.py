"""What a buyer does with its tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fastapi import APIRouter
from starlette.responses import Response

from fedbourse.errors import Conflict
from fedbourse.market import documents, what_if
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import training as training_commands
from fedbourse.market.commands.reference_gradients import put_reference_gradient as put_gradient
from fedbourse.market.document_types import TaskDocument, TaskReport
from fedbourse.market.evidence_outlook import EvidenceOutlook
from fedbourse.market.evidence_report import EvidenceReport
from fedbourse.market.parties import Caller
from fedbourse.market.ports import Transaction
from fedbourse.market.records import Round, Task
from fedbourse.market.service import Market
from fedbourse.tasks.card import TaskCard
from fedbourse.web.bodies import Cancellation, Nothing, Opening
from fedbourse.web.cards import CardBody
from fedbourse.web.context import AuthenticatedContext
from fedbourse.web.dependencies import AuthenticatedDep
from fedbourse.web.openapi import BYTES, BYTES_RESPONSES, EITHER, MODEL_RESPONSES, TOKEN
from fedbourse.web.paths import AfterName, Limit, OwnersAssumed, Rewards, RoundNumber, TaskId
from fedbourse.web.strict_route import StrictRoute

router = APIRouter(route_class=StrictRoute, tags=["buyer"])


def _move(
    context: AuthenticatedContext,
    task: str,
    command: Callable[[Market, Transaction, Caller, str], Task],
) -> Response:
    """Carry out a command on a task, and respond with the task."""
    market = context.service.market
    return context.write(
        lambda tx, caller: documents.task_document(command(market, tx, caller, task))
    )


@router.post("/tasks", status_code=201, response_model=TaskDocument, openapi_extra=TOKEN)
def create_task(context: AuthenticatedDep, card: CardBody) -> Response:
    """Store a draft."""
    market = context.service.market
    return context.write(
        lambda tx, caller: documents.task_document(
            buyer_commands.create(market, tx, caller, TaskCard.of(card))
        ),
        status=201,
    )


@router.put(
    "/tasks/{task}/reference",
    response_model=TaskDocument,
    openapi_extra=TOKEN | {"requestBody": {"required": True, "content": BYTES}},
)
def put_reference(context: AuthenticatedDep, task: TaskId) -> Response:
    """Upload the reference records of a draft whose card has evidence.

    Where the buyer sends gradients of them instead, it reveals them so once the task has ended.
    32 bytes of salt, then each record's features and label in little-endian doubles; SHA-256 of
    all of it is what the card commits to.
    """
    content = context.request.body
    return _move(context, task, partial(buyer_commands.put_reference, content=content))


@router.get(
    "/tasks/{task}/reference",
    response_class=Response,
    responses=BYTES_RESPONSES,
    openapi_extra=EITHER,
)
def fetch_reference(context: AuthenticatedDep, task: TaskId) -> Response:
    """Return the reference records once the task has ended: to its buyer and to auditors.

    To owners who trained as well, where the card says so.
    """
    with context.service.view(context.caller) as view:
        content = view.reference(task)
    return Response(content, media_type="application/octet-stream")


@router.get(
    "/tasks/{task}/rounds/{number}/model",
    response_class=Response,
    responses=MODEL_RESPONSES,
    openapi_extra=TOKEN,
)
def fetch_newest_model(context: AuthenticatedDep, task: TaskId, number: RoundNumber) -> Response:
    """Return the model of the round that is open, or waits to open, to the task's buyer."""
    with context.service.view(context.caller) as view:
        round = view.newest_model(task)
    if round.number != number:
        raise Conflict(f"task {task} is at round {round.number}; its model is the newest")
    return _model_response(round)


@router.put(
    "/tasks/{task}/rounds/{number}/reference",
    response_model=TaskDocument,
    openapi_extra=TOKEN | {"requestBody": {"required": True, "content": BYTES}},
)
def put_reference_gradient(
    context: AuthenticatedDep, task: TaskId, number: RoundNumber
) -> Response:
    """Upload the gradient of the reference records at the model of a round that waits for it.

    32 bytes of salt, then little-endian doubles: the means of the clipped gradients of records 0,
    2, 4, ... and of records 1, 3, 5, ...; for any-class-mixture then that of each class that is
    there, and their shares. The round opens at once, and the log has the SHA-256 of all of it.
    """
    content = context.request.body
    command = partial(put_gradient, round=number, content=content)
    return _move(context, task, command)


@router.get("/tasks/{task}/evidence", response_model=EvidenceReport, openapi_extra=EITHER)
def show_evidence(
    context: AuthenticatedDep, task: TaskId, after: AfterName = "", limit: Limit = 100
) -> Response:
    """Show what evidence found, once the task has ended.

    To auditors and the operator every device, to an owner its own, to the buyer how many.
    """
    return context.read(lambda view: view.evidence(task, after=after, limit=limit), heavy=True)


@router.get("/tasks/{task}/evidence/outlook", response_model=EvidenceOutlook, openapi_extra=TOKEN)
def show_evidence_outlook(context: AuthenticatedDep, task: TaskId) -> Response:
    """Show the buyer, before training, what evidence will be able to tell.

    Below which budget a device cannot be judged; once the task is settled, which part of the pay
    goes to smaller budgets.
    """
    return context.read(lambda view: view.evidence_outlook(task), heavy=True)


@router.post("/tasks/{task}/open", response_model=TaskDocument, openapi_extra=TOKEN)
def open_task(context: AuthenticatedDep, task: TaskId, body: Opening | None = None) -> Response:
    """Publish a draft and reserve its reward: owners can register their interest."""
    confirmed = body is not None and body.confirm_upfront
    return _move(context, task, partial(buyer_commands.open_task, confirm_upfront=confirmed))


@router.post("/tasks/{task}/announce", response_model=TaskDocument, openapi_extra=TOKEN)
def announce_task(context: AuthenticatedDep, task: TaskId, body: Nothing | None = None) -> Response:
    """End the time for interest: fix the reward, and give back what was reserved beyond it."""
    return _move(context, task, buyer_commands.announce)


@router.post("/tasks/{task}/train", response_model=TaskDocument, openapi_extra=TOKEN)
def train_task(context: AuthenticatedDep, task: TaskId, body: Nothing | None = None) -> Response:
    """End the time for review: open round 0 with those who signed."""
    return _move(context, task, training_commands.start)


@router.post("/tasks/{task}/cancel", response_model=TaskDocument, openapi_extra=TOKEN)
def cancel_task(
    context: AuthenticatedDep, task: TaskId, body: Cancellation | None = None
) -> Response:
    """End a task before its time; the pay of rounds that were not closed goes to the buyer."""
    reason = body.reason if body else ""
    return _move(context, task, partial(buyer_commands.cancel, reason=reason))


@router.get("/tasks/{task}/what-if", response_model=what_if.WhatIfDocument, openapi_extra=TOKEN)
def what_if_task(
    context: AuthenticatedDep, task: TaskId, rewards: Rewards, owners: OwnersAssumed = None
) -> Response:
    """Show what rewards would buy to a task's buyer, the operator and auditors, before it settles.

    From the values that owners reported, where five or more did; otherwise from the card's
    assumptions.
    """
    amounts = what_if.rewards_in(rewards)
    return context.read(lambda view: view.what_if(task, rewards=amounts, owners=owners), heavy=True)


@router.get("/tasks/{task}/report", response_model=TaskReport, openapi_extra=TOKEN)
def report_task(context: AuthenticatedDep, task: TaskId) -> Response:
    """Show a task's totals to its buyer, the operator and auditors."""
    return context.read(lambda view: view.report(task), heavy=True)


@router.get(
    "/tasks/{task}/model", response_class=Response, responses=MODEL_RESPONSES, openapi_extra=TOKEN
)
def fetch_model(context: AuthenticatedDep, task: TaskId) -> Response:
    """Return the model of a completed task to its buyer and the operator."""
    with context.service.view(context.caller) as view:
        last = view.model(task)
    return _model_response(last)


def _model_response(round: Round) -> Response:
    headers = {"Fedbourse-Model-Hash": round.model_hash}
    return Response(round.model, media_type="application/octet-stream", headers=headers)
