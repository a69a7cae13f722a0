"""Every error as a problem (RFC 9457), and nothing of the inside in any of them."""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import time
import traceback
from collections import OrderedDict
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedbourse.errors import (
    CannotWrite,
    Conflict,
    FedbourseError,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Refused,
    TooLarge,
    TooManyRequests,
    Unreachable,
)
from fedbourse.web.paths import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEDIA_TYPE = "application/problem+json"
_DETAIL_MAX = 600
_LOG = logging.getLogger("fedbourse.web")
_BY_STATUS: dict[int, type[FedbourseError]] = {
    401: NotSignedIn,
    403: NotAllowed,
    404: NotFound,
    405: NotFound,
    409: Conflict,
    413: TooLarge,
    429: TooManyRequests,
    503: Unreachable,
}
_OUTSIDE: dict[type[FedbourseError], str] = {
    Unreachable: "the market's database does not answer right now; ask again soon",
    CannotWrite: "the market can store nothing right now; ask again later",
}
"""What is said to others where the sentence itself names a place inside; the log has it."""
_HEADERS: dict[type[FedbourseError], dict[str, str]] = {
    NotSignedIn: {"WWW-Authenticate": 'Bearer realm="fedbourse"'},
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
    """Return an error as the answer to a request."""
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
    """Return an error that was raised on purpose as the answer to a request."""
    reason = error.reason if isinstance(error, Refused) else None
    return problem(type(error), _OUTSIDE.get(type(error), str(error)), reason=reason)


def sentence_of(errors: Sequence[Any]) -> str:
    """Return what a model found wrong as one sentence, without the value that was sent.

    The value may be NaN or megabytes; neither belongs into an answer. Of an address, which is
    short, the part that is wrong is named.
    """
    if not errors:
        return "the request does not have the shape that is documented"
    first = errors[0]
    if first.get("type") == "string_pattern_mismatch" and first["loc"][0] == "path":
        looks = WORDS.get(first["loc"][1], "this address is not one of the market's")
        return f"{looks}; found {first['input']!a:.60}"
    where = ".".join(str(part) for part in first.get("loc", ()))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where[:200]}: {str(first.get('msg', ''))[:300]}{more}"


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error of the framework, and every one of ours, as a problem."""

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
        }.get(status, _phrase(status))
        kind = _BY_STATUS.get(status, fallback)
        return problem(kind, detail, status=status, headers=error.headers)

    app.add_exception_handler(FedbourseError, ours)
    app.add_exception_handler(RequestValidationError, shape)
    app.add_exception_handler(HTTPException, framework)


class Faults:
    """Writes unexpected errors to the log: each fault once a minute, with how often it came.

    Otherwise somebody who knows of one could fill the disk with it.
    """

    def __init__(self, *, every_s: float = 60.0, kinds_max: int = 100) -> None:
        """Start with none seen."""
        self._every_s, self._kinds_max = every_s, kinds_max
        self._seen: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, error: Exception, where: str) -> None:
        """Write an error down, unless the same one was written down within the last minute."""
        frames = traceback.extract_tb(error.__traceback__)
        place = [f"{frame.filename}:{frame.lineno}" for frame in frames[-1:]]
        kind, now = (type(error).__name__, *place), time.monotonic()
        with self._lock:
            written, unwritten = self._seen.pop(kind, (-math.inf, 0))
            due = now - written >= self._every_s
            self._seen[kind] = (now, 0) if due else (written, unwritten + 1)
            if len(self._seen) > self._kinds_max:
                self._seen.popitem(last=False)
        if due:
            again = f" (and {unwritten} times since it was last written)" if unwritten else ""
            _LOG.error("unexpected, at %.200s%s", where, again, exc_info=error)


class LastResort:
    """Answers what nobody expected with a problem that says nothing of it; the log says it all."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self.app, self._faults = app, Faults()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
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
                answer = problem_of(error)
            else:
                self._faults.note(error, f"{scope['method']} {scope['path']}")
                answer = problem(FedbourseError, "something went wrong inside the market")
            if started:
                raise  # half an answer must not look like a whole one
            await answer(scope, receive, send)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.lower()
    except ValueError:
        return f"status {status}"
