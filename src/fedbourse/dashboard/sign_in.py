"""Signing in with a token, and out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response  # noqa: TC002 - FastAPI reads it

from fedbourse.dashboard import session
from fedbourse.dashboard.forms import Form, InvalidForm
from fedbourse.dashboard.pages import local, page, redirect
from fedbourse.dashboard.visits import SIGN_OUT, PageVisitor
from fedbourse.errors import NotSignedIn
from fedbourse.web.identity import identify
from fedbourse.wire.signatures import Request

if TYPE_CHECKING:
    from fedbourse.market.ports import Unit
    from fedbourse.web.identity import Identity

router = APIRouter()


class SignIn(Form):
    """A token, and where its holder wanted to go."""

    token: str
    next: str = "/"


@router.get("/sign-in")
def show_sign_in(visit: PageVisitor, next: str = "/") -> Response:
    """Ask for a token."""
    return page(visit, "sign_in.html", next=local(next), error="")


@router.post("/sign-in")
def sign_in(visit: PageVisitor) -> Response:
    """Begin a session, and go on to where the visitor came from."""
    following = local(visit.fields.get("next", ["/"])[0])
    try:
        form = visit.form(SignIn)
        with visit.service.store.read() as unit:
            identity = _identity(form.token, unit, visit.now_ms)
    except InvalidForm:
        return _again(visit, following, "Type or paste your token.")
    except NotSignedIn as error:
        return _again(visit, following, f"{_plain(str(error))}.")
    assert identity is not None
    assert identity.token_hash is not None
    answer = redirect(following)
    begun = session.new_session(identity.token_hash, now_ms=visit.now_ms)
    session.keep(answer, visit.market, visit.request.scheme, begun)
    return answer


@router.post(SIGN_OUT)
def sign_out(visit: PageVisitor) -> Response:
    """End the session of this browser, and of whoever has a copy of its cookie."""
    if visit.session is not None:
        with visit.service.store.begin() as unit:
            unit.end_session(visit.session.id, expires_ms=visit.session.expires_ms)
    answer = redirect("/")
    session.forget(answer, visit.market, visit.request.scheme)
    return answer


def _identity(token: str, unit: Unit, now_ms: int) -> Identity | None:
    headers = (("authorization", f"Bearer {token}"),)
    return identify(Request("GET", "http", "", "/", headers=headers), unit, now_ms=now_ms)


def _again(visit: PageVisitor, following: str, error: str) -> Response:
    return page(visit, "sign_in.html", status=422, next=following, error=error)


def _plain(sentence: str) -> str:
    if sentence.startswith("the header"):
        sentence = "a token is fbt_ and 43 characters; this is none"
    return sentence[:1].upper() + sentence[1:]
