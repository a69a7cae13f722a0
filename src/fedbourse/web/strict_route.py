"""Routes that read JSON strictly (``wire.json_body``), where the framework would be lenient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from starlette.requests import Request

from fedbourse.wire.json_body import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.responses import Response


class StrictRequest(Request):
    """A request whose JSON is read by our own rules."""

    async def json(self) -> Any:
        """Return the document in the body."""
        if not hasattr(self, "_strict"):
            self._strict = read_json(await self.body())
        return self._strict


class StrictRoute(APIRoute):
    """A route that refuses a bad document before the framework wraps the reason away."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
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
