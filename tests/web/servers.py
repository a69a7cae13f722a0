"""The service on a real socket, for what only a real connection shows."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import uvicorn


@contextmanager
def served(app):
    """Run an application on a free port of this machine, and return its address."""
    # asyncio switches the delay of small packets off only where the protocol is named.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    # What a market is served with; other protocols would be taken where they are installed.
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        # absl, which dp-accounting brings, closes the captured stderr when logging is set up anew.
        log_config=None,
        log_level="critical",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
