"""Commands of fedbourse as processes of their own, none of which outlives the block around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from fedbourse.device.data_registry import STATE
from fedbourse.errors import FedbourseError, Unreachable

_END_S = 10.0


class Processes:
    """Starts commands, and ends them all with the block."""

    def __init__(self, logs: Path, *, within_s: float, state: Path) -> None:
        """Keep what they say on standard error in a folder; everything ends within a time.

        ``state`` is their user's state folder, so that nothing stays in that of who runs this.
        """
        self._logs, self._ends = logs, time.monotonic() + within_s
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("FEDBOURSE_")
        } | {STATE: str(state)}
        self._running: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            running = [process for process in self._running if process.poll() is None]
        for process in running:
            process.terminate()
        until = time.monotonic() + _END_S
        for process in running:
            try:
                process.wait(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for process in self._running:
            if process.stdout is not None:
                process.stdout.close()

    def start(self, name: str, *arguments: object) -> subprocess.Popen[str]:
        """Start a command; what it prints is read from it, and its progress is in its log."""
        with self.log(name).open("ab") as log, self._lock:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedbourse", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            )
            self._running.append(process)
        return process

    def document(self, name: str, *arguments: object) -> dict[str, Any]:
        """Run a command to its end, and return the document that it prints."""
        return self.finished(name, self.start(name, *arguments, "--json"))

    def finished(self, name: str, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Wait for a process, and return the document that it printed."""
        try:
            out, _ = process.communicate(timeout=max(0.1, self._ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{name} has not ended in time; see {self.log(name)}") from None
        if process.returncode != 0:
            raise self._failed(name, process)
        document: dict[str, Any] = json.loads(out)
        return document

    def first_line(self, name: str, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Return the first document that a process prints, which goes on."""
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait()
            raise self._failed(name, process)
        document: dict[str, Any] = json.loads(line)
        return document

    def until(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait for something that happens soon."""
        while not ready():
            if time.monotonic() > self._ends:
                raise Unreachable(f"{what} has not happened in time; see {self._logs}")
            time.sleep(0.05)

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        """Return the events of one kind that a device has reported so far."""
        lines = self.log(name).read_text(encoding="utf-8").splitlines()
        whole = (line for line in lines if line.startswith("{") and line.endswith("}"))
        return [event for event in map(json.loads, whole) if event["event"] == kind]

    def log(self, name: str) -> Path:
        """Return the file of a process's progress."""
        return self._logs / f"{name}.log"

    def _failed(self, name: str, process: subprocess.Popen[str]) -> FedbourseError:
        lines = self.log(name).read_text(encoding="utf-8").splitlines()
        error = next((line for line in reversed(lines) if line.startswith("fedbourse: ")), "")
        return FedbourseError(
            f"{name} ended with code {process.returncode}: "
            f"{error.removeprefix('fedbourse: ') or f'see {self.log(name)}'}"
        )
