"""What an owner does through its device, and what it may see of itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest  # noqa: TC002 - FastAPI reads it
from starlette.responses import Response

from fedbourse.errors import Conflict, InvalidInput
from fedbourse.market import access, answers, documents, selling
from fedbourse.market.task import State
from fedbourse.web.account_documents import Enrolled
from fedbourse.web.bodies import (  # noqa: TC001 - FastAPI reads them
    Decision,
    EnrolmentBody,
    InterestBody,
    Nothing,
    PlanBody,
)
from fedbourse.web.doors import NEEDS_KEY, Asked, Behind, Known, enrol
from fedbourse.web.openapi import BYTES, DEVICE, EITHER, QUERY_ANSWER
from fedbourse.web.owner_documents import (
    Erased,
    ExitDocument,
    InterestDocument,
    LineDocument,
    Mine,
    PlanDocument,
    Proof,
    SignedReceipt,
)
from fedbourse.web.paths import AfterRound, RoundNumber, TaskId, Wait  # noqa: TC001 - as above
from fedbourse.web.strict_route import StrictRoute
from fedbourse.wire.canonical import canonical
from fedbourse.wire.messages import enrolment_message

if TYPE_CHECKING:
    from fedbourse.market.parties import Device
    from fedbourse.market.task import Mark, RefusedFor, Round

router = APIRouter(route_class=StrictRoute, tags=["device"])


@router.post(
    "/enrolments",
    operation_id="enrol_device",
    status_code=201,
    response_model=Enrolled,
    dependencies=NEEDS_KEY,
    openapi_extra=DEVICE,
)
def enrol_device(service: Behind, request: Asked, body: EnrolmentBody) -> Response:
    """Take in a device, which signs with the key that it brings; the owner's last one retires."""

    def document(made: Device) -> object:
        message = enrolment_message(
            device=made.id, owner=made.owner, host=request.authority.lower()
        )
        return {
            "device": made.id,
            "owner": made.owner,
            "market_public_key": service.market.key.public,
            "signature": service.market.key.sign(canonical(message)),
        }

    with service.view() as view:
        view.check_enrolment(body.token)
    return enrol(
        service,
        request,
        body.public_key,
        lambda unit, device: document(
            access.enrol(
                service.market, unit, token=body.token, device=device, public_key=body.public_key
            )
        ),
    )


@router.put(
    "/tasks/{task}/interest",
    operation_id="put_interest",
    response_model=InterestDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=DEVICE,
)
def put_interest(visit: Known, task: TaskId, body: InterestBody) -> Response:
    """Register interest in an open task, in place of what was said before."""
    market = visit.service.market
    return visit.write(
        lambda unit, caller: asdict(
            selling.register_interest(
                market, unit, caller, task, value=body.value, previous=body.previous
            )
        )
    )


@router.delete(
    "/tasks/{task}/interest",
    operation_id="withdraw_interest",
    response_model=ExitDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=EITHER,
)
def withdraw_interest(visit: Known, task: TaskId) -> Response:
    """Withdraw from a task before it is settled; that cannot be taken back."""
    market = visit.service.market
    return visit.write(lambda unit, caller: asdict(selling.withdraw(market, unit, caller, task)))


@router.put(
    "/tasks/{task}/plan",
    operation_id="put_plan",
    response_model=PlanDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=DEVICE,
)
def put_plan(visit: Known, task: TaskId, body: PlanBody) -> Response:
    """Reply to the offer of this tick with a budget; it is final when the tick closes."""
    market = visit.service.market
    return visit.write(
        lambda unit, caller: asdict(
            selling.submit_plan(
                market,
                unit,
                caller,
                task,
                tick=body.tick,
                budget=body.budget,
                previous=body.previous,
            )
        )
    )


@router.get(
    "/tasks/{task}/mine", operation_id="show_mine", response_model=Mine, openapi_extra=EITHER
)
def show_mine(visit: Known, task: TaskId) -> Response:
    """Show an owner all that the market keeps of it in a task."""
    return visit.read(lambda view: view.mine(task))


