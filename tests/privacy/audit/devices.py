"""Devices to audit, honest and not, and what an audit says of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedbourse.privacy.audit import NOISE_FAULTS, Claim, Subject
from fedbourse.privacy.noise import FloatArray

Expected = Callable[[int], FloatArray]
Draw = Callable[[], FloatArray]
Fault = Callable[[Expected, Draw], Subject]


@dataclass(frozen=True)
class SimulatedSubject:
    """A subject made of parts: the expected updates, the noiseless ones, and the noise."""

    expected: Expected
    noiseless: Expected
    draw: Draw

    def updates(self, sign: int, /) -> FloatArray:
        """Return one run."""
        return self.noiseless(sign) + self.draw()


def honest(expected: Expected, draw: Draw) -> Subject:
    """Return a subject that does what it claims; ``draw`` returns the noise of one run."""
    return SimulatedSubject(expected, expected, draw)


def canary(claim: Claim) -> Expected:
    """Return the expected updates where all other records cancel out: +-clip / samples."""
    each = claim.clip / claim.samples / math.sqrt(claim.dimension)
    return lambda sign: np.full((claim.rounds, claim.dimension), sign * each)


def _with_noise(fault: Callable[[Draw], Draw]) -> Fault:
    return lambda expected, draw: SimulatedSubject(expected, expected, fault(draw))


def _double_sensitivity(expected: Expected, draw: Draw) -> Subject:
    def far(sign: int) -> FloatArray:
        return 1.5 * expected(sign) - 0.5 * expected(-sign)  # twice as far from their middle

    return SimulatedSubject(expected, far, draw)


FAULTS: dict[str, Fault] = {
    **{name: _with_noise(fault) for name, fault in NOISE_FAULTS.items()},
    "double-sensitivity": _double_sensitivity,
}
"""Each makes a faulty subject of an honest one's parts."""


CLAIM = Claim(rho=0.5, clip=1.0, samples=1000, rounds=4, dimension=10)
SMALL = Claim(rho=0.3, clip=2.0, samples=500, rounds=2, dimension=6)
SMALL_RUNS, SMALL_ALPHA = 40, 0.05


def normal(claim, seed=1):
    rng = np.random.default_rng(seed)
    return lambda: rng.normal(0.0, claim.sigma, (claim.rounds, claim.dimension))


def subject(claim, fault=None, seed=1):
    return FAULTS.get(fault, honest)(canary(claim), normal(claim, seed))


def failed(audit):
    return {finding.name for finding in audit.findings if not finding.passed}


def within(count, times, low, high=None):
    """Say whether a count is one that a chance between ``low`` and ``high`` would give."""
    high = low if high is None else high
    return stats.binom.ppf(1e-4, times, low) <= count <= stats.binom.isf(1e-4, times, high)
