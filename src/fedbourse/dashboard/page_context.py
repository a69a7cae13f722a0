"""Who looks at a page, and how its reads and writes go through.

A route declares ``PageContextDep`` (anybody), ``SignedIn`` (others are sent to the sign-in), or
``Annotated[AuthenticatedPageContext, Depends(signed_in("buyer"))]`` (with one of these scopes).
A request that writes has passed the checks of origin and CSRF before the route sees it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from starlette.requests import Request as HttpRequest

from fedbourse.dashboard import forms, session
from fedbourse.dashboard.forms import KEY, AnyForm, Fields
from fedbourse.dashboard.session import Session
from fedbourse.encoding.canonical import canonical
from fedbourse.errors import InvalidInput, TooManyRequests, Unauthenticated
from fedbourse.market.parties import Caller, Scope
from fedbourse.market.ports import Transaction
from fedbourse.market.service import Market
from fedbourse.market.views import View
from fedbourse.protocol.signatures import Request
from fedbourse.web.dependencies import RequestDep, ServiceDep
from fedbourse.web.identity import Identity, confirm
from fedbourse.web.limits import peer_of
from fedbourse.web.service import Service
from fedbourse.web.writes import carry_out

Result = TypeVar("Result")
SIGN_OUT = "/sign-out"


@dataclass(frozen=True, kw_only=True)
class PageContext:
    """A request for a page, by anybody."""

    service: Service
    request: Request
    peer: str
    """The network that it came from."""
    now_ms: int
    session: Session | None = None
    identity: Identity | None = None
    fields: Fields = field(default_factory=dict)
    """What was posted."""

    @property
    def market(self) -> Market:
        """The market behind the pages."""
        return self.service.market

    @property
    def caller(self) -> Caller | None:
        """Who is signed in; None for a stranger."""
        return None if self.identity is None else self.identity.caller

    @property
    def csrf(self) -> str:
        """What the forms of this session carry; empty for a stranger."""
        return "" if self.session is None else session.csrf_of(self.market, self.session)

    @property
    def by_script(self) -> bool:
        """Whether htmx asks, so that a part of the page is enough."""
        restores = self.request.header("hx-history-restore-request") == "true"
        return self.request.header("hx-request") == "true" and not restores

    def may(self, *scopes: Scope) -> bool:
        """Say whether the caller holds one of these scopes."""
        return self.caller is not None and bool(self.caller.scopes.intersection(scopes))

    def read(self, reader: Callable[[View], Result]) -> Result:
        """Return what a function reads in one transaction."""
        with self.service.view(self.caller) as view:
            return reader(view)

    def at_length(self) -> AbstractContextManager[None]:
        """Compute something that takes long, if it is the caller's turn."""
        return self.service.heavy_turn(self.caller, self.peer)

    def form(self, model: type[AnyForm]) -> AnyForm:
        """Return what was posted as a model, or raise ``InvalidForm``."""
        return forms.read_form(self.fields, model)


@dataclass(frozen=True, kw_only=True)
class AuthenticatedPageContext(PageContext):
    """A request for a page, by somebody who is signed in."""

    identity: Identity

    @property
    def caller(self) -> Caller:
        """Who is signed in."""
        return self.identity.caller

    def write(self, command: Callable[[Transaction, Caller], object]) -> Any:
        """Carry a command out once, however often the form is sent; return its document."""
        keys = self.fields.get(KEY, [])
        if len(keys) != 1:
            raise InvalidInput("the form lacks its key; open the page again and repeat it")
        content = {name: values for name, values in self.fields.items() if name != forms.CSRF}
        request = replace(
            self.request, headers=(("idempotency-key", keys[0]),), body=canonical(content)
        )
        outcome = carry_out(
            self.service.store,
            request,
            caller=self.caller.party,
            confirm=self._confirm,
            command=lambda tx: command(tx, self.caller),
            now_ms=self.now_ms,
            scopes=self.caller.scopes,
        )
        return json.loads(outcome.body)

    def _confirm(self, tx: Transaction) -> None:
        """Refuse a write of somebody whose token or session ended meanwhile."""
        confirm(self.identity, tx, now_ms=self.now_ms)
        if self.session is not None and tx.has_ended(self.session.id):
            raise Unauthenticated("this session has ended; sign in again")


def page_context(request: RequestDep, service: ServiceDep, http: HttpRequest) -> PageContext:
    """Return a request's context; one that writes must come from a page of this very session."""
    _check_host(request, service.settings.authorities)
    market, now_ms = service.market, service.market.now_ms()
    browser_session = session.read_session(market, request, now_ms=now_ms)
    identity = None
    if browser_session is not None:
        with service.store.read() as tx:
            identity = session.identity_of(browser_session, tx, now_ms=now_ms)
    peer = peer_of(http.scope)
    context = PageContext(service=service, request=request, peer=peer, now_ms=now_ms)
    if browser_session is not None and identity is not None:
        context = replace(context, session=browser_session, identity=identity)
        # Whoever floods the market with a copied cookie must not keep its owner signed in.
        if request.path != SIGN_OUT and service.callers.wait_s(identity.caller.party):
            raise TooManyRequests(f"{identity.caller.party} asks too often; wait a second")
    http.state.page_context = context  # for the page of an error
    if request.method not in ("GET", "HEAD"):
        forms.check_origin(request)
        context = replace(context, fields=forms.read_fields(request))
        if context.session is not None:
            forms.check_csrf(context.fields, context.csrf)
    return context


def _check_host(request: Request, authorities: tuple[str, ...]) -> None:
    """Refuse a page under another name than the market's own.

    Otherwise a foreign site whose name leads to this address could have its visitors sign in to it.
    """
    if authorities and request.authority.lower() not in authorities:
        raise InvalidInput(
            f"this market is {' or '.join(authorities)}; the page was asked for at "
            f"{request.authority!a:.80}"
        )


def signed_in(*scopes: Scope) -> Callable[[PageContext], AuthenticatedPageContext]:
    """Return the dependency of pages for those who hold one of these scopes, or any if none."""

    def authenticated(
        context: Annotated[PageContext, Depends(page_context)],
    ) -> AuthenticatedPageContext:
        if context.identity is None:
            raise Unauthenticated("this page needs you to sign in")
        if scopes:
            context.identity.caller.require(*scopes)
        return AuthenticatedPageContext(**vars(context))

    return authenticated


PageContextDep = Annotated[PageContext, Depends(page_context)]
SignedIn = Annotated[AuthenticatedPageContext, Depends(signed_in())]
