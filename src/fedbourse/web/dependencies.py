"""What routes depend on: the service, the request as it was signed, and the request's context."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import Request as HttpRequest

from fedbourse.errors import InvalidInput, TooManyRequests, Unauthenticated
from fedbourse.protocol.signatures import Request
from fedbourse.web.context import AuthenticatedContext, RequestContext
from fedbourse.web.identity import identify
from fedbourse.web.limits import peer_of
from fedbourse.web.service import Service


# Those that never block are coroutines: plain functions are each handed to a thread.
async def get_service(http: HttpRequest) -> Service:
    """Return the service behind a request."""
    service = http.app.state.service
    assert isinstance(service, Service)
    return service


async def get_request(http: HttpRequest) -> Request:
    """Return a request as it came over the wire, and as it was signed."""
    headers = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in http.headers.raw)
    hosts = [value for name, value in headers if name.lower() == "host"]
    if len(hosts) != 1:
        raise InvalidInput(f"a request must name one host; found {len(hosts)}")
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


RequestDep = Annotated[Request, Depends(get_request)]
ServiceDep = Annotated[Service, Depends(get_service)]


def get_context(http: HttpRequest, request: RequestDep, service: ServiceDep) -> RequestContext:
    """Return the context of anybody's request; whoever claims an identity must prove it."""
    now_ms = service.market.now_ms()
    authorities = service.settings.authorities
    with service.store.read() as tx:
        identity = identify(request, tx, now_ms=now_ms, authorities=authorities)
    if identity is not None:
        if service.callers.wait_s(identity.caller.party):
            raise TooManyRequests(f"{identity.caller.party} sends requests too fast; wait a second")
        if identity.signature is not None and not request.writes:
            # A write uses its nonce up in its own transaction.
            service.read_nonces.use(identity.signature, now_ms=now_ms)
    return RequestContext(service, request, peer_of(http.scope), identity)


ContextDep = Annotated[RequestContext, Depends(get_context)]


async def get_authenticated_context(context: ContextDep) -> AuthenticatedContext:
    """Return the context of a caller who proved who it is."""
    if context.identity is None:
        raise Unauthenticated("this needs a token (Authorization: Bearer) or a device's signature")
    return AuthenticatedContext(context.service, context.request, context.peer, context.identity)


AuthenticatedDep = Annotated[AuthenticatedContext, Depends(get_authenticated_context)]
