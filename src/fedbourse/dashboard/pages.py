"""Pages from templates, with the headers that let a browser run nothing but what is ours."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse

from fedbourse.dashboard.formatting import FILTERS, PAYOUT_WORDS, STATE_WORDS
from fedbourse.dashboard.forms import CSRF, KEY
from fedbourse.dashboard.page_context import PageContext
from fedbourse.dashboard.static_files import StaticFiles
from fedbourse.market.log_summary import out_words

POLICY = (
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; "
    "object-src 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    # A stricter one would hide from us that our own forms are ours.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Vary": "Cookie, HX-Request",
}
NAV = (
    ("Market", "/", ""),
    ("Buy", "/buy", "buyer"),
    ("Own", "/own", "owner"),
    ("Ledger", "/ledger", ""),
)
"""Names, addresses, and the scope without which a page is closed to those who are signed in."""


class Look:
    """What pages are made with: static files and templates."""

    def __init__(self) -> None:
        self.files = StaticFiles()
        self.environment = Environment(
            loader=PackageLoader("fedbourse.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters.update(FILTERS)
        self.environment.globals.update(
            static_url=self.files.url,
            has_static=self.files.has,
            scripts_missing=bool(self.files.missing),
            form_fields=form_fields,
            nav=NAV,
            state_words=STATE_WORDS,
            payout_words=PAYOUT_WORDS,
            out_words=out_words,
        )


def form_fields(context: PageContext) -> Markup:
    """Return the hidden fields of every form that writes."""
    hidden = '<input type="hidden" name="{}" value="{}">'
    return Markup(hidden * 2).format(CSRF, context.csrf, KEY, secrets.token_hex(16))


def page(
    context: PageContext | None, template: str, *, status: int = 200, **values: Any
) -> HTMLResponse:
    """Return a template as a page for a visitor, who is None where an error has no request."""
    text = LOOK.environment.get_template(template).render(
        context=context,
        caller=None if context is None else context.caller,
        now_ms=None if context is None else context.now_ms,
        market_name="fedbourse" if context is None else context.service.settings.name,
        path="" if context is None else context.request.path,
        **values,
    )
    return HTMLResponse(text, status_code=status, headers=HEADERS)


def redirect(address: str) -> RedirectResponse:
    """Send the browser on to another page of ours after a form was carried out."""
    return RedirectResponse(local(address), status_code=303, headers=HEADERS)


def local(address: str) -> str:
    """Return an address if it is a path of this market, or else the market's page.

    >>> local("/tasks/1?x=2"), local("//evil.example"), local("https://evil.example")
    ('/tasks/1?x=2', '/', '/')
    """
    is_path = address.startswith("/") and not address.startswith(("//", "/\\", "/v1"))
    clean = all(" " < character <= "~" and character != "\\" for character in address)
    return address if is_path and clean and len(address) <= 2000 else "/"


def sign_in_address(following: str) -> str:
    """Return the address of the sign-in that leads on to a page."""
    return f"/sign-in?next={quote(local(following), safe='')}"


LOOK = Look()
