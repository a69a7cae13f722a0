"""A request with its caller: how it reads, waits and writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio.to_thread
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from fedbourse.encoding.canonical import canonical
from fedbourse.errors import Unauthenticated
from fedbourse.market.parties import Caller
from fedbourse.market.ports import Transaction
from fedbourse.market.records import TaskVersion
from fedbourse.market.service import Market
from fedbourse.market.views import View
from fedbourse.protocol.keys import key_id
from fedbourse.protocol.signatures import Request, verify_request
from fedbourse.web.identity import Identity, check_authority, confirm, still_holds, use_nonce
from fedbourse.web.service import Service
from fedbourse.web.writes import WriteOutcome, carry_out

Result = TypeVar("Result")
Params = ParamSpec("Params")


@dataclass(frozen=True)
class RequestContext:
    """A request of anybody."""

    service: Service
    request: Request
    peer: str
    """The network that it came from."""
    identity: Identity | None

    @property
    def caller(self) -> Caller | None:
        """The authenticated caller; None for a stranger."""
        return None if self.identity is None else self.identity.caller

    def read(self, reader: Callable[[View], object], *, heavy: bool = False) -> Response:
        """Respond with a document from one snapshot of the records; a heavy one takes a turn."""
        turn = self.service.heavy_turn(self.caller, self.peer) if heavy else nullcontext()
        with turn, self.service.view(self.caller) as view:
            document = reader(view)
        return Response(canonical(document), media_type="application/json")

    async def run_read(self, reader: Callable[[View], Result], *, recheck: bool = True) -> Result:
        """Read in a thread; ``recheck`` that the caller's proof still holds, as time has passed."""

        def run() -> Result:
            with self.service.store.read() as tx:
                if recheck and self.identity is not None:
                    still_holds(self.identity, tx, now_ms=self.service.market.now_ms())
                return reader(View(self.service.market, tx, self.caller))

        return await anyio.to_thread.run_sync(run)

    async def wait(
        self,
        http: HttpRequest,
        task: str,
        reader: Callable[[View], Response | None],
        *,
        is_new: Callable[[TaskVersion], bool],
        wait_s: float,
    ) -> Response | None:
        """Return what the reader returns once that is a response; None where time runs out first.

        Between two reads nothing is held but the connection: a request that waits has no body.
        """
        polls, recheck = self.service.long_polls, False
        until = time.monotonic() + min(wait_s, self.service.settings.wait_max_s)
        while True:
            changes = polls.changes
            response = await self.run_read(reader, recheck=recheck)
            recheck = True
            left_s = until - time.monotonic()
            if response is not None or left_s <= 0 or polls.stopping():
                return response
            http.state.place.leave()
            connected = await polls.wait(
                http,
                task,
                is_new=is_new,
                wait_s=left_s,
                changes=changes,
                peer=self.peer,
                caller=None if self.caller is None else self.caller.party,
            )
            if not connected:
                return Response(status_code=204)  # nobody reads it
            await http.state.place.take()


@dataclass(frozen=True)
class AuthenticatedContext(RequestContext):
    """A request of a caller who proved who it is."""

    identity: Identity

    @property
    def caller(self) -> Caller:
        """The authenticated caller."""
        return self.identity.caller

    def execute(
        self,
        command: Callable[Concatenate[Market, Transaction, Caller, Params], object],
        *args: Params.args,
        **options: Params.kwargs,
    ) -> Response:
        """Carry out one of the market's commands, and respond with what it returns."""
        market = self.service.market
        return self.write(lambda tx, caller: command(market, tx, caller, *args, **options))

    def write(
        self,
        command: Callable[[Transaction, Caller], object],
        *,
        status: int = 200,
        reveal: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> Response:
        """Carry a command out, and respond with the document that it returns.

        ``reveal`` adds to the response what must not be stored with it.
        """
        now_ms = self.service.market.now_ms()
        outcome = carry_out(
            self.service.store,
            self.request,
            caller=self.caller.party,
            confirm=lambda tx: confirm(self.identity, tx, now_ms=now_ms),
            command=lambda tx: command(tx, self.caller),
            now_ms=now_ms,
            status=status,
            scopes=self.caller.scopes,
        )
        body = canonical(reveal(json.loads(outcome.body))) if reveal else None
        return _write_response(outcome, body)


def enrol(
    service: Service,
    request: Request,
    public_key: str,
    command: Callable[[Transaction, str], object],
) -> Response:
    """Carry out the one write of a device that is not enrolled yet, and signs with a key it brings.

    The command is given the id of the key's device.
    """
    device, now_ms = key_id(public_key), service.market.now_ms()
    check_authority(request, service.settings.authorities)
    if any(name.lower() == "authorization" for name, _ in request.headers):
        raise Unauthenticated("a new device proves itself by its signature alone; send no token")
    signature = verify_request(
        request, lambda name: public_key if name == device else None, now_ms=now_ms
    )
    outcome = carry_out(
        service.store,
        request,
        caller=f"device:{device}",
        confirm=lambda tx: use_nonce(signature, tx),
        command=lambda tx: command(tx, device),
        now_ms=now_ms,
        status=201,
    )
    return _write_response(outcome)


def _write_response(outcome: WriteOutcome, body: bytes | None = None) -> Response:
    """Return the outcome of a write as a response, with another body where one is given."""
    return Response(
        body or outcome.body,
        status_code=outcome.status,
        media_type="application/json",
        headers={"Idempotency-Replayed": "true"} if outcome.replayed else None,
    )
