"""Noise for models of a million parameters: a cipher's randomness, rounded to a grid.

Unlike the discrete Gaussian this is **not proven** to cost what it says: the draws are doubles, and
on too fine a grid some steps could not be drawn at all, which would rule out a neighbour for
certain. Two measures against that:

- The grid is 20 bits below the sensitivity, not 31, and a round costs at least 2^-20, so that a
  draw is scaled by s <= 2^31 steps; terms that need more are refused. Up to 3.65 the ziggurat draws
  multiples of at most 3.92 x 2^-52, that is 2^-19 of a step, and doubles there are 2^-20 of a step
  apart: every step out to 3.65 s is drawn in hundreds of thousands of ways.
- Beyond 3.65, once in 3,900 draws, draws are coarser the further out they lie. So the noise of a
  number is the sum of two draws, each rounded to the grid by itself: one fills the gaps of the
  other, out to 12 standard deviations (once in 10^32), and whole numbers add up without rounding.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedbourse.errors import InvalidNumber, MissingExtra
from fedbourse.privacy.noise import FloatArray, GridGaussian, GridNoise
from fedbourse.privacy.terms import Terms

_MOST_STEPS = 2.0**31
_HALF = math.sqrt(0.5) * (1.0 + 2.0**-50)  # of a variance each; never less, for all rounding


class _FastGaussian(GridGaussian):
    """One owner's grid, so coarse that two normal draws reach every step."""

    kind = "fast noise (exact noise takes less)"
    grid_bits = 20
    least_round_rho = 2.0**-20

    def __init__(self, normal: Callable[[int], FloatArray], terms: Terms) -> None:
        super().__init__(terms)
        self._normal = normal
        if self.draw_steps > _MOST_STEPS:
            raise InvalidNumber(
                f"fast noise takes at most {_MOST_STEPS:.3g} steps of its grid; "
                f"{terms.samples} samples and dimension {terms.dimension} need "
                f"{self.draw_steps:.3g}: use exact noise"
            )

    @property
    def draw_steps(self) -> float:
        """Return s, the standard deviation of each of two draws in steps."""
        return self.scale / self.grid * _HALF

    def release(self, update: FloatArray) -> FloatArray:
        steps = self.steps(update)
        for _ in range(2):
            draws = self._normal(self.dimension)
            draws *= self.draw_steps
            steps += np.rint(draws, out=draws)
        steps *= self.grid
        return steps


class FastNoise(GridNoise):
    """Normal noise from ChaCha20, keyed by the system: much faster than exact noise, not proven."""

    def __init__(self, terms: Sequence[Terms]) -> None:
        super().__init__(terms, partial(_FastGaussian, self._normal))
        self._generator, self._process = _generator(), os.getpid()

    def _normal(self, size: int) -> FloatArray:
        if self._process != os.getpid():  # forked: its parent must not draw the same
            self._generator, self._process = _generator(), os.getpid()
        draws: FloatArray = self._generator.standard_normal(size)
        return draws


def _generator() -> Any:
    try:
        from randomgen import ChaCha
    except ImportError:
        raise MissingExtra(
            "fast noise needs randomgen: pip install 'fedbourse[fast-noise]'"
        ) from None
    return np.random.Generator(ChaCha(key=int.from_bytes(os.urandom(32)), rounds=20))
