"""The best reward where the buyer's utility may jump and have several peaks.

With an exponential cost an entrant arrives with a budget near 0 and may pull the accuracy down at
once; entry costs and caps break the utility in other places, and for some rewards there is no
equilibrium at all. Between two jumps the same owners take part and the utility is smooth. So: probe
a grid of rewards, find each jump between two of them by bisection, and climb every smooth piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

GRID = 96
"""Rewards that are probed first, spread evenly; twice as many are spread evenly in ratio."""

JUMPS = 128
"""Jumps that are located, those between the best rewards of the grid first."""


@dataclass(frozen=True)
class Probe:
    """The buyer's utility at one reward, and who takes part there."""

    reward: float
    utility: float
    """Minus infinity where there is no equilibrium."""
    who: bytes
    """The participants, as a key: equal keys at both ends of an interval mean no jump in it."""


Progress = Callable[[int, int], None]
"""Is told how much of some work, of how much, is done."""


def no_progress(done: int, of: int) -> None:
    """Tell nobody."""


def best_by_search(
    probe: Callable[[float], Probe], largest: float, progress: Progress = no_progress
) -> tuple[Probe, bool]:
    """Return the best reward in (0, largest], and whether it stands at a jump.

    ``progress`` is told per cent: the grid is the first third, jumps the second, peaks the last.
    """

    def advance(third: int, done: int, of: int) -> None:
        progress((100 * third + 100 * done // max(of, 1)) // 3, 100)

    grid = _grid(largest)
    points = []
    for done, reward in enumerate(grid):
        advance(0, done, len(grid))
        points.append(probe(reward))
    points = _with_jumps(probe, points, partial(advance, 1))
    best, at_jump = points[0], False
    start = 0
    for stop in range(1, len(points) + 1):
        advance(2, stop, len(points))
        if stop < len(points) and points[stop].who == points[start].who:
            continue
        piece = points[start:stop]
        top = max(range(len(piece)), key=lambda i: piece[i].utility)
        around = piece[max(top - 1, 0) : top + 2]
        peak = _climb(probe, around[0], piece[top], around[-1])
        if peak.utility > best.utility:
            best, at_jump = peak, peak.reward in (piece[0].reward, piece[-1].reward)
        start = stop
    return best, at_jump


def best_by_zoom(
    utility: Callable[[float], float], largest: float, progress: Progress = no_progress
) -> float:
    """Return the best reward of a utility with many small jumps, by ever finer grids."""
    rewards, zooms = _grid(largest), 4
    for zoom in range(zooms):
        heights = []
        for done, reward in enumerate(rewards):
            progress((100 * zoom + 100 * done // len(rewards)) // zooms, 100)
            heights.append(utility(reward))
        top = int(np.argmax(heights))
        best, around = rewards[top], rewards[max(top - 1, 0) : top + 2]
        rewards = np.unique([best, *np.linspace(around[0], around[-1], 25)]).tolist()
    return best


def _grid(largest: float) -> list[float]:
    """Return rewards spread evenly, and evenly in ratio, up to the largest that could pay."""
    even = np.linspace(0.0, largest, GRID + 1)[1:]
    ratio = np.geomspace(largest * 1e-14, largest, 2 * GRID)
    return [float(reward) for reward in np.unique(np.concatenate([even, ratio]))]


def _with_jumps(
    probe: Callable[[float], Probe], points: list[Probe], progress: Progress
) -> list[Probe]:
    """Add the last point before and the first point after each jump."""
    result, left_over = list(points), JUMPS
    intervals = [(left, right) for left, right in pairwise(points) if left.who != right.who]
    by_height = sorted(intervals, key=lambda ends: -max(end.utility for end in ends))
    for done, (left, right) in enumerate(by_height):
        progress(done, len(by_height))
        start = left
        while start.who != right.who and left_over:
            before, after = _jump(probe, start, right)
            result += [before, after]
            start, left_over = after, left_over - 1
    return sorted(result, key=lambda point: point.reward)


def _jump(probe: Callable[[float], Probe], left: Probe, right: Probe) -> tuple[Probe, Probe]:
    """Return two points as close as possible between which the participants of ``left`` change."""
    before, after = left, right
    while after.reward - before.reward > 1e-12 * after.reward:
        middle = probe((before.reward + after.reward) / 2)
        before, after = (middle, after) if middle.who == left.who else (before, middle)
    return before, after


def _climb(probe: Callable[[float], Probe], left: Probe, top: Probe, right: Probe) -> Probe:
    """Return the best point of a smooth piece between two points around its best one."""
    if not (math.isfinite(top.utility) and left.reward < right.reward):
        return top
    from scipy.optimize import minimize_scalar

    peak = minimize_scalar(
        lambda reward: -probe(float(reward)).utility,
        bounds=(left.reward, right.reward),
        method="bounded",
        options={"xatol": 1e-9 * right.reward},
    )
    best = max([top, probe(float(peak.x))], key=lambda point: point.utility)
    return _polish(probe, best, left.reward, right.reward)


def _polish(probe: Callable[[float], Probe], best: Probe, low: float, high: float) -> Probe:
    """Sharpen a smooth peak by the root of the slope: heights alone are flat to 1e-8 around it."""
    from scipy.optimize import brentq

    step = 1e-3 * best.reward
    width = 1e-5 * best.reward
    if not low < best.reward - width - 2 * step < best.reward + width + 2 * step < high:
        return best

    def slope(reward: float) -> float:
        near = [probe(reward + k * step).utility for k in (-2, -1, 1, 2)]
        return (near[0] - 8 * near[1] + 8 * near[2] - near[3]) / (12 * step)

    low, high = best.reward - width, best.reward + width
    if not slope(low) > 0 > slope(high):
        return best
    return probe(brentq(slope, low, high, xtol=1e-12 * best.reward))
