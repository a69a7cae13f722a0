"""What anybody may ask: of the market as a whole, and of tasks that are no drafts."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Header
from starlette.requests import Request as HttpRequest  # noqa: TC002 - FastAPI reads it
from starlette.responses import Response

from fedbourse.market import documents
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.task import State, mark_of
from fedbourse.version import __version__
from fedbourse.web.doors import Asked, Behind, Known, Visitor  # noqa: TC001 - FastAPI reads them
from fedbourse.web.limits import peer_of
from fedbourse.web.market_documents import (
    FundFacts,
    Health,
    Limits,
    MarketFacts,
    Me,
    RotationDocument,
)
from fedbourse.web.openapi import ANYBODY, EITHER
from fedbourse.web.paths import (  # noqa: TC001 - as above
    AfterEvent,
    Before,
    Challenge,
    Limit,
    SeenEvents,
    TaskId,
    Wait,
)
from fedbourse.web.stream import last_event
from fedbourse.web.strict_route import StrictRoute
from fedbourse.web.task_documents import EventPage, PublishedCard, TaskDocument, TaskPage
from fedbourse.wire.canonical import canonical
from fedbourse.wire.messages import market_message

if TYPE_CHECKING:
    from fedbourse.market.task import Mark
    from fedbourse.market.view import View
    from fedbourse.web.doors import Service

router = APIRouter(route_class=StrictRoute)
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events as they happen: id is the sequence number, data the event.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "required": ["data"],
                    "properties": {
                        "id": {"type": "string", "description": "The sequence number."},
                        "event": {"type": "string", "description": "The kind."},
                        "data": {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "contentSchema": {"$ref": "#/components/schemas/EventDocument"},
                        },
                    },
                }
            }
        },
    },
    204: {"description": "The task has ended, and its last event was seen."},
}


@router.get("/health", operation_id="health", tags=["market"], openapi_extra={"security": []})
async def health(service: Behind) -> Health:
    """Say that the service and its database answer."""
    # In a thread of its own: whatever takes up those of requests, this is answered.
    await asyncio.get_running_loop().run_in_executor(service.own_thread, _look_at, service)
    return Health(status="ok")


def _look_at(service: Service) -> None:
    with service.view() as view:
        view.fund()


@router.get("/market", operation_id="market", tags=["market"], openapi_extra={"security": []})
def market(service: Behind, request: Asked, challenge: Challenge = "") -> MarketFacts:
    """Say which market this is, by which key it is known, and what its fund holds.

    A challenge is signed with the key, under the name by which the market was asked for: everybody
    knows the key, and only the market can do that. Under a name that is not its own it does not.
    """
    settings, host = service.settings, request.authority.lower()
    with service.view() as view:
        fund, rotations = view.fund(), view.rotations()
    proof = None
    if challenge and (not settings.authorities or host in settings.authorities):
        message = market_message(host=host, challenge=challenge)
        proof = service.market.key.sign(canonical(message))
    return MarketFacts(
        name=settings.name,
        version=__version__,
        public_key=service.market.key.public,
        proof=proof,
        rotations=[RotationDocument(**asdict(rotation)) for rotation in rotations],
        fund=FundFacts(**fund),
        limits=Limits(
            json_bytes_max=settings.json_bytes_max, answer_bytes_max=settings.answer_bytes_max
        ),
    )


@router.get("/me", operation_id="me", tags=["market"], openapi_extra=EITHER)
def me(visit: Known) -> Me:
    """Say who the caller is to the market."""
    caller = visit.caller
    return Me(party=caller.party, scopes=sorted(caller.scopes), device=caller.device)


@router.get(
    "/tasks",
    operation_id="list_tasks",
    tags=["tasks"],
    response_model=TaskPage,
    openapi_extra=ANYBODY,
)
def list_tasks(
    visit: Visitor, state: State | None = None, before: Before = None, limit: Limit = 100
) -> Response:
    """List tasks, newest first; drafts are for their buyer, the operator and auditors."""
    return visit.read(lambda view: view.tasks(state=state, before=before, limit=limit))


@router.get(
    "/tasks/{task}",
    operation_id="show_task",
    tags=["tasks"],
    response_model=TaskDocument,
    openapi_extra=ANYBODY,
)
async def show_task(
    visit: Visitor, http: HttpRequest, task: TaskId, seen: SeenEvents = 0, wait: Wait = 0.0
) -> Response:
    """Show a task as it stands, once it has more events than were seen, or has ended."""

    def newer(mark: Mark) -> bool:
        return mark.events > seen or mark.state in ENDED

    def shown(view: View) -> Response:
        return Response(canonical(view.task_document(task)), media_type="application/json")

    def news(view: View) -> Response | None:
        return shown(view) if newer(mark_of(view.task(task))) else None

    if wait:
        answer = await visit.wait(http, task, news, news=newer, wait_s=wait)
        if answer is not None:
            return answer
    return await visit.look(shown)


@router.get(
    "/tasks/{task}/card",
    operation_id="show_card",
    tags=["tasks"],
    response_model=PublishedCard,
    openapi_extra=ANYBODY,
)
def show_card(visit: Visitor, task: TaskId) -> Response:
    """Show a task's card, the hash that the first message of a trade refers to, and the fund."""
    return visit.read(lambda view: view.card(task))


@router.get(
    "/tasks/{task}/events",
    operation_id="list_events",
    tags=["tasks"],
    response_model=EventPage,
    openapi_extra=ANYBODY,
)
def list_events(
    visit: Visitor, task: TaskId, after: AfterEvent = -1, limit: Limit = 100
) -> Response:
    """List a task's log, each event holding the hash of the one before."""

    def events(view: View) -> object:
        found = view.events(task, after=after, limit=limit)
        return {
            "events": [documents.event_document(event) for event in found],
            "next": found[-1].sequence if len(found) == limit else None,
        }

    return visit.read(events)


def _shown(visit: Visitor, task: TaskId) -> None:
    with visit.service.view(visit.caller) as view:
        view.task(task)


@router.get(
    "/tasks/{task}/stream",
    operation_id="stream_events",
    tags=["tasks"],
    response_class=Response,
    responses=_STREAM,
    dependencies=[Depends(_shown)],
    openapi_extra=ANYBODY,
)
async def stream_events(
    service: Behind,
    http: HttpRequest,
    task: TaskId,
    after: AfterEvent = -1,
    last_event_id: Annotated[
        str | None, Header(description="The last event seen; it goes before the query.")
    ] = None,
) -> Response:
    """Stream a task's events as they happen, to be taken up where it broke off."""
    seen = last_event(last_event_id, after)
    return await service.streams.answer(task, after=seen, peer=peer_of(http.scope))
