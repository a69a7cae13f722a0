"""What wakes the market's clock before its time: a write that may have made a task due."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OF_TASK = re.compile(r"(?:/v1)?/tasks/([0-9a-f]{24})/")


class Alarm:
    """Wakes the clock: for one task that may be due, or for all that there is to do."""

    def __init__(self) -> None:
        """Start silent."""
        self._rung = threading.Condition()
        self._tasks: set[str] = set()
        self._all = False

    def ring(self, task: str | None = None) -> None:
        """Wake the clock; ``task`` is all that it then looks at, at once."""
        with self._rung:
            if task is None:
                self._all = True
            else:
                self._tasks.add(task)
            self._rung.notify()

    def wait(self, timeout_s: float, *, rested: bool) -> set[str] | None:
        """Return the tasks that were named; None where all is to be looked at, or time is up.

        ``rested`` says whether the last look at everything is long enough ago for another one.
        """
        with self._rung:
            self._rung.wait_for(lambda: self._tasks or (self._all and rested), timeout_s)
            tasks, self._tasks = self._tasks, set()
            if tasks:
                return tasks
            self._all = False
            return None


class WakesClock:
    """Wakes the clock after each write that succeeded, so that nobody waits for the next tick."""

    def __init__(self, app: ASGIApp, alarm: Alarm, changed: Callable[[], None]) -> None:
        """Wrap an application; ``changed`` is told of each such write as well."""
        self._app, self._alarm, self._changed = app, alarm, changed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        unfinished = succeeded = False

        async def watched(message: Message) -> None:
            nonlocal unfinished, succeeded
            if message["type"] == "http.response.start":
                succeeded = message["status"] < 400  # a page sends the browser on: 303
            unfinished = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            if succeeded and scope["method"] not in ("GET", "HEAD"):
                self._wake(scope)
        if unfinished:  # a stream that ends with the market
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _wake(self, scope: Scope) -> None:
        found = _OF_TASK.match(scope["path"])
        self._alarm.ring(found[1] if found else None)
        if scope["method"] == "POST":  # what owners PUT moves a task only through the clock
            self._changed()
