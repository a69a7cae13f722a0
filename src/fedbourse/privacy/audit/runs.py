"""What an audit records of runs: sums and samples, never all updates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedbourse.errors import InvalidInput, InvalidNumber
from fedbourse.privacy.audit.claim import (
    NUMBERS_MAX,
    NUMBERS_MIN,
    ROUNDS_MAX,
    RUNS_MAX,
    Claim,
    Plan,
    Subject,
)
from fedbourse.privacy.noise import FloatArray, IntArray

_HUGE = 1e6  # sigmas: no honest residual is that large, and squares of these do not overflow


class Residuals:
    """What the residuals of all runs, counted in sigmas, add up to."""

    def __init__(self, plan: Plan, rng: np.random.Generator) -> None:
        _check_numbers(plan)
        claim, (_, rounds, coordinates) = plan.claim, plan.sample_shape
        self._rounds = _some(rng, claim.rounds, ROUNDS_MAX)
        self._few = _some(rng, claim.rounds, rounds)
        self._coordinates = _some(rng, claim.dimension, coordinates)
        self._numbers = _some(rng, claim.rounds * claim.dimension, NUMBERS_MAX)
        self._edges, self._updates, self._run = plan.edges, np.empty(plan.sample_shape), 0
        self.square_sum = 0.0
        self.counts = np.zeros(plan.bins, np.int64)
        """The residuals in each bin."""
        self.gram = np.zeros((len(self._rounds), len(self._rounds)))
        """The products of whole rounds."""
        self.runs = np.empty((min(plan.runs, RUNS_MAX), len(self._numbers)))
        """Some numbers of each run."""

    @property
    def updates(self) -> FloatArray:
        """Return some updates, one a row."""
        return self._updates.reshape(-1, self._updates.shape[-1])

    def add(self, residuals: FloatArray, sigma: float) -> FloatArray:
        """Count one run, and return its residuals in sigmas."""
        with np.errstate(over="ignore"):
            z: FloatArray = np.clip(residuals / sigma, -_HUGE, _HUGE)
        self.square_sum += float(np.vdot(z, z))
        self.counts += np.bincount(
            np.searchsorted(self._edges, z.ravel()), minlength=len(self.counts)
        )
        self.gram += z[self._rounds] @ z[self._rounds].T
        if self._run < len(self.runs):
            self.runs[self._run] = z.ravel()[self._numbers]
        if self._run < len(self._updates):
            self._updates[self._run] = z[np.ix_(self._few, self._coordinates)]
        self._run += 1
        return z


@dataclass(frozen=True)
class Guesses:
    """What the updates reveal of the canary's sign."""

    right: int
    """How often the sign was guessed."""
    mean_residual: float
    """The mean residual along the canary: 0 +- 1 if the claim holds."""


def watch(
    subject: Subject,
    plan: Plan,
    rng: np.random.Generator,
    progress: Callable[[int], None] | None,
) -> tuple[Residuals, Guesses]:
    """Run a subject as often as planned, on a canary of random sign."""
    claim = plan.claim
    expected = {sign: shaped(subject.expected(sign), claim) for sign in (1, -1)}
    _check_expected(expected[1], expected[-1], claim)
    residuals = Residuals(plan, rng)
    middle, unit = (expected[1] + expected[-1]) / 2, expected[1] - expected[-1]
    unit /= np.linalg.norm(unit)
    mean_residual, right = 0.0, 0
    for run in range(plan.runs):
        sign = 2 * int(rng.integers(2)) - 1
        updates = shaped(subject.updates(sign), claim)
        with np.errstate(over="ignore", invalid="ignore"):
            # The guess sees the updates alone: the bound on epsilon then holds for any noise.
            guess = 1 if np.vdot(updates - middle, unit) > 0 else -1
            z = residuals.add(updates - expected[sign], claim.sigma)
        right += guess == sign
        mean_residual += sign * float(np.vdot(z, unit)) / math.sqrt(plan.runs)
        if progress is not None:
            progress(run + 1)
    return residuals, Guesses(right, mean_residual)


def shaped(updates: object, claim: Claim) -> FloatArray:
    """Return one run's updates as an array of the claim's shape."""
    try:
        array = np.asarray(updates, float)
    except (TypeError, ValueError):
        raise InvalidInput(f"updates must be an array of numbers; found {updates!r:.60}") from None
    shape = (claim.rounds, claim.dimension)
    if array.shape != shape:
        raise InvalidInput(f"updates must have the claim's shape {shape}; found {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInput("updates must be finite numbers; found NaN or infinity")
    return array


def _some(rng: np.random.Generator, total: int, at_most: int) -> IntArray:
    return np.sort(rng.choice(total, min(total, at_most), replace=False))


def _check_expected(plus: FloatArray, minus: FloatArray, claim: Claim) -> None:
    """Refuse what would make an honest device look guilty, or a guilty one honest."""
    norm = float(max(np.linalg.norm(e, axis=1).max() for e in (plus, minus)))
    if norm > claim.clip * (1 + 1e-6):
        raise InvalidInput(
            f"an expected update's norm must be at most the clip, {claim.clip:g}; found {norm:g}"
        )
    moves = np.linalg.norm(plus - minus, axis=1)
    wrong = moves[np.abs(moves - claim.sensitivity) > 1e-6 * claim.sensitivity]
    if wrong.size:
        raise InvalidInput(
            "the canary must move each expected update by 2 clip / samples = "
            f"{claim.sensitivity:g}; found {wrong[0]:g}"
        )


def _check_numbers(plan: Plan) -> None:
    claim = plan.claim
    if plan.numbers < NUMBERS_MIN:
        raise InvalidNumber(
            f"runs x rounds x dimension must be at least {NUMBERS_MIN}; found {plan.numbers}: "
            "ask for more runs"
        )
    steps, least = claim.sigma / claim.grid, 64 * math.sqrt(plan.numbers)
    if steps < least:  # the bins' edges and the squares would feel the grid
        raise InvalidInput(
            f"sigma must be at least {least:.3g} steps of the updates' grid; found {steps:.3g}: "
            "ask for fewer runs"
        )
