"""The best point of a box: points at random, then ever smaller steps around the best.

Scores jump (a price at which a device declines, a tick more or less), so nothing here needs slopes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import Generator

Point = tuple[float, ...]
"""A number for each axis."""


@dataclass(frozen=True)
class Axis:
    """One number that a deviator may choose."""

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, part: float) -> float:
        """Return the number at this part of the way from the low end to the high one.

        >>> Axis("value", 0.01, 1.0, log=True).at(0.5)
        0.1
        """
        part = min(max(part, 0.0), 1.0)
        if self.whole:
            return float(min(math.floor(self.low + part * (self.high - self.low + 1)), self.high))
        if self.log:
            return min(self.low * math.pow(self.high / self.low, part), self.high)
        return self.low + part * (self.high - self.low)

    def part_of(self, number: float) -> float:
        """Return how far along the axis a number lies."""
        if self.whole:
            return (number - self.low + 0.5) / (self.high - self.low + 1)
        if self.log:
            return math.log(number / self.low) / math.log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)


def search(
    score: Callable[[Point], float],
    axes: Sequence[Axis],
    *,
    plays: int,
    rng: Generator,
) -> Point:
    """Return the best of so many points, half of them at random, half near the best so far.

    No point is scored twice, so that whole numbers may take fewer plays.
    """
    scores: dict[Point, float] = {}

    def consider(point: Point) -> None:
        if point not in scores:
            scores[point] = score(point)

    for _ in range((plays + 1) // 2):
        consider(tuple(axis.at(float(rng.random())) for axis in axes))
    steps = plays // 2
    for step in range(steps):
        middle = max(scores, key=scores.__getitem__)
        width = 0.2 * 0.01 ** (step / steps)
        consider(
            tuple(
                axis.at(axis.part_of(number) + width * float(rng.normal()))
                for axis, number in zip(axes, middle, strict=True)
            )
        )
    return max(scores, key=scores.__getitem__)
