"""A deadline for a whole response: a byte now and then keeps a socket's own time limit from ending.

A head may come in as many pieces as a market likes, and any number of interim responses before it;
the HTTP library waits for each of them anew. So a timer hangs up.
"""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Deadline:
    """Hangs up on one connection's market when it takes too long."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self.passed = False
        """Whether the last response was cut off."""

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Hear from the HTTP library which socket it opened (the ``trace`` of a request)."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = info["return_value"].get_extra_info("socket")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Hang up where this takes longer."""
        self.passed = False
        timer = threading.Timer(seconds, self._hang_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _hang_up(self) -> None:
        self.passed = True
        if self._socket is not None:
            with suppress(OSError):  # closed meanwhile
                # Not close(): a thread that reads would not notice.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
