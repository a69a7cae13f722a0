"""Peers of training: each in an environment and a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

PEERS = Path(__file__).parents[2] / "build" / "peers"
TORCH = "torch==2.13.0"  # any other spelling pulls gigabytes of CUDA
REQUIREMENTS = {"opacus": "opacus==1.6.0", "pfl": "pfl[pytorch]==0.6.0"}


class PeerMissing(Exception):
    """A peer cannot be installed or does not run here; says why."""


class Peer:
    """A process that trains for one round whenever it is asked."""

    def __init__(
        self, package: str, mode: str, *, say: Callable[[str], None], **numbers: int
    ) -> None:
        """Install the peer where that is still to do, start it, and wait until it is ready."""
        self._name = f"{package} ({mode})"
        self.peak_bytes = 0
        script = Path(__file__).with_name(f"{package}_round.py")
        command = [environment(package, say), str(script), f"--mode={mode}"]
        command += [f"--{name}={value}" for name, value in numbers.items()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        first = self._read()
        self.version = str(first["version"])
        self.norm: float | None = first.get("norm")
        """Of the mean of all owners' clipped means at the zero model, where it clips records."""

    def __str__(self) -> str:
        return self._name

    def train(self) -> float:
        """Train for one round; return its seconds, as the peer measured them."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        reply = self._read()
        self.peak_bytes = int(reply["peak_bytes"])
        return float(reply["seconds"])

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process: it stops where its input ends."""
        self._process.communicate()

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise PeerMissing(f"it is installed, and stopped with exit status {status}")
        return json.loads(line)


def environment(package: str, say: Callable[[str], None]) -> str:
    """Return the Python of a peer's environment, made where it is missing."""
    home = PEERS / package
    python, ready = home / "bin" / "python", home / "ready"
    if ready.exists() and ready.read_text() == REQUIREMENTS[package]:
        return str(python)
    say(f"installing {package} and {TORCH}")
    home.mkdir(parents=True, exist_ok=True)
    _run(sys.executable, "-m", "venv", "--clear", str(home))
    constraints = home / "constraints.txt"
    constraints.write_text(f"{TORCH}\n")
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, TORCH)
    _run(*pip, "--constraint", str(constraints), REQUIREMENTS[package])
    ready.write_text(REQUIREMENTS[package])
    return str(python)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, stdout=sys.stderr)
    except subprocess.CalledProcessError as failed:
        # pip's own words, on stderr, name hosts and paths: they are not for the page.
        raise PeerMissing(
            f"it could not be installed (exit status {failed.returncode}), as when offline"
        ) from None
