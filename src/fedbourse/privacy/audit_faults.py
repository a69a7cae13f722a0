"""What an audit is about: a claim, a subject, faults to plant in it, and who notices them.

Whoever doubts an audit plants a fault and sees it fail. Power comes from the same distributions as
the tests, never from simulation: exact, except for ``shape``, where it is that of large samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import (
    betainc,
    chndtr,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    ndtr,
    ndtri,
)

from fedbourse.errors import InvalidNumber
from fedbourse.privacy.zcdp import noise_scale
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]

FAULTS_IN_WORDS = {
    "half-sigma": "half the noise",
    "low-sigma": "noise 10 % low",
    "reused-noise": "the same noise in every round",
    "reused-between-runs": "the same noise in every run",
    "double-sensitivity": "a record that counts twice",
}
ROUNDS_MAX, RUNS_MAX, ANSWERS_MAX, NUMBERS_MAX = 500, 2000, 4000, 1024
"""The rounds, runs and answers that the reuse tests compare, and the numbers of each run or answer.

Beyond that, rounds and numbers are drawn at random and the first runs count.
"""
TAIL_MARGIN = 1.25
"""What the p-value of the shape test is multiplied by, for the tail that it approximates."""
_NOISE_SHARE = {"half-sigma": 0.5, "low-sigma": 0.9}
_SIGNAL = {"half-sigma": 2.0, "low-sigma": 1 / 0.9, "double-sensitivity": 2.0}  # over noise

Expected = Callable[[int], "FloatArray"]
Draw = Callable[[], "FloatArray"]
Fault = Callable[[Expected, Draw], "Subject"]


@dataclass(frozen=True)
class Claim:
    """What the noise is said to be: enough that a whole run is rho-zCDP about ONE RECORD.

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
        """Check every field once."""
        for name in ("rho", "clip", "delta"):
            object.__setattr__(self, name, number(name, getattr(self, name), above=0))
        for name in ("samples", "rounds", "dimension"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), at_least=1))
        if self.delta >= 1:
            raise InvalidNumber(f"delta must be a number below 1; found {self.delta:g}")

    @cached_property
    def sigma(self) -> float:
        """Return the standard deviation of each coordinate of each answer."""
        return noise_scale(self.rho, clip=self.clip, samples=self.samples, iterations=self.rounds)

    @property
    def sensitivity(self) -> float:
        """Return how far exchanging one record moves a noiseless answer, at most."""
        return 2.0 * self.clip / self.samples

    @property
    def grid(self) -> float:
        """Return the coarsest step that answers may lie on: a device's grid, or that of floats."""
        return max(self.sensitivity * 2.0**-31, float(np.spacing(self.clip + 10 * self.sigma)))

    @cached_property
    def epsilon(self) -> float:
        """Return the epsilon that the claim implies at its delta, about one record."""
        from fedbourse.privacy.zcdp import epsilon

        return epsilon(rho=self.rho, delta=self.delta)


class Subject(Protocol):
    """What is audited. Arrays have the shape (rounds, dimension); a sign is +1 or -1."""

    def expected(self, sign: int, /) -> FloatArray:
        """Return the noiseless answers that the CLAIM implies when the canary has this sign."""

    def answers(self, sign: int, /) -> FloatArray:
        """Return the noisy answers of one fresh run, independent of all others."""


@dataclass(frozen=True)
class Planted:
    """A subject whose parts are given: what the claim expects, what is answered, and the noise."""

    expected: Expected
    noiseless: Expected
    draw: Draw

    def answers(self, sign: int, /) -> FloatArray:
        """Return one run."""
        return self.noiseless(sign) + self.draw()


def honest(expected: Expected, draw: Draw) -> Subject:
    """Return a subject that does what it claims; ``draw`` returns the noise of one run."""
    return Planted(expected, expected, draw)


def canary(claim: Claim) -> Expected:
    """Return the expected answers where all other records cancel out: +-clip / samples."""
    each = claim.clip / claim.samples / math.sqrt(claim.dimension)
    return lambda sign: np.full((claim.rounds, claim.dimension), sign * each)


def _scaled(share: float) -> Fault:
    return lambda expected, draw: Planted(expected, expected, lambda: share * draw())


def _reused_noise(expected: Expected, draw: Draw) -> Subject:
    def repeat() -> FloatArray:
        noise = draw()
        return np.repeat(noise[:1], len(noise), axis=0)

    return Planted(expected, expected, repeat)


def _reused_between_runs(expected: Expected, draw: Draw) -> Subject:
    return Planted(expected, expected, cache(draw))


def _double_sensitivity(expected: Expected, draw: Draw) -> Subject:
    def far(sign: int) -> FloatArray:
        return 1.5 * expected(sign) - 0.5 * expected(-sign)  # twice as far from their middle

    return Planted(expected, far, draw)


