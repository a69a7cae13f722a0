"""Public routes: the market as a whole, and tasks that are not drafts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from fedbourse.encoding.canonical import canonical
from fedbourse.encoding.documents import plain
from fedbourse.market.document_types import (
    EventPage,
    FundFacts,
    PublishedCard,
    TaskDocument,
    TaskPage,
)
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.parties import Scope
from fedbourse.market.records import State, TaskVersion, version_of
from fedbourse.market.views import View
from fedbourse.protocol.messages import market_message
from fedbourse.protocol.rotation import Rotation
from fedbourse.version import __version__
from fedbourse.web.dependencies import AuthenticatedDep, ContextDep, RequestDep, ServiceDep
from fedbourse.web.limits import peer_of
from fedbourse.web.openapi import ANYBODY, EITHER
from fedbourse.web.paging import page
from fedbourse.web.paths import (
    AfterEvent,
    AfterOpening,
    Before,
    Challenge,
    Limit,
    SeenEvents,
    TaskId,
    Wait,
)
from fedbourse.web.service import Service
from fedbourse.web.signed_heads import SignedHead
from fedbourse.web.stream import last_event
from fedbourse.web.strict_route import StrictRoute

router = APIRouter(route_class=StrictRoute)
_TASKS_LIGHT = 100
"""A longer list of tasks is heavy work: every card in it is read."""
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
                            "contentSchema": {"$ref": "#/components/schemas/Event"},
                        },
                    },
                }
            }
        },
    },
    204: {"description": "The task has ended, and its last event was seen."},
}


@dataclass(frozen=True)
class Health:
    """The service and its database respond."""

    status: Literal["ok"]


@dataclass(frozen=True)
class RequestLimits:
    """The largest bodies that the market reads."""

    json_bytes_max: int
    update_bytes_max: int


@dataclass(frozen=True)
class MarketFacts:
    """What a market publishes about itself."""

    name: str
    version: str
    public_key: str
    """The key that the market signs terms and receipts with; pin it."""
    proof: str | None
    """Its signature of the message of kind market, with the host and the challenge; null without a
    challenge, or where the host is not the market's."""
    rotations: Sequence[Rotation]
    """The keys that the market had before, each signed over to the next."""
    fund: FundFacts
    limits: RequestLimits


@dataclass(frozen=True)
class Me:
    """The caller, as the market knows it."""

    party: str
    scopes: frozenset[Scope]
    device: str | None
    """The device that signed the request, where one did."""


@router.get("/health", tags=["market"], response_model=Health, openapi_extra={"security": []})
async def health(service: ServiceDep) -> Response:
    """Check that the service and its database respond."""
    await asyncio.get_running_loop().run_in_executor(service.health_thread, _read_fund, service)
    return JSONResponse(plain(Health(status="ok")))


def _read_fund(service: Service) -> None:
    with service.view() as view:
        view.fund()


@router.get("/market", tags=["market"], response_model=MarketFacts, openapi_extra={"security": []})
def market(service: ServiceDep, request: RequestDep, challenge: Challenge = "") -> Response:
    """Show the market's name, public key and fund.

    A challenge is signed together with the host that was asked for, which proves that the market
    holds its key; under a host that is not its own the market signs nothing.
    """
    settings, host = service.settings, request.authority.lower()
    with service.view() as view:
        fund, rotations = view.fund(), view.rotations()
    proof = None
    if challenge and (not settings.authorities or host in settings.authorities):
        message = market_message(host=host, challenge=challenge)
        proof = service.market.key.sign(canonical(message))
    facts = MarketFacts(
        name=settings.name,
        version=__version__,
        public_key=service.market.key.public,
        proof=proof,
        rotations=rotations,
        fund=fund,
        limits=RequestLimits(
            json_bytes_max=settings.json_bytes_max, update_bytes_max=settings.update_bytes_max
        ),
    )
    return JSONResponse(plain(facts))


@router.get("/me", tags=["market"], response_model=Me, openapi_extra=EITHER)
def me(context: AuthenticatedDep) -> Response:
    """Show who the caller is."""
    caller = context.caller
    return JSONResponse(plain(Me(caller.party, caller.scopes, caller.device)))


