"""What routes share: the service behind them, who is asking, and how reads and writes go through.

A route declares ``Visitor`` (anybody), or ``Known`` (a caller who proved who it is), and answers
with ``read`` or ``write``.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Header
from starlette.requests import Request as HttpRequest  # noqa: TC002 - FastAPI reads it
from starlette.responses import Response

from fedbourse.errors import InvalidInput, NotSignedIn, TooManyRequests
from fedbourse.market.view import View
from fedbourse.web.identity import (
    Identity,
    check_authority,
    confirm,
    identify,
    still_holds,
    use_nonce,
)
from fedbourse.web.limits import peer_of
from fedbourse.web.writes import carry_out
from fedbourse.wire.canonical import canonical
from fedbourse.wire.keys import key_id
from fedbourse.wire.signatures import Request, verify_request

Answer = TypeVar("Answer")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from fedbourse.market.parties import Caller, Scope
    from fedbourse.market.ports import Payments, Store, Unit
    from fedbourse.market.service import Market
    from fedbourse.market.task import Mark, Round
    from fedbourse.web.heavy import HeavyWork
    from fedbourse.web.identity import ReadNonces
    from fedbourse.web.limits import Buckets
    from fedbourse.web.settings import Settings
    from fedbourse.web.signed_heads import SignedHeads
    from fedbourse.web.stream import Streams
    from fedbourse.web.waiting import Waiting

    Reveal = Callable[[dict[str, Any]], dict[str, Any]]


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")


@dataclass(frozen=True)
class Service:
    """All that stands behind the routes."""

    market: Market
    store: Store
    payments: Payments
    settings: Settings
    streams: Streams
    waiting: Waiting
    read_nonces: ReadNonces
    heads: SignedHeads
    callers: Buckets
    """How fast each caller may ask."""
    heavy: HeavyWork
    """Whose turn it is for what is computed at length."""
    own_thread: ThreadPoolExecutor = field(default_factory=_one_thread)
    """For what must be answered however busy the threads of requests are."""

    def at_length(self, caller: Caller | None, peer: str) -> AbstractContextManager[None]:
        """Compute something that takes long, if it is the turn of a caller or of an address."""
        return self.heavy.turn(peer if caller is None else caller.party, known=caller is not None)

    @contextmanager
    def view(self, caller: Caller | None = None) -> Iterator[View]:
        """Look at the records of one moment, as a caller or a stranger sees them."""
        with self.store.read() as unit:
            yield View(self.market, unit, caller)


@dataclass(frozen=True)
class Visit:
    """One request, and who sent it, if it said so."""

    service: Service
    request: Request
    peer: str
    """The network that it came from."""
    identity: Identity | None

    @property
    def caller(self) -> Caller | None:
        """Who asks; None for a stranger."""
        return None if self.identity is None else self.identity.caller

    def read(self, question: Callable[[View], object], *, heavy: bool = False) -> Response:
        """Answer with a document, from one moment of the records; a heavy one in its turn."""
        turn = self.service.at_length(self.caller, self.peer) if heavy else nullcontext()
        with turn, self.service.view(self.caller) as view:
            document = question(view)
        return Response(canonical(document), media_type="application/json")

    async def look(self, question: Callable[[View], Answer], *, again: bool = True) -> Answer:
        """Ask a question in a thread; where time has passed, the proof must hold ``again``."""
        return await anyio.to_thread.run_sync(self._look, question, again)

    async def wait(
        self,
        http: HttpRequest,
        task: str,
        question: Callable[[View], Response | None],
        *,
        news: Callable[[Mark], bool],
        wait_s: float,
    ) -> Response | None:
        """Return the answer to a question, once there is one; None where there is none in time.

        Between two looks nothing is held but the connection: a request that waits has no body.
        """
        waiting, again = self.service.waiting, False
        until = time.monotonic() + min(wait_s, self.service.settings.wait_max_s)
        while True:
            seen = waiting.changes
            found = await self.look(question, again=again)
            again = True
            left = until - time.monotonic()
            if found is not None or left <= 0 or waiting.over():
                return found
            there = await waiting.wait(
                http,
                task,
                news=news,
                wait_s=left,
                seen=seen,
                peer=self.peer,
                caller=None if self.caller is None else self.caller.party,
            )
            if not there:
                return Response(status_code=204)  # nobody reads it

    def _look(self, question: Callable[[View], Answer], again: bool) -> Answer:
        with self.service.store.read() as unit:
            if again and self.identity is not None:
                still_holds(self.identity, unit, now_ms=self.service.market.now_ms())
            return question(View(self.service.market, unit, self.caller))


@dataclass(frozen=True)
class KnownVisit(Visit):
    """One request of somebody who proved who it is."""

    identity: Identity

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return self.identity.caller

    def read_model(self, question: Callable[[View], Round]) -> Response:
        """Answer with the parameters of a model, and their hash."""
        with self.service.view(self.caller) as view:
            found = question(view)
        headers = {"Fedbourse-Model-Hash": found.model_hash}
        return Response(found.model, media_type="application/octet-stream", headers=headers)

    def write(
        self,
        command: Callable[[Unit, Caller], object],
        *,
        status: int = 200,
        reveal: Reveal | None = None,
    ) -> Response:
        """Carry a command out, and answer with the document that it returns.

        ``reveal`` adds to the answer what must not be kept with it.
        """
        now_ms = self.service.market.now_ms()
        return _written(
            self.service,
            self.request,
            caller=self.caller.party,
            confirm=lambda unit: confirm(self.identity, unit, now_ms=now_ms),
            command=lambda unit: command(unit, self.caller),
            status=status,
            reveal=reveal,
            scopes=self.caller.scopes,
        )


def enrol(
    visit_service: Service,
    request: Request,
    public_key: str,
    command: Callable[[Unit, str], object],
    *,
    status: int = 201,
) -> Response:
    """Carry out the one write of a device that is not known yet, signed with the key it brings."""
    device = key_id(public_key)
    check_authority(request, visit_service.settings.authorities)
    if any(name.lower() == "authorization" for name, _ in request.headers):
        raise NotSignedIn("a new device proves itself by its signature alone; send no token")
    signature = verify_request(
        request,
        lambda name: public_key if name == device else None,
        now_ms=visit_service.market.now_ms(),
    )
    return _written(
        visit_service,
        request,
        caller=f"device:{device}",
        confirm=lambda unit: use_nonce(signature, unit),
        command=lambda unit: command(unit, device),
        status=status,
    )


def _written(
    service: Service,
    request: Request,
    *,
    caller: str,
    confirm: Callable[[Unit], None],
    command: Callable[[Unit], object],
    status: int,
    reveal: Reveal | None = None,
    scopes: frozenset[Scope] = frozenset(),
) -> Response:
    outcome = carry_out(
        service.store,
        request,
        caller=caller,
        confirm=confirm,
        command=command,
        now_ms=service.market.now_ms(),
        status=status,
        scopes=scopes,
    )
    return Response(
        canonical(reveal(json.loads(outcome.body))) if reveal else outcome.body,
        status_code=outcome.status,
        media_type="application/json",
        headers={"Idempotency-Replayed": "true"} if outcome.replayed else None,
    )


async def service_of(http: HttpRequest) -> Service:
    """Return the service behind a request.

    Like others that never wait it is no plain function: those are each handed to a thread.
    """
    service = http.app.state.service
    assert isinstance(service, Service)
    return service


async def asked(http: HttpRequest) -> Request:
    """Return a request as it came over the wire."""
    headers = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in http.headers.raw)
    hosts = [value for name, value in headers if name.lower() == "host"]
    if len(hosts) != 1:
        raise InvalidInput(f"a request names one host; found {len(hosts)}")
    raw_path = http.scope.get("raw_path") or http.scope["path"].encode()
    return Request(
        method=http.method,
        scheme=http.url.scheme,
        authority=hosts[0].strip(),
        path=raw_path.decode("latin-1"),
        query=http.scope["query_string"].decode("latin-1"),
        headers=headers,
        body=await http.body(),
    )


def visit(
    http: HttpRequest,
    request: Annotated[Request, Depends(asked)],
    service: Annotated[Service, Depends(service_of)],
) -> Visit:
    """Return a visit by anybody; somebody who claims to be known must prove it."""
    now_ms = service.market.now_ms()
    authorities = service.settings.authorities
    with service.store.read() as unit:
        identity = identify(request, unit, now_ms=now_ms, authorities=authorities)
    if identity is not None:
        if service.callers.wait_s(identity.caller.party):
            raise TooManyRequests(f"{identity.caller.party} asks too often; wait a second")
        if identity.signature is not None and not request.writes:
            # A write uses its nonce up in its own transaction.
            service.read_nonces.use(identity.signature, now_ms=now_ms)
    return Visit(service, request, peer_of(http.scope), identity)


async def known_visit(anybody: Annotated[Visit, Depends(visit)]) -> KnownVisit:
    """Return a visit by somebody known."""
    if anybody.identity is None:
        raise NotSignedIn("this needs a token (Authorization: Bearer) or a device's signature")
    return KnownVisit(anybody.service, anybody.request, anybody.peer, anybody.identity)


async def _documented_key(
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Made by the caller; the same key again has no second effect.",
            examples=["2f1c7e0a-order-17"],
        ),
    ] = None,
) -> None:
    """Show the header in the API's document; ``writes`` checks it."""


Visitor = Annotated[Visit, Depends(visit)]
Known = Annotated[KnownVisit, Depends(known_visit)]
Asked = Annotated[Request, Depends(asked)]
Behind = Annotated[Service, Depends(service_of)]
NEEDS_KEY = [Depends(_documented_key)]
"""The dependencies of every write."""
