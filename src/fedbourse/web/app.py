"""The service as an ASGI application."""

from __future__ import annotations

from dataclasses import replace

from fastapi import FastAPI

from fedbourse.market.ports import Payments, Store
from fedbourse.market.service import Market
from fedbourse.version import __version__
from fedbourse.web.account_routes import router as accounts
from fedbourse.web.audit_routes import router as audit
from fedbourse.web.device_routes import router as device
from fedbourse.web.fair_share import FairShare
from fedbourse.web.heavy import HeavyWork
from fedbourse.web.identity import ReadNonces
from fedbourse.web.limits import BodyLimit, Buckets, RateLimit, SecurityHeaders
from fedbourse.web.long_polling import LongPolls
from fedbourse.web.openapi import describe
from fedbourse.web.operator_routes import router as operator
from fedbourse.web.problems import LastResort, add_problem_handlers
from fedbourse.web.public_routes import router as public
from fedbourse.web.service import Service
from fedbourse.web.settings import Settings
from fedbourse.web.signed_heads import SignedHeads
from fedbourse.web.stream import Streams
from fedbourse.web.task_routes import router as tasks

ROUTERS = (public, tasks, device, accounts, audit, operator)


def create_app(
    market: Market, store: Store, payments: Payments, settings: Settings | None = None
) -> FastAPI:
    """Return the service of a market, over a store and a payment adapter."""
    settings = settings or Settings()
    long_polls = LongPolls(store, settings)
    market = replace(market, on_event=long_polls.changed)
    app = FastAPI(
        title="fedbourse market",
        version=__version__,
        description=(
            "A market where people are paid for the privacy that their data gives up in federated "
            "learning. Money is in whole micro-credits, times are milliseconds since 1970 UTC."
        ),
        # The pages of documentation would load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
    )
    app.state.service = Service(
        market=market,
        store=store,
        payments=payments,
        settings=settings,
        streams=Streams(store, settings),
        long_polls=long_polls,
        read_nonces=ReadNonces(),
        heads=SignedHeads(market),
        callers=Buckets(per_s=settings.caller_per_s, burst=settings.caller_burst),
        heavy=HeavyWork(
            Buckets(per_s=settings.heavy_per_s, burst=settings.heavy_burst),
            at_once=settings.heavy_at_once,
            strangers_at_once=settings.heavy_strangers_at_once,
        ),
    )
    for router in ROUTERS:
        app.include_router(router, prefix="/v1")
    add_problem_handlers(app)
    describe(app)
    peers = Buckets(per_s=settings.peer_per_s, burst=settings.peer_burst)
    # The one added last is the outermost.
    app.add_middleware(FairShare, at_once=settings.peer_at_once)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(RateLimit, buckets=peers)
    app.add_middleware(LastResort)
    app.add_middleware(SecurityHeaders)
    return app
