"""What a buyer assumes of values that it does not know.

Anything with SciPy's ``rvs(size=, random_state=)`` will do, so ``scipy.stats.lognorm(s=0.5)`` works
as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
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