@router.get("/log", tags=["market"], response_model=EventPage, openapi_extra=ANYBODY)
def list_openings(context: ContextDep, after: AfterOpening = -1, limit: Limit = 100) -> Response:
    """List the events that opened tasks, each holding its number and the opening before."""

    def openings(view: View) -> EventPage:
        events = view.openings(after=after, limit=limit)
        return EventPage(events, events[-1].body["opening"] if len(events) == limit else None)

    return context.read(openings)


@router.get("/log/head", tags=["market"], response_model=SignedHead, openapi_extra=ANYBODY)
def show_market_head(context: ContextDep) -> Response:
    """Show where the list of opened tasks ends, signed with the time: keep it to compare later."""
    return context.read(lambda view: context.service.heads.signed(view.market_head()))


@router.get("/tasks", tags=["tasks"], response_model=TaskPage, openapi_extra=ANYBODY)
def list_tasks(
    context: ContextDep, state: State | None = None, before: Before = None, limit: Limit = 100
) -> Response:
    """List tasks, newest first; drafts are for their buyer, the operator and auditors."""
    return context.read(
        lambda view: view.tasks(state=state, before=before, limit=limit),
        heavy=limit > _TASKS_LIGHT,
    )


@router.get("/tasks/{task}", tags=["tasks"], response_model=TaskDocument, openapi_extra=ANYBODY)
async def show_task(
    context: ContextDep, http: HttpRequest, task: TaskId, seen: SeenEvents = 0, wait: Wait = 0.0
) -> Response:
    """Show a task; with ``wait``, once it has more events than were seen, or has ended."""

    def is_new(version: TaskVersion) -> bool:
        return version.events > seen or version.state in ENDED

    def read(view: View) -> Response:
        return Response(canonical(view.task_document(task)), media_type="application/json")

    def read_new(view: View) -> Response | None:
        return read(view) if is_new(version_of(view.task(task))) else None

    if wait:
        response = await context.wait(http, task, read_new, is_new=is_new, wait_s=wait)
        if response is not None:
            return response
    return await context.run_read(read)


@router.get(
    "/tasks/{task}/card", tags=["tasks"], response_model=PublishedCard, openapi_extra=ANYBODY
)
def show_card(context: ContextDep, task: TaskId) -> Response:
    """Show a task's card, its hash, to which an owner's interest refers, and the fund."""
    return context.read(lambda view: view.card(task))


@router.get("/tasks/{task}/events", tags=["tasks"], response_model=EventPage, openapi_extra=ANYBODY)
def list_events(
    context: ContextDep, task: TaskId, after: AfterEvent = -1, limit: Limit = 100
) -> Response:
    """List a task's log, each event holding the hash of the one before."""
    return context.read(
        lambda view: page(EventPage, view.events(task, after=after, limit=limit), limit, "sequence")
    )


@router.get("/tasks/{task}/head", tags=["tasks"], response_model=SignedHead, openapi_extra=ANYBODY)
def show_task_head(context: ContextDep, task: TaskId) -> Response:
    """Show where a task's log ends, signed with the time: keep it to compare later."""
    return context.read(lambda view: context.service.heads.signed(view.task_head(task)))


def _check_visible(context: ContextDep, task: TaskId) -> None:
    with context.service.view(context.caller) as view:
        view.task(task)


@router.get(
    "/tasks/{task}/stream",
    tags=["tasks"],
    response_class=Response,
    responses=_STREAM,
    dependencies=[Depends(_check_visible)],
    openapi_extra=ANYBODY,
)
async def stream_events(
    service: ServiceDep,
    http: HttpRequest,
    task: TaskId,
    after: AfterEvent = -1,
    last_event_id: Annotated[
        str | None, Header(description="The last event seen; it takes precedence over the query.")
    ] = None,
) -> Response:
    """Stream a task's events as they happen; resume with Last-Event-ID."""
    start = last_event(last_event_id, after)
    return await service.streams.respond(task, after=start, peer=peer_of(http.scope))
