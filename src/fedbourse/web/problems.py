"""Every error as a problem (RFC 9457), without anything internal."""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from http.client import responses
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedbourse.errors import (
    CannotWrite,
    Conflict,
    FedbourseError,
    InvalidInput,
    NotAllowed,
    NotFound,
    Refused,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unreachable,
)
from fedbourse.web.paths import FORMS

MEDIA_TYPE = "application/problem+json"
_DETAIL_MAX = 600
_LOG = logging.getLogger("fedbourse.web")
_KINDS = (Unauthenticated, NotAllowed, NotFound, Conflict, TooLarge, TooManyRequests, Unreachable)
_BY_STATUS: dict[int, type[FedbourseError]] = {
    **{kind.http_status: kind for kind in _KINDS},
    405: NotFound,
}
_OUTSIDE: dict[type[FedbourseError], str] = {
    Unreachable: "the market's database does not respond right now; try again soon",
    CannotWrite: "the market can store nothing right now; try again later",
}
"""What others read where the error itself names something internal; the log has that."""
_HEADERS: dict[type[FedbourseError], dict[str, str]] = {
    Unauthenticated: {"WWW-Authenticate": 'Bearer realm="fedbourse"'},
    TooManyRequests: {"Retry-After": "1"},
    Unreachable: {"Retry-After": "1"},
}


def problem(
    kind: type[FedbourseError],
    detail: str,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    reason: str | None = None,
) -> Response:
    """Return an error as a response."""
    code = kind.__name__
    document: dict[str, Any] = {
        "type": f"urn:fedbourse:problem:{code}",
        "title": re.sub(r"(?<=[a-z])(?=[A-Z])", " ", code).capitalize(),
        "status": status or kind.http_status,
        "detail": detail[:_DETAIL_MAX],
        "code": code,
    }
    if reason is not None:
        document["reason"] = reason
    return Response(
        json.dumps(document),  # ASCII: half a surrogate pair in a sentence cannot break it
        status_code=document["status"],
        media_type=MEDIA_TYPE,
        headers={**_HEADERS.get(kind, {}), **(headers or {})},
    )


def problem_of(error: FedbourseError) -> Response:
    """Return an error that was raised on purpose as a response."""
    reason = error.reason if isinstance(error, Refused) else None
    return problem(type(error), _OUTSIDE.get(type(error), str(error)), reason=reason)


def sentence_of(errors: Sequence[Any]) -> str:
    """Return what a model found wrong as one sentence, without the value that was sent.

    The value may be NaN or megabytes; neither belongs into a response. The wrong part of an
    address, which is short, is shown.
    """
    if not errors:
        return "the request does not have the shape that is documented"
    first = errors[0]
    if first.get("type") == "string_pattern_mismatch" and first["loc"][0] == "path":
        form = FORMS.get(first["loc"][1], "this address is not one of the market's")
        return f"{form}; found {first['input']!a:.60}"
    where = ".".join(str(part) for part in first.get("loc", ()))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where[:200]}: {str(first.get('msg', ''))[:300]}{more}"


def add_problem_handlers(app: FastAPI) -> None:
    """Turn every error of the framework, and every one of ours, into a problem."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, FedbourseError)
        if error.http_status >= 500:
            _LOG.error("%s: %s", type(error).__name__, error)
        return problem_of(error)

    async def shape(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(InvalidInput, sentence_of(error.errors()))

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = error.status_code
        fallback = InvalidInput if status < 500 else FedbourseError
        detail = {
            404: "there is nothing at this address; see /v1/openapi.json",
            405: f"{request.method:.20} cannot be used at this address; see /v1/openapi.json",
        }.get(status, responses.get(status, f"status {status}").lower())
        kind = _BY_STATUS.get(status, fallback)
        return problem(kind, detail, status=status, headers=error.headers)

    app.add_exception_handler(FedbourseError, ours)
    app.add_exception_handler(RequestValidationError, shape)
    app.add_exception_handler(HTTPException, framework)


class Faults:
    """Logs unexpected errors: each fault once a minute, with how often it occurred.

    Otherwise somebody who knows of one could fill the disk with it.
    """

    def __init__(self, *, every_s: float = 60.0, kinds_max: int = 100) -> None:
        self._every_s, self._kinds_max = every_s, kinds_max
        self._logged: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, error: Exception, where: str) -> None:
        """Log an error, unless the same one was logged within the last minute."""
        frames = traceback.extract_tb(error.__traceback__)
        place = [f"{frame.filename}:{frame.lineno}" for frame in frames[-1:]]
        kind, now = (type(error).__name__, *place), time.monotonic()
        with self._lock:
            logged_s, repeats = self._logged.pop(kind, (-math.inf, 0))
            due = now - logged_s >= self._every_s
            self._logged[kind] = (now, 0) if due else (logged_s, repeats + 1)
            if len(self._logged) > self._kinds_max:
                self._logged.popitem(last=False)
        if due:
            again = f" (and {repeats} times since it was last logged)" if repeats else ""
            _LOG.error("unexpected, at %.200s%s", where, again, exc_info=error)


class LastResort:
    """Responds to an unexpected error with a problem that tells nothing of it; the log has it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self._faults = app, Faults()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            if isinstance(error, FedbourseError):
                response = problem_of(error)
            else:
                self._faults.note(error, f"{scope['method']} {scope['path']}")
                response = problem(FedbourseError, "something went wrong inside the market")
            if started:
                raise  # half a response must not look like a whole one
            await response(scope, receive, send)
