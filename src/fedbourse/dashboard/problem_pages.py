"""Problems for people: what the service says in JSON about an error becomes a page."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedbourse.dashboard.formatting import capital
from fedbourse.dashboard.pages import HEADERS, page, redirect, sign_in_address
from fedbourse.web.problems import MEDIA_TYPE

_OURS = {name.lower().encode() for name in HEADERS} | {b"content-type", b"content-length"}
_TITLES = {
    401: "Please sign in",
    403: "Not yours to see or do",
    404: "Nothing here",
    409: "That does not fit any more",
    413: "Too much at once",
    422: "Something in it is not right",
    429: "Too fast",
    503: "The market does not respond right now",
}


class ProblemPages:
    """Turns the problems of every address outside the API into pages, wherever they arose.

    A script that asks for JSON alone gets the problem as it is.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or _is_api(scope["path"]) or _wants_json(scope):
            await self.app(scope, receive, send)
            return
        scope.setdefault("state", {})
        start: Message | None = None
        body = b""

        async def watched(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    response = _problem_page(scope, json.loads(body))
                    others = [pair for pair in start["headers"] if pair[0].lower() not in _OURS]
                    response.raw_headers.extend(others)
                    await response(scope, receive, send)

        await self.app(scope, receive, watched)


def _problem_page(scope: Scope, problem: dict[str, Any]) -> Response:
    status = problem["status"]
    headers = Headers(scope=scope)
    if status == 401 and headers.get("hx-request") == "true":
        response = page(None, "problem.html", status=401, title=_TITLES[401], sentence="")
        address = _path_of(headers.get("hx-current-url", "/"))
        response.headers["HX-Redirect"] = sign_in_address(address)
        return response
    if status == 401 and scope["method"] in ("GET", "HEAD"):
        query = scope["query_string"].decode("latin-1")
        return redirect(sign_in_address(_with_query(scope["path"], query)))
    sentence = problem["detail"].replace("; see /v1/openapi.json", "")
    return page(
        scope["state"].get("page_context"),
        "problem.html",
        status=status,
        title=_TITLES.get(status, _phrase(status)),
        sentence=capital(sentence).rstrip(".") + ".",
    )


def _path_of(address: str) -> str:
    """Return the path of the page that htmx says it is on; the market's page for nonsense."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "/"
    return _with_query(parts.path, parts.query)


def _with_query(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


def _is_api(path: str) -> bool:
    return path == "/v1" or path.startswith("/v1/")


def _wants_json(scope: Scope) -> bool:
    return Headers(scope=scope).get("accept", "") == "application/json"


def _is_problem(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.capitalize()
    except ValueError:
        return "Something went wrong"
