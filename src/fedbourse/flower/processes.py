"""Flower's own programs, started and stopped: a SuperLink, its SuperNodes, and runs on it.

All that they write lies in a folder of the training, they call nobody, and every process that was
started here is gone when the block ends, whatever ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbourse.errors import CannotWrite, InvalidInput, MissingExtra, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NODES_MAX = 3
"""SuperNodes started on one machine: each takes 270 MB, and 170 MB more while it works."""

_START_S = 60.0
_STOP_S = 5.0
_CONNECTION = "fedbourse"
_MARK = "FEDBOURSE_STARTED_BY"


@dataclass(frozen=True)
class Link:
    """How a SuperLink is reached."""

    address: str
    insecure: bool = False
    certificates: str | None = None
    """The CA that signed its certificate, where the system does not know it."""


class Flower:
    """Flower's command line, with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self._scripts = Path(sys.executable).parent
        command = shutil.which("flwr", path=os.pathsep.join([str(self._scripts), _path()]))
        if command is None:
            raise MissingExtra(
                "the flower engine needs flwr, which is not installed: "
                "pip install 'fedbourse[flower]'"
            )
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"{self.home}: {error.strerror}") from None
        self._started: list[subprocess.Popen[bytes]] = []
        self._stack = contextlib.ExitStack()
        self._mark = secrets.token_hex(16)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of everything that is started: no telemetry, no look for updates."""
        return {
            **os.environ,
            "PATH": os.pathsep.join([str(self._scripts), _path()]),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONUNBUFFERED": "1",
            _MARK: self._mark,
        }

    @property
    def has_link(self) -> bool:
        """Say whether the SuperLink was started here."""
        return bool(self._started)

    def start(self, name: str, arguments: Sequence[str], **variables: str) -> int:
        """Start one of Flower's programs, its output in a file of its own; return its id."""
        with (self.home / f"{name}.log").open("ab") as log, _uninterrupted():
            process = subprocess.Popen(
                list(arguments),
                env=self.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to hear; they are stopped in order
            )
            self._started.append(process)
        with (self.home / "processes.jsonl").open("a") as file:
            file.write(json.dumps({"name": name, "pid": process.pid}) + "\n")
        return process.pid

    def superlink(self, *, simulation: bool = False, **variables: str) -> Link:
        """Start a SuperLink on the loopback interface, and wait until it listens."""
        port = free_port()
        options = ["--insecure", "--host", "127.0.0.1", "--port", str(port)]
        options += ["--disable-runtime-dependency-installation"]
        options += ["--simulation"] if simulation else []
        self.start("superlink", ["flower-superlink", *options], **variables)
        self._wait_for(port, "superlink")
        return Link(f"127.0.0.1:{port}", insecure=True)

    def supernode(self, name: str, link: Link, device: Path) -> int:
        """Start a SuperNode for an owner's device."""
        if '"' in str(device):
            raise InvalidInput(f"Flower allows no quote in a folder's name; found {device}")
        options = ["--insecure", "--superlink", link.address, "--port", str(free_port())]
        options += ["--node-config", f'fedbourse-device="{device.absolute()}"']
        return self.start(name, ["flower-supernode", *options])

    def submit(self, app: Path, link: Link, job: str, *, nodes: int | None = None) -> str:
        """Submit a run of an app, and return its id; ``nodes`` virtual ones, in a simulation."""
        self._connect(link)
        config = self.home / "run.toml"
        config.write_text(f"job = {json.dumps(job)}\n", encoding="utf-8")
        command = ["run", str(app), _CONNECTION, "--run-config", str(config), "--format", "json"]
        if nodes is not None:
            command += ["--federation-config", f"num-supernodes={nodes} {_ON_EACH_CORE}"]
        return str(self._document(command)["run-id"])

    def lines(self, run: str) -> Iterator[str]:
        """Yield the lines of a run's log until it ends, or the SuperLink is gone."""
        with self._command(["log", run, _CONNECTION, "--stream"]) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield line.decode(errors="replace").rstrip("\n")

    def status(self, run: str) -> tuple[str, str]:
        """Return how a run stands, and Flower's details."""
        command = ["list", "--run-id", run, _CONNECTION, "--format", "json"]
        row = self._document(command)["runs"][0]
        return str(row["status"]), str(row.get("status-details", ""))

    def stop_run(self, run: str) -> None:
        """Ask the SuperLink to stop a run; a failure does not matter."""
        with contextlib.suppress(Unreachable):
            self._document(["stop", run, _CONNECTION, "--format", "json"])

    def close(self) -> None:
        """Stop all that was started, the youngest first."""
        with _uninterrupted():
            self._stop()

    def _stop(self) -> None:
        for process in reversed(self._started):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        end = time.monotonic() + _STOP_S
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
        # Whatever those started outlives a SuperLink that was killed; it may start more meanwhile.
        for _ in range(10):
            for pid in (left := self._marked()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.1)
        for process in self._started:
            process.kill()
            process.wait()

    def _marked(self) -> list[int]:
        """Return the processes that carry this block's mark, which nobody else can have."""
        pids, mark = [], f"{_MARK}={self._mark}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # gone, or somebody else's
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    pids.append(int(place.name))
        return pids

    def __enter__(self) -> Flower:
        self._stack.enter_context(ended_by_sigterm())
        return self

    def __exit__(self, *error: object) -> None:
        with self._stack:
            self.close()

    def _wait_for(self, port: int, name: str) -> None:
        end = time.monotonic() + _START_S
        process = self._started[-1]
        while time.monotonic() < end and process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            time.sleep(0.1)
        raise Unreachable(f"the {name} did not start; its log is {self.home / f'{name}.log'}")

    def _connect(self, link: Link) -> None:
        lines = [f"[superlink.{_CONNECTION}]", f"address = {json.dumps(link.address)}"]
        lines += ["insecure = true"] if link.insecure else []
        if link.certificates is not None:
            lines += [f"root-certificates = {json.dumps(str(Path(link.certificates).absolute()))}"]
        (self.home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    @contextlib.contextmanager
    def _command(self, arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            ["flwr", *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def _document(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Run a command and return its document: its exit code says nothing, ``success`` does."""
        with self._command(arguments) as process:
            try:
                output, _ = process.communicate(timeout=_START_S)
            except subprocess.TimeoutExpired:
                raise Unreachable(
                    f"flwr {arguments[0]} did not respond within {_START_S:g} s"
                ) from None
        text = output.decode(errors="replace")
        try:
            document: dict[str, Any] = json.loads(text[text.index("{") :])
        except ValueError:
            document = {"error-message": text.strip()[-300:] or "no output"}
        if document.get("success") is not True:
            reason = " ".join(str(document.get("error-message", document)).split())[:300]
            raise Unreachable(f"flwr {arguments[0]} failed: {reason}")
        return document


_ON_EACH_CORE = "client-resources-num-cpus=1 client-resources-num-gpus=0.0"


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that what it started ends too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait: an interrupt between a start and its note would leave a process behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda n, frame: heard.append(n)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if heard:
        raise KeyboardInterrupt


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _path() -> str:
    return os.environ.get("PATH", os.defpath)
