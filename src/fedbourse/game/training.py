"""The training that a task asks for, and the noise that budgets leave in it.

A step with owner i's update carries noise of squared norm d eta^2 sigma_i^2 = a_i / r_i, where
a_i = 2 d eta^2 T L^2 / m_i^2. Call y_i = r_i / a_i the precision of its updates.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import numpy as np

from fedbourse.errors import InvalidGame, InvalidNumber
from fedbourse.game.column_files import loaded
from fedbourse.game.columns import FloatArray, IntArray, positive
from fedbourse.privacy import noise_scale
from fedbourse.units import number, whole_number


@dataclass(frozen=True, eq=False)
class Training:
    """The training that a task asks for (Algorithm 1).

    >>> Training(dimension=1000, step_size=0.1, iterations=500, samples=1000).noise_factor
    0.01
    """

    dimension: int
    """d, the number of the model's parameters."""
    step_size: float
    """eta."""
    iterations: int
    """T, the number of rounds."""
    samples: float | FloatArray
    """m, the records that each update is the mean of: one number, or one for each owner."""
    clip: float = 1.0
    """L, the norm that each record's gradient is clipped to."""

    def __post_init__(self) -> None:
        single = isinstance(self.samples, numbers.Real)
        for name in ("dimension", "iterations"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), at_least=1))
        for name in ("step_size", "clip", *(["samples"] if single else [])):
            object.__setattr__(self, name, number(name, getattr(self, name), above=0))
        if not single:
            object.__setattr__(
                self, "samples", positive("samples", loaded("samples", self.samples))
            )
        with np.errstate(all="ignore"):
            factors = np.atleast_1d(np.asarray(self.noise_factor))
        wrong = factors[~((factors > 1e-290) & (factors < 1e290))]
        if wrong.size:
            raise InvalidNumber(
                "2 dimension iterations (step_size clip / samples)^2 must lie between 1e-290 and "
                f"1e290; found {wrong[0]:g}"
            )

    @property
    def noise_factor(self) -> float | FloatArray:
        """Return a = 2 d eta^2 T L^2 / m^2: what a budget r leaves of noise is a / r."""
        noise = self.step_size * self.clip / self.samples
        return 2.0 * self.dimension * self.iterations * noise * noise

    def precisions(self, budgets: FloatArray, participants: IntArray) -> FloatArray:
        """Return y = r / a for each participant."""
        factor = self.noise_factor
        return budgets / (factor if isinstance(factor, float) else factor[participants])

    def noise_scale(self, budgets: FloatArray, participants: IntArray) -> FloatArray:
        """Return the standard deviation of each participant's noise, a coordinate."""
        m = self.samples
        samples = np.full(len(budgets), m) if isinstance(m, float) else m[participants]
        return noise_scale(budgets, clip=self.clip, samples=samples, iterations=self.iterations)

    def check_owners(self, owners: int) -> None:
        """Refuse records for another number of owners."""
        if not isinstance(self.samples, float) and len(self.samples) != owners:
            raise InvalidGame(
                f"samples must hold one number for each of {owners} owners; "
                f"found {len(self.samples)}"
            )
