"""How likely each test notices each fault, and how many runs it takes.

Power comes from the same distributions as the tests, never from simulation: exact, except for
``shape``, where it is that of large samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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

from fedbourse.errors import InvalidInput, InvalidNumber
from fedbourse.privacy.audit.claim import (
    NUMBERS_MAX,
    NUMBERS_MIN,
    ROUNDS_MAX,
    RUNS_MAX,
    Claim,
    Plan,
)
from fedbourse.privacy.audit.faults import NOISE_SHARES
from fedbourse.units import number

TAIL_MARGIN = 1.25
"""What the p-value of the shape test is multiplied by, for the tail that it approximates."""
RUNS_MIN = 10
"""The fewest runs that guesses of the canary's sign are counted over."""
_SIGNALS = {"half-sigma": 2.0, "low-sigma": 1 / 0.9, "double-sensitivity": 2.0}  # over noise
_ALPHA_MIN = 1e-6  # further out, the margin of the shape test does not cover its tail


def at_least(right: int, runs: int, chance: float) -> float:
    """Return how likely that many of ``runs`` guesses are right, or more: the binomial tail."""
    if right > runs:  # no count is ever that high, however likely a right guess is
        return 0.0
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


def level_of(alpha: float, *, tests: int | None = None) -> float:
    """Return each test's part of alpha, over ``tests`` tests or all of them."""
    if not number("alpha", alpha, at_least=_ALPHA_MIN) < 0.5:
        raise InvalidNumber(f"alpha must be a number below 0.5; found {alpha:g}")
    return float(alpha) / (len(_POWERS) if tests is None else tests)


def runs_needed(
    claim: Claim,
    *,
    test: str,
    fault: str,
    power: float = 0.99,
    alpha: float = 1e-4,
    tests: int | None = None,
) -> int:
    """Return how many runs give one test of an audit at alpha this power against a fault.

    ``tests`` is how many the audit consists of; all of them unless told.

    >>> from fedbourse.privacy.audit import Claim
    >>> claim = Claim(rho=0.5, clip=1.0, samples=1000, rounds=4, dimension=10)
    >>> runs_needed(claim, test="canaries", fault="half-sigma")
    355
    """
    level = level_of(alpha, tests=tests)
    wanted = number("power", power, above=0, at_most=1 - 1e-9)
    if test not in _POWERS:
        raise InvalidInput(f"test must be one of {', '.join(_POWERS)}; found {test!r:.60}")

    def enough(runs: int) -> bool:
        return power_of(test, Plan(claim, runs, level)).get(fault, 0.0) >= wanted

    low, high = RUNS_MIN - 1, RUNS_MIN
    while not enough(high):
        low, high = high, 2 * high
        if high > 1e9:
            raise InvalidInput(f"no number of runs lets {test} notice the fault {fault!r:.60}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    # Guesses are whole numbers, so power rises in a saw-tooth: go past its last tooth.
    while dips := [runs for runs in range(high, high + 64) if not enough(runs)]:
        high = dips[-1] + 1
    return max(high, math.ceil(NUMBERS_MIN / (claim.rounds * claim.dimension)))


def _copies(plan: Plan) -> dict[str, int]:
    """Return how often the faults that reuse noise use each number."""
    within = {"reused-noise": plan.claim.rounds} if plan.claim.rounds > 1 else {}
    return within | ({"reused-between-runs": plan.runs} if plan.runs > 1 else {})


def _too_little(plan: Plan) -> dict[str, float]:
    half = plan.numbers / 2
    limit = float(gammaincinv(half, plan.level))
    power = {fault: float(gammainc(half, limit / s**2)) for fault, s in NOISE_SHARES.items()}
    return power | {f: float(gammainc(half / n, limit / n)) for f, n in _copies(plan).items()}


def _too_much(plan: Plan) -> dict[str, float]:
    half = plan.numbers / 2
    limit = float(gammainccinv(half, plan.level))
    return {fault: float(gammaincc(half / n, limit / n)) for fault, n in _copies(plan).items()}


def _shape(plan: Plan) -> dict[str, float]:
    freedom = plan.bins - 1
    limit = 2 * float(gammainccinv(freedom / 2, plan.level / TAIL_MARGIN))
    power = {}
    for fault, share in NOISE_SHARES.items():
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


def _reuse_updates(plan: Plan) -> dict[str, float]:
    runs, rounds, coordinates = plan.sample_shape
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
    runs, rounds, _ = plan.sample_shape
    pairs = {"reused-noise": runs * (rounds - 1), "reused-between-runs": rounds * (runs - 1)}
    return {f: float(plan.repeats_expected <= plan.level * pairs[f]) for f in _copies(plan)}


def _sensitivity(plan: Plan) -> dict[str, float]:
    limit, shift = float(ndtri(plan.level / 2)), plan.signal * math.sqrt(plan.runs)
    return {"double-sensitivity": float(ndtr(limit + shift) + ndtr(limit - shift))}


def _guesses(plan: Plan, chance: float) -> dict[str, float]:
    from scipy.stats import binom

    limit = int(binom.isf(plan.level, plan.runs, chance)) + 1
    signals = {fault: plan.signal * times for fault, times in _SIGNALS.items()}
    return {f: at_least(limit, plan.runs, float(ndtr(signal))) for f, signal in signals.items()}


_POWERS: dict[str, Callable[[Plan], dict[str, float]]] = {
    "too-little-noise": _too_little,
    "too-much-noise": _too_much,
    "shape": _shape,
    "reuse-rounds": _reuse_rounds,
    "reuse-runs": _reuse_runs,
    "reuse-updates": _reuse_updates,
    "repeats": _repeats,
    "sensitivity": _sensitivity,
    "canaries": lambda plan: _guesses(plan, plan.guess_chance),
    "epsilon": lambda plan: _guesses(plan, plan.guess_chance_max),
}
