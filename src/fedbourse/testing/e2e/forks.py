"""A process that has imported all that markets or devices need, and forks one for each life."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType


class Forks:
    """Talks to such a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, do: str, **more: Any) -> Any:
        """Have something done, and return what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def start_forks(of: ModuleType) -> Iterator[Forks]:
    """Run ``market_process`` or ``device_process``; all that it forks ends with it."""
    process = subprocess.Popen(
        [sys.executable, "-m", of.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a process with threads should not fork
    )
    with process:
        yield Forks(process)


def detach(log: Path) -> None:
    """Let a forked process end with the tests, hear nothing, and write errors to a file."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    with log.open("ab") as errors, open(os.devnull, "r+b") as nothing:
        os.dup2(errors.fileno(), 2)
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file; its writer may have been killed within the last one."""
    content = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in content.split(b"\n")[:-1]]
