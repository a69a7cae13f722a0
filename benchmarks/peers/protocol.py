"""What the benchmark of training and its peers share: the records, and how a peer is asked.

A peer prepares itself and prints a line; then, for every line that it reads, it trains for one
round and prints how long that took. So rounds of different processes can be taken in turns.
It needs NumPy alone, and runs in every peer's environment.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

CLIP = 1.0
STEP_SIZE = 0.1
BUDGET = 0.1
ROUNDS = 1000


def records(*, owners: int, samples: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features, the last one constant, and labels, one owner after another.

    About two thirds of the records' gradients exceed the clip where the model is zero.
    """
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((owners * samples, features))
    inputs *= rng.uniform(1, 3, (len(inputs), 1)) / np.sqrt(features)
    inputs[:, -1] = 1.0
    return inputs, (rng.random(len(inputs)) < 0.5).astype(np.float64)


def noise_scale(samples: int) -> float:
    """Return the noise of a coordinate of one owner's answer: that of our terms."""
    return 2 * CLIP / samples * np.sqrt(ROUNDS / (2 * BUDGET))


def peak_bytes() -> int:
    """Return the most memory that this process ever had resident, as Linux tells it; else 0."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def arguments(description: str | None, *modes: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--mode", choices=modes, required=True)
    for name in ("owners", "samples", "features", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def serve(train: Callable[[], object], first: dict[str, object]) -> None:
    """Print ``first``, then train a round for every line read."""
    print(json.dumps(first), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        train()
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes()}), flush=True)
