"""A market, or an echo, served for the benchmark: `network_server.py market FOLDER | echo BYTES`.

Prints its address. The market is what `fedbourse serve` serves, without limits on how often one
machine may ask: fifty devices call from one here. The echo answers a GET with so many bytes and
swallows whatever is PUT: what nobody can go below on this stack.
"""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from fedbourse.app.server import MarketSettings, serve_market

if TYPE_CHECKING:
    from starlette.requests import Request

    from fedbourse.web.settings import Settings

UNLIMITED = 10**9


def echo(size: int) -> Starlette:
    """Two routes that move the bytes of a model and of an answer, and do nothing else."""
    model = bytes(size)

    async def get(request: Request) -> Response:
        return Response(model, media_type="application/octet-stream")

    async def put(request: Request) -> Response:
        await request.body()
        return Response(b"{}", media_type="application/json")

    return Starlette(routes=[Route("/model", get), Route("/update", put, methods=["PUT"])])


@dataclass(frozen=True)
class Unlimited(MarketSettings):
    """A market that never says that somebody asks too often."""

    def web(self, port: int) -> Settings:
        """Return the bounds of the service, but those."""
        return replace(
            super().web(port),
            peer_per_s=UNLIMITED,
            peer_burst=UNLIMITED,
            caller_per_s=UNLIMITED,
            caller_burst=UNLIMITED,
        )


def main() -> None:
    """Serve until the parent ends this process."""
    kind, what = sys.argv[1:]
    if kind == "market":
        settings = Unlimited(folder=Path(what), port=0)
        serve_market(settings, on_ready=lambda ready: print(ready.url, flush=True))
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        config = uvicorn.Config(echo(int(what)), http="h11", log_level="error", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
