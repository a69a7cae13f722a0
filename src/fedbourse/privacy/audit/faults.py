"""Faults to plant in an honest device, to see an audit catch them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedbourse.privacy.audit.claim import Claim, Subject
from fedbourse.privacy.noise import FloatArray

FAULT_DESCRIPTIONS = {
    "half-sigma": "half the noise",
    "low-sigma": "noise 10 % low",
    "reused-noise": "the same noise in every round",
    "reused-between-runs": "the same noise in every run",
    "double-sensitivity": "a record that counts twice",
}
NOISE_SHARES = {"half-sigma": 0.5, "low-sigma": 0.9}
"""The part of the claimed noise that is left."""

Expected = Callable[[int], "FloatArray"]
Draw = Callable[[], "FloatArray"]
Fault = Callable[[Expected, Draw], "Subject"]


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


def _scaled(share: float) -> Callable[[Draw], Draw]:
    return lambda draw: lambda: share * draw()


def _reused_noise(draw: Draw) -> Draw:
    def repeat() -> FloatArray:
        noise = draw()
        return np.repeat(noise[:1], len(noise), axis=0)

    return repeat


def _reused_between_runs(draw: Draw) -> Draw:
    return cache(draw)


NOISE_FAULTS: dict[str, Callable[[Draw], Draw]] = {
    "half-sigma": _scaled(NOISE_SHARES["half-sigma"]),
    "low-sigma": _scaled(NOISE_SHARES["low-sigma"]),
    "reused-noise": _reused_noise,
    "reused-between-runs": _reused_between_runs,
}
"""Each makes faulty noise of honest noise."""


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
