"""What exact noise costs, against OpenDP's sampler and NumPy's normal, and what its time tells.

Prints a page in Markdown; `make benchmarks` keeps it as docs/performance-noise.md. One core;
contestants take turns, so that a noisy machine disturbs all of them alike.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from equilibrium import processor, row
from fedbourse import ExactNoise, Terms, __version__
from fedbourse.privacy.discrete_gaussian import DiscreteGaussian, system_words
from fedbourse.testing.opendp_gaussian import opendp_gaussian

if TYPE_CHECKING:
    from collections.abc import Callable

    Contestants = dict[str, Callable[[], object]]

GOAL_US = 0.5
EXACT, WORDS = "exact noise", "its random bits alone"
OPENDP, NORMAL = "OpenDP's discrete Gaussian", "NumPy's normal, no protection"

INTRODUCTION = """# What exact noise costs

Written by `make benchmarks` (`benchmarks/noise.py`). One core draws noise of sigma = {sigma:.4g}
steps of the grid, which is that of m = 1000 and rho = 0.1 over 500 rounds; contestants take turns,
and the shortest processor time counts. [How noise is drawn](theory/exact-noise.md).

fedbourse {version}, Python {python}, {processor}.

## A coordinate
"""
SCALES = """
## At other scales

| sigma | ns a coordinate | bits a coordinate |
| ---: | ---: | ---: |"""
TIME = """
## What the time tells

{count} updates of d = {dimension} each, released one by one. Time is compared by ranks (Spearman):
the correlation of two things that have nothing to do with each other lies within {bound:.3f} of 0
in 997 of 1000 runs.

| time of a release, against | correlation |
| --- | ---: |"""
DATA = """
| the update | median, us | ratio to zeros |
| --- | ---: | ---: |"""


def terms(dimension: int) -> Terms:
    return Terms(task="noise", rho=0.1, rounds=500, dimension=dimension, samples=1000)


def in_turns(turns: int, contestants: Contestants) -> dict[str, list[float]]:
    """Return the processor's seconds of every turn, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, draw in contestants.items():
            start = time.process_time()
            draw()
            if turn:
                times[name].append(time.process_time() - start)
    return times


def bits_a_draw(gaussian: DiscreteGaussian, count: int) -> float:
    taken = [0]

    def counted(words: int) -> Any:
        taken[0] += words
        return system_words(words)

    gaussian.draw(count, counted)
    return 64 * taken[0] / count


def random_words(count: int, at_once: int = 3 * 2**14) -> None:
    for start in range(0, count, at_once):
        system_words(min(at_once, count - start))


def against_peers(gaussian: DiscreteGaussian, dimension: int, turns: int) -> float:
    """Print one line for each contestant; return the microseconds a coordinate of exact noise."""
    measurement, zeros = opendp_gaussian(dimension, gaussian.sigma), [0] * dimension
    rng, words = np.random.default_rng(), int(bits_a_draw(gaussian, dimension) * dimension / 64)
    times = in_turns(
        turns,
        {
            EXACT: lambda: gaussian.draw(dimension, system_words),
            WORDS: lambda: random_words(words),
            NORMAL: lambda: rng.standard_normal(dimension),
        },
    ) | in_turns(max(1, turns * 10**4 // (10**4 + dimension)), {OPENDP: lambda: measurement(zeros)})
    ours = min(times[EXACT])
    for name in (EXACT, WORDS, NORMAL, OPENDP):
        shortest = min(times[name])
        row(name, dimension, f"{1e6 * shortest / dimension:.3g}", f"{shortest / ours:.3g}")
    return 1e6 * ours / dimension


def across_scales(turns: int) -> None:
    print(SCALES)
    for sigma in (0.3, 1.0, 3.0, 1e3, 2.0**31, 2.0**45, 2.0**52):
        gaussian = DiscreteGaussian(sigma)
        times = in_turns(turns, {EXACT: partial(gaussian.draw, 10**5, system_words)})
        bits = bits_a_draw(gaussian, 10**5)
        row(f"{sigma:.4g}", f"{1e4 * min(times[EXACT]):.0f}", f"{bits:.0f}")


def released(noise: ExactNoise, updates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Release updates one by one; return how long each took, in ns, and what was drawn for it."""
    owner, took, drawn = np.array([0]), np.empty(len(updates)), np.empty(updates.shape)
    for i, update in enumerate(updates):
        start = time.perf_counter_ns()
        noisy = noise.release(update[None], owner, 0)
        took[i] = time.perf_counter_ns() - start
        drawn[i] = noisy[0] - update
    return took, drawn


def of_norm(updates: np.ndarray, norm: float) -> np.ndarray:
    scaled: np.ndarray = norm * updates / np.linalg.norm(updates, axis=1, keepdims=True)
    return scaled


def what_time_tells(dimension: int, count: int) -> None:
    noise, rng = ExactNoise([terms(dimension)]), np.random.default_rng(0)
    random = rng.standard_normal((count, dimension))
    print(TIME.format(count=count, dimension=dimension, bound=3 / np.sqrt(count)))
    took, drawn = released(noise, np.zeros((count, dimension)))
    for name, seen in {
        "the first coordinate's absolute noise": np.abs(drawn[:, 0]),
        "the first coordinate's noise": drawn[:, 0],
        "the largest absolute noise": np.abs(drawn).max(1),
        "the norm of the noise": np.linalg.norm(drawn, axis=1),
    }.items():
        row(name, f"{stats.spearmanr(took, seen).statistic:+.3f}")
    norms = rng.uniform(0, 0.99, (count, 1))
    took, _ = released(noise, norms * of_norm(random, 1.0))
    row("the norm of the update", f"{stats.spearmanr(took, norms[:, 0]).statistic:+.3f}")
    print(DATA)
    updates = {
        "zeros": np.zeros((count, dimension)),
        "as long as the clip": of_norm(random, 1.0),
        "one coordinate of 1, else zeros": np.eye(1, dimension).repeat(count, axis=0),
        "all below 2^-1022": np.full((count, dimension), 1e-310),
    }
    turns: dict[str, list[float]] = {name: [] for name in updates}
    for i in range(count):
        for name, rows in updates.items():
            turns[name] += released(noise, rows[i : i + 1])[0].tolist()
    for name, times in turns.items():
        row(name, f"{median(times) / 1000:.1f}", f"{median(times) / median(turns['zeros']):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[10**3, 10**6])
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--count", type=int, default=20_000, help="updates whose time is compared")
    parser.add_argument("--timed-dimension", type=int, default=100)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    sigma = ExactNoise([terms(1000)]).scales[0] / 2.0**-40
    print(
        INTRODUCTION.format(
            sigma=sigma,
            version=__version__,
            python=platform.python_version(),
            processor=processor(),
        )
    )
    row("sampler", "d", "us a coordinate", "ratio to exact noise")
    row("---", "---:", "---:", "---:")
    gaussian = DiscreteGaussian(float(sigma))
    slowest = max(against_peers(gaussian, d, options.turns) for d in options.dimensions)
    verdict = "met" if slowest <= GOAL_US else "missed"
    print(f"\nGoal: at most {GOAL_US} us a coordinate: {verdict} ({slowest:.3g}).")
    across_scales(max(1, options.turns // 5))
    what_time_tells(options.timed_dimension, options.count)


if __name__ == "__main__":
    main()
