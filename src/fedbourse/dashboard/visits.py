"""Who looks at a page, and how its reads and writes go through.

A route declares ``PageVisitor`` (anybody), ``SignedIn`` (somebody known; strangers are sent to the
sign-in), or ``Annotated[KnownPageVisit, Depends(signed_in("buyer"))]`` (with one of these scopes).
A visit that writes has passed the check of origin and CSRF before the route sees it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends
from starlette.requests import Request as HttpRequest  # noqa: TC002 - FastAPI reads it

from fedbourse.dashboard import forms, session
from fedbourse.dashboard.forms import KEY, AnyForm, Fields
from fedbourse.errors import InvalidInput, NotSignedIn, TooManyRequests
from fedbourse.web.doors import Asked, Behind, Service  # noqa: TC001 - as above
from fedbourse.web.identity import Identity, confirm
from fedbourse.web.limits import peer_of
from fedbourse.web.writes import carry_out
from fedbourse.wire.canonical import canonical
from fedbourse.wire.signatures import Request  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from fedbourse.dashboard.session import Session
    from fedbourse.market.parties import Caller, Scope
    from fedbourse.market.ports import Unit
    from fedbourse.market.service import Market
    from fedbourse.market.view import View

Answer = TypeVar("Answer")
SIGN_OUT = "/sign-out"


@dataclass(frozen=True, kw_only=True)
class PageVisit:
    """One look at a page, by anybody."""

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

    def read(self, question: Callable[[View], Answer]) -> Answer:
        """Return the answer to a question, from one moment of the records."""
        with self.service.view(self.caller) as view:
            return question(view)

    def at_length(self) -> AbstractContextManager[None]:
        """Compute something that takes long, if it is the visitor's turn."""
        return self.service.at_length(self.caller, self.peer)

    def form(self, model: type[AnyForm]) -> AnyForm:
        """Return what was posted as a model, or raise ``InvalidForm``."""
        return forms.read_form(self.fields, model)


@dataclass(frozen=True, kw_only=True)
class KnownPageVisit(PageVisit):
    """One look at a page, by somebody who is signed in."""

    identity: Identity

    @property
    def caller(self) -> Caller:
        """Who is signed in."""
        return self.identity.caller

    def write(self, command: Callable[[Unit, Caller], object]) -> Any:
        """Carry a command out once, however often the form is sent; return its document."""
        keys = self.fields.get(KEY, [])
        if len(keys) != 1:
            raise InvalidInput("the form lacks its key; open the page again and repeat it")
        said = {name: values for name, values in self.fields.items() if name != forms.CSRF}
        asked = replace(self.request, headers=(("idempotency-key", keys[0]),), body=canonical(said))
        outcome = carry_out(
            self.service.store,
            asked,
            caller=self.caller.party,
            confirm=self._confirm,
            command=lambda unit: command(unit, self.caller),
            now_ms=self.now_ms,
            scopes=self.caller.scopes,
        )
        self.service.waiting.changed()
        return json.loads(outcome.body)

    def _confirm(self, unit: Unit) -> None:
        """Refuse a write of somebody whose token or session ended meanwhile."""
        confirm(self.identity, unit, now_ms=self.now_ms)
        if self.session is not None and unit.has_ended(self.session.id):
            raise NotSignedIn("this session has ended; sign in again")


def page_visit(request: Asked, service: Behind, http: HttpRequest) -> PageVisit:
    """Return a visit by anybody; one that writes must come from a page of this very session."""
    _check_host(request, service.settings.authorities)
    market, now_ms = service.market, service.market.now_ms()
    found = session.read_session(market, request, now_ms=now_ms)
    identity = None
    if found is not None:
        with service.store.read() as unit:
            identity = session.identity_of(found, unit, now_ms=now_ms)
    peer = peer_of(http.scope)
    visit = PageVisit(service=service, request=request, peer=peer, now_ms=now_ms)
    if found is not None and identity is not None:
        visit = replace(visit, session=found, identity=identity)
        # Whoever floods the market with a copied cookie must not keep its owner signed in.
        if request.path != SIGN_OUT and service.callers.wait_s(identity.caller.party):
            raise TooManyRequests(f"{identity.caller.party} asks too often; wait a second")
    http.state.page_visit = visit  # for the page of an error
    if request.method not in ("GET", "HEAD"):
        forms.check_origin(request)
        visit = replace(visit, fields=forms.read_fields(request))
        if visit.session is not None:
            forms.check_csrf(visit.fields, visit.csrf)
    return visit


def _check_host(request: Request, authorities: tuple[str, ...]) -> None:
    """Refuse a page under another name than the market's own.

    Otherwise a foreign site whose name leads to this address could have its visitors sign in to it.
    """
    if authorities and request.authority.lower() not in authorities:
        raise InvalidInput(
            f"this market is {' or '.join(authorities)}; the page was asked for at "
            f"{request.authority!a:.80}"
        )


def signed_in(*scopes: Scope) -> Callable[[PageVisit], KnownPageVisit]:
    """Return the dependency of pages for those who hold one of these scopes, or any if none."""

    def known(visit: Annotated[PageVisit, Depends(page_visit)]) -> KnownPageVisit:
        if visit.identity is None:
            raise NotSignedIn("this page needs you to sign in")
        if scopes:
            visit.identity.caller.require(*scopes)
        return KnownPageVisit(
            service=visit.service,
            request=visit.request,
            peer=visit.peer,
            now_ms=visit.now_ms,
            session=visit.session,
            identity=visit.identity,
            fields=visit.fields,
        )

    return known


PageVisitor = Annotated[PageVisit, Depends(page_visit)]
SignedIn = Annotated[KnownPageVisit, Depends(signed_in())]
