"""A market, or a bare insert, served for the benchmark: `market_server.py market|bare URL`.

Prints its port. The bare one is what nobody can go below on this stack: FastAPI reads a small body,
one transaction writes one row durably, uvicorn answers.
"""

from __future__ import annotations

import socket
import sys
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import Column, Double, Integer, MetaData, Table, insert

from fedbourse.market.service import Market
from fedbourse.protocol.keys import SigningKey
from fedbourse.storage import SqlStore
from fedbourse.web.app import create_app
from fedbourse.web.settings import Settings

UNLIMITED = 10**9


class Budget(BaseModel):
    """A small body."""

    budget: float


def bare(store: SqlStore) -> FastAPI:
    """One route that writes one row."""
    table = Table("bare", MetaData(), Column("id", Integer, primary_key=True), Column("b", Double))
    engine = store._database.writer
    table.metadata.create_all(engine)
    app = FastAPI()

    @app.put("/bare")
    def put(body: Budget) -> dict[str, bool]:
        with store.begin() as tx:
            tx._connection.execute(insert(table).values(b=body.budget))
        return {"stored": True}

    return app


def market(store: SqlStore) -> FastAPI:
    """The whole service, without limits on how often one machine may ask."""
    settings = Settings(
        peer_per_s=UNLIMITED,
        peer_burst=UNLIMITED,
        caller_per_s=UNLIMITED,
        caller_burst=UNLIMITED,
    )
    payments = cast("Any", None)  # no money comes in
    return create_app(Market(SigningKey.generate()), store, payments, settings)


def main() -> None:
    """Serve until the parent ends this process."""
    kind, url = sys.argv[1:]
    with SqlStore(url) as store, socket.create_server(("127.0.0.1", 0)) as listener:
        app = {"bare": bare, "market": market}[kind](store)
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(app, http="h11", log_level="error", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
