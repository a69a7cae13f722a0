"""Kill a device before every SQL statement, draw and send of its life: it never overspends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fedbourse.testing.device import spend_process
from fedbourse.testing.device.spend_process import (
    RIGHT,
    WRONG,
    Life,
    asks_about_another_model,
    record,
    repeats_and_goes_on,
)

ROUNDS = 3
FIRST = [(0, "model"), (0, "model"), (0, "forged"), (1, "model"), (2, "model"), (3, "model")]
SERVERS = [repeats_and_goes_on, asks_about_another_model]

Lived = Callable[[Life], tuple[int, int]]


@pytest.fixture(scope="module")
def lived() -> Iterator[Lived]:
    """Let a device live a life, in a process of its own; return its exit code and its points."""
    server = subprocess.Popen(
        [sys.executable, "-m", spend_process.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a process with threads should not fork
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def ask(life: Life) -> tuple[int, int]:
        server.stdin.write(json.dumps(asdict(life)) + "\n")
        server.stdin.flush()
        code, points = json.loads(server.stdout.readline())
        return code, points

    with server:
        yield ask
        server.stdin.close()


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    """Return a folder, in memory if possible: SIGKILL takes no more from it than from a disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        yield Path(made)


def killed_everywhere(lived: Lived, folder: Path, order: str) -> Iterator[tuple[int, Path]]:
    """Yield the folder of a device killed at each point of its life, and the point."""
    for k in count():
        device = folder / str(k)
        device.mkdir()
        code, _ = lived(Life(str(device), ROUNDS, FIRST, order=order, killed_at=k))
        if code == 0:
            return
        assert code == -signal.SIGKILL
        yield k, device


@pytest.mark.parametrize("server", SERVERS)
def test_killed_at_any_point_a_device_has_charged_for_all_that_left(server, lived, folder) -> None:
    (folder / "dry").mkdir()
    life = Life(str(folder / "dry"), ROUNDS, FIRST)
    code, points = lived(life)
    assert code == 0
    killed = 0
    for k, device in killed_everywhere(lived, folder, RIGHT):
        assert not record(device).broken_laws(life.terms), k
        again = Life(str(device), ROUNDS, server(device, ROUNDS))
        assert lived(again)[0] == 0, k
        after = record(device)
        assert not after.broken_laws(life.terms), k
        # The device is as good as new: at most the one round that it charged for is lost.
        lost = 0 if server is repeats_and_goes_on else 1
        assert after.charged == ROUNDS, k
        assert len(after.sent) >= ROUNDS - lost, k
        killed += 1
    assert killed == points >= 60


@pytest.mark.parametrize("order", WRONG)
def test_every_wrong_order_is_caught(order, lived, folder) -> None:
    caught = []
    for k, device in killed_everywhere(lived, folder, order):
        again = Life(str(device), ROUNDS, repeats_and_goes_on(device, ROUNDS), order=order)
        assert lived(again)[0] == 0
        if record(device).broken_laws(again.terms):
            caught.append(k)
    assert len(caught) >= ROUNDS