@router.get(
    "/tasks/{task}/proof", operation_id="show_proof", response_model=Proof, openapi_extra=EITHER
)
def show_proof(visit: Known, task: TaskId) -> Response:
    """Show an owner the path from its line to the root in the log."""
    return visit.read(lambda view: view.proof(task))


@router.post(
    "/tasks/{task}/terms",
    operation_id="decide_terms",
    response_model=LineDocument,
    dependencies=NEEDS_KEY,
    openapi_extra=DEVICE,
)
def decide_terms(visit: Known, task: TaskId, body: Decision) -> Response:
    """Sign one's terms, or decline them."""
    market = visit.service.market
    return visit.write(
        lambda unit, caller: documents.line_entry(
            selling.decide(
                market,
                unit,
                caller,
                task,
                accept=body.accept,
                terms_digest=body.digest,
                signature=body.signature,
            )
        )
    )


@router.get(
    "/tasks/{task}/query",
    operation_id="fetch_query",
    response_class=Response,
    responses=QUERY_ANSWER,
    openapi_extra=EITHER,
)
async def fetch_query(
    visit: Known, http: HttpRequest, task: TaskId, after: AfterRound = -1, wait: Wait = 0.0
) -> Response:
    """Return the model that the open round asks about to an owner who signed, once it is open."""

    def newer(mark: Mark) -> bool:
        return mark.round > after or mark.state is not State.TRAINING

    now_ms = visit.service.market.now_ms
    return await visit.wait(
        http,
        task,
        lambda view: _asked(view.query(task, after=after), now_ms()),
        news=newer,
        wait_s=wait,
    ) or Response(status_code=204)


def _asked(round: Round | None, now_ms: int) -> Response | None:
    if round is None:
        return None
    headers = {
        "Fedbourse-Round": str(round.number),
        "Fedbourse-Model-Hash": round.model_hash,
        "Fedbourse-Query": round.query,
        "Fedbourse-Previous": round.previous,
        "Fedbourse-Deadline": str(round.deadline_ms),
        "Fedbourse-Signature": round.signature,
        # A device need not know what time it is here.
        "Fedbourse-Left-Ms": str(round.deadline_ms - now_ms),
    }
    return Response(round.model, media_type="application/octet-stream", headers=headers)


@router.put(
    "/tasks/{task}/rounds/{number}/answer",
    operation_id="put_answer",
    response_model=SignedReceipt,
    dependencies=NEEDS_KEY,
    openapi_extra=DEVICE | {"requestBody": {"required": True, "content": BYTES}},
)
def put_answer(visit: Known, task: TaskId, number: RoundNumber) -> Response:
    """Answer the open round with little-endian doubles or floats; the receipt says the pay.

    An answer that is late or bad is refused, and that is remembered.
    """
    market, request = visit.service.market, visit.request
    reasons: list[RefusedFor] = []
    try:
        return visit.write(
            lambda unit, caller: answers.accept_answer(
                market,
                unit,
                caller,
                task,
                round=number,
                body=request.body,
                body_hash=request.body_hash,
                refused=reasons.append,
            )
        )
    except (Conflict, InvalidInput):
        if reasons:  # the transaction that refused it has left nothing
            with visit.service.store.begin() as unit:
                answers.remember_refused(
                    market, unit, visit.caller, task, round=number, reason=reasons[-1]
                )
        raise


@router.post(
    "/tasks/{task}/erasure",
    operation_id="erase_mine",
    response_model=Erased,
    dependencies=NEEDS_KEY,
    openapi_extra=DEVICE,
)
def erase_mine(visit: Known, task: TaskId, body: Nothing | None = None) -> Response:
    """Forget what an owner said in a task that has ended; hashes and payments stay."""
    market = visit.service.market
    return visit.write(lambda unit, caller: selling.erase(market, unit, caller, task))
