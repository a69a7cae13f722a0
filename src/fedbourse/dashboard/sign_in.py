"""Signing in with a token, and out again."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from fedbourse.dashboard import session
from fedbourse.dashboard.formatting import capital
from fedbourse.dashboard.forms import Form, InvalidForm
from fedbourse.dashboard.page_context import SIGN_OUT, PageContextDep
from fedbourse.dashboard.pages import local, page, redirect
from fedbourse.errors import Unauthenticated
from fedbourse.market.ports import Transaction
from fedbourse.protocol.signatures import Request
from fedbourse.web.identity import Identity, identify

router = APIRouter()


class SignIn(Form):
    """A token, and where its holder wanted to go."""

    token: str
    next: str = "/"


@router.get("/sign-in")
def show_sign_in(context: PageContextDep, next: str = "/") -> Response:
    """Ask for a token."""
    return page(context, "sign_in.html", next=local(next), error="")


@router.post("/sign-in")
def sign_in(context: PageContextDep) -> Response:
    """Begin a session, and go on to where the visitor came from."""
    following = local(context.fields.get("next", ["/"])[0])
    try:
        form = context.form(SignIn)
        with context.service.store.read() as tx:
            identity = _identity(form.token, tx, context.now_ms)
    except InvalidForm:
        return _again(context, following, "Type or paste your token.")
    except Unauthenticated as error:
        malformed = str(error).startswith("the header")
        sentence = "a token is fbt_ and 43 characters; this is not one" if malformed else str(error)
        return _again(context, following, f"{capital(sentence)}.")
    assert identity is not None
    assert identity.token_hash is not None
    response = redirect(following)
    new = session.new_session(identity.token_hash, now_ms=context.now_ms)
    session.keep(response, context.market, context.request.scheme, new)
    return response


@router.post(SIGN_OUT)
def sign_out(context: PageContextDep) -> Response:
    """End the session of this browser, and of whoever has a copy of its cookie."""
    if context.session is not None:
        with context.service.store.begin() as tx:
            tx.end_session(context.session.id, expires_ms=context.session.expires_ms)
    response = redirect("/")
    session.forget(response, context.market, context.request.scheme)
    return response


def _identity(token: str, tx: Transaction, now_ms: int) -> Identity | None:
    headers = (("authorization", f"Bearer {token}"),)
    return identify(Request("GET", "http", "", "/", headers=headers), tx, now_ms=now_ms)


def _again(context: PageContextDep, following: str, error: str) -> Response:
    return page(context, "sign_in.html", status=422, next=following, error=error)
