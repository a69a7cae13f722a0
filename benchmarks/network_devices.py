"""Many devices in one process, for the benchmark: `network_devices.py` with a job on its input.

The job is one line of JSON. Devices are made, enrolled and join the task; then "ready" is printed,
and they follow it to its end. At the end the seconds that noise alone takes are printed, drawn by
all of them at once.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.device import Agent, BiddingStrategy, DeviceSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.tasks.card import TaskCard


def records(device: int) -> Callable[[TaskCard], tuple[np.ndarray, np.ndarray]]:
    """Return simulated records of two kinds, different for each device."""

    def source(card: TaskCard) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(device)
        features = rng.standard_normal((card.samples, card.features - 1)) / card.features**0.5
        return features, (features.sum(axis=1) > 0).astype(float)

    return source


def all_at_once(work: list[Callable[[], object]]) -> float:
    """Do all of it, a thread each; return the seconds that it took."""
    with ThreadPoolExecutor(len(work)) as pool:
        begin = threading.Barrier(len(work) + 1)

        def one(each: Callable[[], object]) -> None:
            begin.wait()
            each()

        running = [pool.submit(one, each) for each in work]
        begin.wait()
        start = time.perf_counter()
        for each in running:
            each.result()
        return time.perf_counter() - start


def noise_s(agents: list[Agent], task: str, turns: int = 3) -> float:
    """Return how long it takes until all devices have drawn the noise of one answer."""
    kinds = [(a._owner.noise([a.deal_of(task).agreed]), a.deal_of(task).agreed) for a in agents]

    def draw(noise: Any, dimension: int) -> Callable[[], object]:
        return lambda: noise.release(np.zeros((1, dimension)), np.array([0]), 0)

    work = [draw(noise, terms.dimension) for noise, terms in kinds]
    return median(all_at_once(work) for _ in range(turns))


def main() -> None:
    """Carry out one job."""
    job = json.loads(sys.stdin.readline())
    settings = DeviceSettings(value=1e-6, lifetime_cap=1e6)
    agents = []
    for i, token in enumerate(job["tokens"]):
        folder = Path(job["folder"]) / f"device-{i}"
        agents.append(Agent.create(folder, settings, data=records(i)))
        agents[-1].enrol(job["server"], token)
        agents[-1].join(job["task"], BiddingStrategy(budget=job["budget"]))
    print("ready", flush=True)
    with ThreadPoolExecutor(len(agents)) as pool:
        ended = list(pool.map(lambda agent: agent.run()[0].outcome, agents))
    assert ended == ["completed"] * len(agents), ended
    print(json.dumps({"noise_s": noise_s(agents, job["task"])}), flush=True)
    for agent in agents:
        agent.close()


if __name__ == "__main__":
    main()