FAULTS: dict[str, Fault] = {
    "half-sigma": _scaled(_NOISE_SHARE["half-sigma"]),
    "low-sigma": _scaled(_NOISE_SHARE["low-sigma"]),
    "reused-noise": _reused_noise,
    "reused-between-runs": _reused_between_runs,
    "double-sensitivity": _double_sensitivity,
}
"""Each makes a faulty subject of an honest one's parts."""


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
    def kept(self) -> tuple[int, int, int]:
        """Return the runs, rounds and coordinates of the answers that are compared one by one."""
        rounds = min(self.claim.rounds, max(2, ANSWERS_MAX // self.runs))
        runs = min(self.runs, ANSWERS_MAX // rounds)
        return runs, rounds, min(self.claim.dimension, NUMBERS_MAX)

    @property
    def repeats_expected(self) -> float:
        """Return a bound on the pairs of kept answers within two steps of the grid, if honest.

        Two draws on a grid of step g are k steps apart with chance g / (2 sqrt(pi) sigma) at most,
        for each k; rounding of the expected answers adds a step, and 9 values of k cover that.
        """
        runs, rounds, coordinates = self.kept
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


def at_least(right: int, runs: int, chance: float) -> float:
    """Return how likely that many of ``runs`` guesses are right, or more: the binomial tail."""
    return float(betainc(right, runs - right + 1, chance)) if right else 1.0


def cosine_p_value(largest: float, vectors: int, length: int) -> float:
    """Return how likely some pair of independent normal vectors has such a |cosine|: a bound."""
    pairs = vectors * (vectors - 1) / 2
    if length < 2 or not pairs:
        return 1.0
    # A computed cosine is good to 1e-15 only.
    sine_squared = max((1.0 - largest) * (1.0 + largest), 1e-15)
    return min(1.0, pairs * float(betainc((length - 1) / 2, 0.5, sine_squared)))


def power_of(test: str, plan: Plan) -> dict[str, float]:
    """Return how likely a test notices each of the faults that it looks for."""
    return _POWERS[test](plan)


def _copies(plan: Plan) -> dict[str, int]:
    """Return how often the faults that reuse noise use each number."""
    within = {"reused-noise": plan.claim.rounds} if plan.claim.rounds > 1 else {}
    return within | {"reused-between-runs": plan.runs}


def _too_little(plan: Plan) -> dict[str, float]:
    half = plan.numbers / 2
    limit = float(gammaincinv(half, plan.level))
    power = {fault: float(gammainc(half, limit / s**2)) for fault, s in _NOISE_SHARE.items()}
    return power | {f: float(gammainc(half / n, limit / n)) for f, n in _copies(plan).items()}


def _too_much(plan: Plan) -> dict[str, float]:
    half = plan.numbers / 2
    limit = float(gammainccinv(half, plan.level))
    return {fault: float(gammaincc(half / n, limit / n)) for fault, n in _copies(plan).items()}


def _shape(plan: Plan) -> dict[str, float]:
    freedom = plan.bins - 1
    limit = 2 * float(gammainccinv(freedom / 2, plan.level / TAIL_MARGIN))
    power = {}
    for fault, share in _NOISE_SHARE.items():
        chances = np.diff(ndtr(plan.edges / share), prepend=0.0, append=1.0)
        shift = plan.numbers * plan.bins * float(((chances - 1 / plan.bins) ** 2).sum())
        # Far out the tail is 1 to all digits, and slow to compute.
        power[fault] = 1.0 - float(chndtr(limit, freedom, shift)) if shift < 1e4 else 1.0
    return power


def _reuse_rounds(plan: Plan) -> dict[str, float]:
    vectors = min(plan.claim.rounds, ROUNDS_MAX)
    return _parallel(plan, "reused-noise", vectors, plan.runs * plan.claim.dimension)


def _reuse_runs(plan: Plan) -> dict[str, float]:
    length = min(plan.claim.rounds * plan.claim.dimension, NUMBERS_MAX)
    return _parallel(plan, "reused-between-runs", min(plan.runs, RUNS_MAX), length)


def _reuse_answers(plan: Plan) -> dict[str, float]:
    runs, rounds, coordinates = plan.kept
    power: dict[str, float] = {}
    for fault in _copies(plan):
        power |= _parallel(plan, fault, runs * rounds, coordinates)
    return power


def _parallel(plan: Plan, fault: str, vectors: int, length: int) -> dict[str, float]:
    """Return power 1 where parallel vectors are rare enough to accuse, else 0."""
    if fault not in _copies(plan):
        return {}
    return {fault: float(cosine_p_value(1.0, vectors, length) <= plan.level)}


def _repeats(plan: Plan) -> dict[str, float]:
    runs, rounds, _ = plan.kept
    pairs = {"reused-noise": runs * (rounds - 1), "reused-between-runs": rounds * (runs - 1)}
    return {f: float(plan.repeats_expected <= plan.level * pairs[f]) for f in _copies(plan)}


def _sensitivity(plan: Plan) -> dict[str, float]:
    limit, shift = float(ndtri(plan.level / 2)), plan.signal * math.sqrt(plan.runs)
    return {"double-sensitivity": float(ndtr(limit + shift) + ndtr(limit - shift))}


def _guesses(plan: Plan, chance: float) -> dict[str, float]:
    from scipy.stats import binom

    limit = int(binom.isf(plan.level, plan.runs, chance)) + 1
    return {f: at_least(limit, plan.runs, float(ndtr(plan.signal * s))) for f, s in _SIGNAL.items()}


_POWERS: dict[str, Callable[[Plan], dict[str, float]]] = {
    "too-little-noise": _too_little,
    "too-much-noise": _too_much,
    "shape": _shape,
    "reuse-rounds": _reuse_rounds,
    "reuse-runs": _reuse_runs,
    "reuse-answers": _reuse_answers,
    "repeats": _repeats,
    "sensitivity": _sensitivity,
    "canaries": lambda plan: _guesses(plan, plan.guess_chance),
    "epsilon": lambda plan: _guesses(plan, plan.guess_chance_max),
}
