"""Routes that read JSON strictly (``encoding.strict_json``), where the framework is lenient.

A function's name is its operation's, and its response model may be a record.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import is_dataclass
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from fedbourse.encoding.strict_json import read_json
from fedbourse.web.shapes import shape


class StrictRequest(Request):
    """A request whose JSON is read by our own rules."""

    async def json(self) -> Any:
        """Return the document in the body."""
        if not hasattr(self, "_strict"):
            self._strict = read_json(await self.body())
        return self._strict


class StrictRoute(APIRoute):
    """A route that refuses an invalid document before the framework hides the reason."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, response_model: Any, **options: Any
    ) -> None:
        if isinstance(response_model, type) and is_dataclass(response_model):
            response_model = shape(response_model)
        options["operation_id"] = endpoint.__name__
        super().__init__(path, endpoint, response_model=response_model, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            if self.body_field is not None and await strict.body() and _is_json(strict):
                await strict.json()
            return await inner(strict)

        return handler


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")
