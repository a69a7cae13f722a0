"""Markets and devices that are forked, and a folder for them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fedbourse.testing.e2e import device_process, market_process
from fedbourse.testing.e2e.forks import Forks, start_forks


@pytest.fixture(scope="module")
def forks() -> Iterator[tuple[Forks, Forks]]:
    """Start what forks markets, and what forks devices."""
    with start_forks(market_process) as markets, start_forks(device_process) as agents:
        yield markets, agents


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder, in memory if possible: SIGKILL takes no more from it than from a disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        yield Path(made)
