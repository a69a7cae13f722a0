"""What an audit is about: the claimed noise, who claims it, and how many runs are observed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from fedbourse.errors import InvalidNumber
from fedbourse.privacy.noise import FloatArray
from fedbourse.privacy.zcdp import noise_scale
from fedbourse.units import number, whole_number

ROUNDS_MAX, RUNS_MAX, UPDATES_MAX, NUMBERS_MAX = 500, 2000, 4000, 1024
"""The rounds, runs and updates that the reuse tests compare, and the numbers of each run or update.

Beyond that, rounds and numbers are drawn at random and the first runs count.
"""
NUMBERS_MIN = 400
"""The noisy numbers that an audit needs in all: 100 for each bin of the shape test."""


@dataclass(frozen=True)
class Claim:
    """The claimed noise: enough that a whole run is rho-zCDP about ONE RECORD.

    >>> claim = Claim(rho=0.5, clip=1.0, samples=1000, rounds=4, dimension=10)
    >>> claim.sigma, claim.sensitivity
    (0.004, 0.002)
    """

    rho: float
    clip: float
    samples: int
    rounds: int
    dimension: int
    delta: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("rho", "clip", "delta"):
            object.__setattr__(self, name, number(name, getattr(self, name), above=0))
        for name in ("samples", "rounds", "dimension"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), at_least=1))
        if self.delta >= 1:
            raise InvalidNumber(f"delta must be a number below 1; found {self.delta:g}")

    @cached_property
    def sigma(self) -> float:
        """Return the standard deviation of each coordinate of each update."""
        return noise_scale(self.rho, clip=self.clip, samples=self.samples, iterations=self.rounds)

    @property
    def sensitivity(self) -> float:
        """Return how far exchanging one record moves a noiseless update, at most."""
        return 2.0 * self.clip / self.samples

    @property
    def grid(self) -> float:
        """Return the coarsest step that updates may lie on: a device's grid, or that of floats."""
        return max(self.sensitivity * 2.0**-31, float(np.spacing(self.clip + 10 * self.sigma)))

    @cached_property
    def epsilon(self) -> float:
        """Return the epsilon that the claim implies at its delta, about one record."""
        from fedbourse.privacy.zcdp import epsilon

        return epsilon(rho=self.rho, delta=self.delta)


class Subject(Protocol):
    """What is audited. Arrays have the shape (rounds, dimension); a sign is +1 or -1."""

    def expected(self, sign: int, /) -> FloatArray:
        """Return the noiseless updates that the CLAIM implies when the canary has this sign."""

    def updates(self, sign: int, /) -> FloatArray:
        """Return the noisy updates of one fresh run, independent of all others."""


@dataclass(frozen=True)
class Plan:
    """A claim, a number of runs, and the error that each single test may make."""

    claim: Claim
    runs: int
    level: float

    @property
    def numbers(self) -> int:
        """Return how many noisy numbers all runs hold."""
        return self.runs * self.claim.rounds * self.claim.dimension

    @property
    def bins(self) -> int:
        """Return the bins of the shape test: 200 numbers each, or 100 where numbers are few."""
        return min(max(self.numbers // 200, 4), 32)

    @property
    def edges(self) -> FloatArray:
        """Return the edges between bins that are equally likely for honest residuals."""
        return np.asarray(ndtri(np.arange(1, self.bins) / self.bins), float)

    @property
    def sample_shape(self) -> tuple[int, int, int]:
        """Return the runs, rounds and coordinates of the updates that are compared individually."""
        rounds = min(self.claim.rounds, max(2, UPDATES_MAX // self.runs))
        runs = min(self.runs, UPDATES_MAX // rounds)
        return runs, rounds, min(self.claim.dimension, NUMBERS_MAX)

    @property
    def repeats_expected(self) -> float:
        """Return a bound on the pairs of sampled updates within two steps of the grid, if honest.

        Two draws on a grid of step g are k steps apart with chance g / (2 sqrt(pi) sigma) at most,
        for each k; rounding of the expected updates adds a step, and 9 values of k cover that.
        """
        runs, rounds, coordinates = self.sample_shape
        chance = 9 * self.claim.grid / self.claim.sigma / (2 * math.sqrt(math.pi))
        return runs * rounds * (runs * rounds - 1) / 2 * chance**coordinates

    @property
    def signal(self) -> float:
        """Return how far the canary's sign moves a run, each way, over its noise."""
        return math.sqrt(self.claim.rho / 2)

    @property
    def guess_chance(self) -> float:
        """Return the chance to guess the sign of the canary in one run, if honest."""
        return float(ndtr(self.signal))

    @property
    def guess_chance_max(self) -> float:
        """Return the chance that no mechanism with the claimed epsilon and delta exceeds."""
        odds = math.exp(-self.claim.epsilon)
        return min(1.0, (1.0 + self.claim.delta * odds) / (1.0 + odds))
