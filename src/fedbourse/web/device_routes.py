"""What an owner does through its device, and what it may see of itself."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Conflict, InvalidInput
from fedbourse.market import updates
from fedbourse.market.commands import access
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.document_types import Enrolled, Erased, Participation, Proof, SignedReceipt
from fedbourse.market.parties import EnrolledDevice
from fedbourse.market.records import (
    Allocation,
    Exit,
    Interest,
    RefusedFor,
    Round,
    TaskVersion,
    TickReply,
)
from fedbourse.market.views import View
from fedbourse.protocol.messages import enrolment_message
from fedbourse.web.bodies import Decision, EnrolmentBody, InterestBody, Nothing, PlanBody
from fedbourse.web.context import enrol
from fedbourse.web.dependencies import AuthenticatedDep, RequestDep, ServiceDep
from fedbourse.web.openapi import BYTES, DEVICE, EITHER, ROUND_REQUEST_RESPONSES
from fedbourse.web.paths import AfterRound, RoundNumber, TaskId, Wait
from fedbourse.web.strict_route import StrictRoute

router = APIRouter(route_class=StrictRoute, tags=["device"])


@router.post("/enrolments", status_code=201, response_model=Enrolled, openapi_extra=DEVICE)
def enrol_device(service: ServiceDep, request: RequestDep, body: EnrolmentBody) -> Response:
    """Enrol a device, which signs with the key that it brings; its owner's last one retires."""
    market = service.market

    def document(device: EnrolledDevice) -> Enrolled:
        host = request.authority.lower()
        message = enrolment_message(device=device.id, owner=device.owner, host=host)
        signature = market.key.sign(canonical(message))
        return Enrolled(device.id, device.owner, market.key.public, signature)

    with service.view() as view:
        view.check_enrolment(body.token)
    key = body.public_key
    return enrol(
        service,
        request,
        key,
        lambda tx, device: document(
            access.enrol(market, tx, token=body.token, device=device, public_key=key)
        ),
    )


@router.put("/tasks/{task}/interest", response_model=Interest, openapi_extra=DEVICE)
def put_interest(context: AuthenticatedDep, task: TaskId, body: InterestBody) -> Response:
    """Register interest in an open task, or replace it."""
    return context.execute(
        owner_commands.register_interest, task, value=body.value, previous=body.previous
    )


@router.delete("/tasks/{task}/interest", response_model=Exit, openapi_extra=EITHER)
def leave_task(context: AuthenticatedDep, task: TaskId) -> Response:
    """Leave a task before it is settled; that is final."""
    return context.execute(owner_commands.leave_task, task)


@router.put("/tasks/{task}/plan", response_model=TickReply, openapi_extra=DEVICE)
def put_plan(context: AuthenticatedDep, task: TaskId, body: PlanBody) -> Response:
    """Reply to the offer of this tick with a budget; it is final when the tick closes."""
    return context.execute(
        owner_commands.submit_plan,
        task,
        tick=body.tick,
        budget=body.budget,
        previous=body.previous,
    )


@router.get("/tasks/{task}/participation", response_model=Participation, openapi_extra=EITHER)
def show_participation(context: AuthenticatedDep, task: TaskId) -> Response:
    """Show an owner its own record of a task."""
    return context.read(lambda view: view.participation(task))


@router.get("/tasks/{task}/proof", response_model=Proof, openapi_extra=EITHER)
def show_proof(context: AuthenticatedDep, task: TaskId) -> Response:
    """Show an owner the path from its allocation to the root in the log."""
    return context.read(lambda view: view.proof(task))


@router.post("/tasks/{task}/terms", response_model=Allocation, openapi_extra=DEVICE)
def decide_terms(context: AuthenticatedDep, task: TaskId, body: Decision) -> Response:
    """Sign one's terms, or decline them."""
    return context.execute(
        owner_commands.decide,
        task,
        accept=body.accept,
        terms_digest=body.digest,
        signature=body.signature,
    )


@router.get(
    "/tasks/{task}/round-request",
    response_class=Response,
    responses=ROUND_REQUEST_RESPONSES,
    openapi_extra=EITHER,
)
async def fetch_round_request(
    context: AuthenticatedDep,
    http: HttpRequest,
    task: TaskId,
    after: AfterRound = -1,
    wait: Wait = 0.0,
) -> Response:
    """Return the request of the open round, with its model, to an owner who signed."""
    events = 0

    def is_new(version: TaskVersion) -> bool:
        return version.events > events  # each round opens with an event

    def read(view: View) -> Response | None:
        nonlocal events  # a device that is asked no more waits for the next round, and the next
        round, events = view.round_request(task, after=after), view.task(task).last_sequence + 1
        now_ms = context.service.market.now_ms()
        return None if round is None else _round_response(round, now_ms)

    response = await context.wait(http, task, read, is_new=is_new, wait_s=wait)
    return response or Response(status_code=204)


def _round_response(round: Round, now_ms: int) -> Response:
    headers = {
        "Fedbourse-Round": str(round.number),
        "Fedbourse-Model-Hash": round.model_hash,
        "Fedbourse-Request": round.request_hash,
        "Fedbourse-Previous": round.previous,
        "Fedbourse-Deadline": str(round.deadline_ms),
        "Fedbourse-Signature": round.signature,
        # A device need not know the market's time.
        "Fedbourse-Left-Ms": str(round.deadline_ms - now_ms),
    }
    return Response(round.model, media_type="application/octet-stream", headers=headers)


@router.put(
    "/tasks/{task}/rounds/{number}/update",
    response_model=SignedReceipt,
    openapi_extra=DEVICE | {"requestBody": {"required": True, "content": BYTES}},
)
def put_update(context: AuthenticatedDep, task: TaskId, number: RoundNumber) -> Response:
    """Send an update for the open round, in little-endian doubles or floats; get a receipt.

    An update that is late or invalid is refused, and the refusal is recorded.
    """
    request = context.request
    reasons: list[RefusedFor] = []
    try:
        return context.execute(
            updates.accept_update,
            task,
            round=number,
            body=request.body,
            body_hash=request.body_hash,
            refused=reasons.append,
        )
    except (Conflict, InvalidInput):
        if reasons:  # the transaction that refused it has left nothing
            market, store = context.service.market, context.service.store
            with store.begin() as tx:
                updates.remember_refused(
                    market, tx, context.caller, task, round=number, reason=reasons[-1]
                )
        raise


@router.post("/tasks/{task}/erasure", response_model=Erased, openapi_extra=DEVICE)
def erase_records(context: AuthenticatedDep, task: TaskId, body: Nothing | None = None) -> Response:
    """Erase an owner's values and budgets of a task that has ended; hashes and payments stay."""
    return context.execute(owner_commands.erase, task)
