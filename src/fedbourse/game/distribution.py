"""What a buyer assumes of values that it does not know.

Anything with SciPy's ``rvs(size=, random_state=)`` will do, so ``scipy.stats.lognorm(s=0.5)`` works
as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.column_files import loaded
from fedbourse.game.columns import FloatArray, positive
from fedbourse.units import number


@runtime_checkable
class Distribution(Protocol):
    """Values that owners might have."""

    def rvs(self, *, size: tuple[int, int], random_state: np.random.Generator) -> FloatArray:
        """Return draws of the given shape."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Values spread evenly between two numbers, as in the paper's study."""

    low: float
    high: float

    def __post_init__(self) -> None:
        number("low", self.low, above=0, error=InvalidGame)
        number("high", self.high, above=float(self.low), error=InvalidGame)

    def rvs(self, *, size: tuple[int, ...], random_state: np.random.Generator) -> FloatArray:
        """Return independent uniform values."""
        return random_state.uniform(self.low, self.high, size)

    def spread(self, owners: int, start: int = 0, stop: int | None = None) -> FloatArray:
        """Return the values of owners who lie evenly between the two ends, or some of them.

        >>> Uniform(1, 5).spread(4)
        array([1.5, 2.5, 3.5, 4.5])
        """
        places = (np.arange(start, owners if stop is None else stop) + 0.5) / owners
        return self.low + (self.high - self.low) * places


@dataclass(frozen=True)
class Quantiles:
    """Values by what part of all owners has at most each, spread evenly in between.

    The parts rise from 0 to 1. With 100 owners the few of the lowest values decide, so the parts
    near 0 are those that matter.

    >>> Quantiles(((0, 1), (0.1, 2), (1, 11))).spread(4).round(3)
    array([2.25, 4.75, 7.25, 9.75])
    """

    pairs: tuple[tuple[float, float], ...]
    """Parts of all owners, each with the value that they have at most."""

    def __post_init__(self) -> None:
        if len(self.pairs) < 2 or self.pairs[0][0] != 0 or self.pairs[-1][0] != 1:
            parts = ", ".join(f"{part:g}" for part, _ in self.pairs)
            raise InvalidGame(
                "quantiles must be pairs of a part of all owners and a value, the parts from 0 to "
                f"1; found {f'the parts {parts}' if parts else 'none'}"
            )
        number("value", self.pairs[0][1], above=0, error=InvalidGame)
        for (part, value), (next_part, next_value) in pairwise(self.pairs):
            number("part", next_part, above=float(part), at_most=1, error=InvalidGame)
            number("value", next_value, at_least=float(value), error=InvalidGame)

    def rvs(self, *, size: tuple[int, ...], random_state: np.random.Generator) -> FloatArray:
        """Return independent values with these quantiles."""
        return self._at(random_state.random(size))

    def spread(self, owners: int, start: int = 0, stop: int | None = None) -> FloatArray:
        """Return the values of owners who lie evenly spread over all of them, or some of them."""
        return self._at((np.arange(start, owners if stop is None else stop) + 0.5) / owners)

    def _at(self, places: FloatArray) -> FloatArray:
        parts, values = zip(*self.pairs, strict=True)
        return np.asarray(np.interp(places, parts, values), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Sample:
    """Values as in an observed sample: owners are drawn from it with replacement."""

    values: FloatArray

    def __post_init__(self) -> None:
        values = loaded("values", self.values, "value")
        object.__setattr__(self, "values", positive("values", values))
        if not len(self.values):
            raise InvalidGame("a sample of values must hold at least one value; found none")

    def rvs(self, *, size: tuple[int, ...], random_state: np.random.Generator) -> FloatArray:
        """Return values drawn with replacement."""
        return random_state.choice(self.values, size)
