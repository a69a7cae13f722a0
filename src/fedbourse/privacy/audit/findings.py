"""The tests of an audit. All null distributions are exact or bounds, except that of ``shape``:

- too-little-noise, too-much-noise: residuals in sigmas, squared, sum to a chi-square;
- shape: Pearson's chi-square over equally likely bins of 100 numbers or more. The true tail is
  heavier than the chi-square's, by 3 % at 1e-5 and 20 % at 1e-7; ``TAIL_MARGIN`` covers both;
- reuse-rounds, -runs, -updates: two independent normal vectors of n numbers have a cosine with
  cos^2 ~ Beta(1/2, (n - 1)/2); the largest is tested, its chance multiplied by the pairs. Short
  vectors are often near-parallel, so whole rounds over all runs and whole runs are compared too;
- repeats: expected over observed pairs of equal updates (Markov); works for d = 1 too;
- sensitivity: the mean residual along the canary is normal, of mean 0 if the record counts once;
- canaries: along the canary a run is +-sqrt(T) L/m with noise sigma = (L/m) sqrt(2T/rho), so the
  best guess of its sign is right with chance Phi(sqrt(rho/2));
- epsilon: let a guess say + with chance a where it is true, b where it is not. In any
  (epsilon, delta)-DP mechanism a <= e^eps b + delta and 1 - b <= e^eps (1 - a) + delta. Half of
  both: a guess is right with chance p <= e^eps (1 - p) + delta, whatever the noise. So
  epsilon >= ln((p - delta) / (1 - p)), taken at the Clopper-Pearson lower limit of p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import betaincinv, gammainc, gammaincc, ndtr

from fedbourse.privacy.audit.claim import Plan
from fedbourse.privacy.audit.power import TAIL_MARGIN, at_least, cosine_p_value, power_of
from fedbourse.privacy.audit.runs import Guesses, Residuals
from fedbourse.privacy.noise import FloatArray
from fedbourse.units import number, whole_number

_Measure = tuple[float, float]  # a statistic, and a bound on its p-value


@dataclass(frozen=True)
class Finding:
    """What one test found."""

    name: str
    catches: str
    statistic: float
    p_value: float
    """How often an honest device looks at least this odd: an upper bound."""
    threshold: float
    """The p_value at or below which the device is accused."""
    power: Mapping[str, float]
    """How likely this test notices each fault; one left out is not what it looks for."""

    @property
    def passed(self) -> bool:
        """Say whether the test found nothing."""
        return self.p_value > self.threshold


Observed = TypeVar("Observed")


def run_tests(
    tests: Mapping[str, tuple[str, Callable[[Plan, Observed], _Measure]]],
    plan: Plan,
    observed: Observed,
) -> list[Finding]:
    """Return the finding of each test."""
    findings = []
    for name, (catches, measure) in tests.items():
        statistic, p_value = measure(plan, observed)
        power = power_of(name, plan)
        findings.append(Finding(name, catches, statistic, min(1.0, p_value), plan.level, power))
    return findings


def epsilon_lower_bound(right: int, runs: int, *, delta: float, alpha: float) -> float:
    """Return an epsilon that exceeds a mechanism's own with probability alpha at most; 0 is none.

    ``right`` of ``runs`` independent guesses between two neighbours, equally likely, were right.
    """
    runs = whole_number("runs", runs, at_least=1)
    right = int(number("right", right, at_least=0, at_most=runs))
    chance = float(betaincinv(right, runs - right + 1, alpha)) if right else 0.0
    return math.log(max((chance - delta) / (1.0 - chance), 1.0))


def _too_little(plan: Plan, residuals: Residuals) -> _Measure:
    p_value = gammainc(plan.numbers / 2, residuals.square_sum / 2)  # the chi-square's lower tail
    return residuals.square_sum / plan.numbers, float(p_value)


def _too_much(plan: Plan, residuals: Residuals) -> _Measure:
    p_value = gammaincc(plan.numbers / 2, residuals.square_sum / 2)
    return residuals.square_sum / plan.numbers, float(p_value)


def _shape(plan: Plan, residuals: Residuals) -> _Measure:
    each = plan.numbers / plan.bins
    statistic = float(((residuals.counts - each) ** 2).sum()) / each
    return statistic, TAIL_MARGIN * float(gammaincc((plan.bins - 1) / 2, statistic / 2))


def _reuse_rounds(plan: Plan, residuals: Residuals) -> _Measure:
    norms = np.sqrt(np.diag(residuals.gram))
    norms[norms == 0] = 1.0
    largest = float(np.abs(np.triu(residuals.gram / norms / norms[:, None], 1)).max())
    return largest, cosine_p_value(largest, len(norms), plan.runs * plan.claim.dimension)


def _reuse_runs(_: Plan, residuals: Residuals) -> _Measure:
    return _largest_cosine(residuals.runs)


def _reuse_updates(_: Plan, residuals: Residuals) -> _Measure:
    return _largest_cosine(residuals.updates)


def _largest_cosine(vectors: FloatArray) -> _Measure:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1.0
    units, block = vectors / norms, 500
    products = (units[s : s + block] @ units[s:].T for s in range(0, len(units), block))
    largest = max(float(np.abs(np.triu(each, 1)).max()) for each in products)
    return largest, cosine_p_value(largest, *vectors.shape)


def _repeats(plan: Plan, residuals: Residuals) -> _Measure:
    ordered = residuals.updates[np.argsort(residuals.updates[:, 0])]
    near = np.abs(np.diff(ordered, axis=0)).max(axis=1) <= 2 * plan.claim.grid / plan.claim.sigma
    pairs = int(near.sum())
    return float(pairs), plan.repeats_expected / pairs if pairs else 1.0


def _sensitivity(_: Plan, guesses: Guesses) -> _Measure:
    return guesses.mean_residual, 2 * float(ndtr(-abs(guesses.mean_residual)))


def _canaries(plan: Plan, guesses: Guesses) -> _Measure:
    return float(guesses.right), at_least(guesses.right, plan.runs, plan.guess_chance)


def _epsilon(plan: Plan, guesses: Guesses) -> _Measure:
    bound = epsilon_lower_bound(guesses.right, plan.runs, delta=plan.claim.delta, alpha=plan.level)
    return bound, at_least(guesses.right, plan.runs, plan.guess_chance_max)


NOISE_TESTS: dict[str, tuple[str, Callable[[Plan, Residuals], _Measure]]] = {
    "too-little-noise": ("there is less noise than claimed, so less privacy", _too_little),
    "too-much-noise": ("there is more noise than claimed, so less use to the buyer", _too_much),
    "shape": ("the noise is not normal", _shape),
    "reuse-rounds": ("rounds share noise: their differences show the data", _reuse_rounds),
    "reuse-runs": ("runs share noise: their differences show the data", _reuse_runs),
    "reuse-updates": ("two updates share noise: their difference shows the data", _reuse_updates),
    "repeats": ("updates have the very same noise: their differences show the data", _repeats),
}
"""What each test catches, and how it measures; these need residuals only."""
CANARY_TESTS: dict[str, tuple[str, Callable[[Plan, Guesses], _Measure]]] = {
    "sensitivity": ("one record does not move the updates as far as claimed", _sensitivity),
    "canaries": ("one record is easier to guess than claimed", _canaries),
    "epsilon": ("one record is easier to guess than the claimed epsilon allows", _epsilon),
}
"""Likewise; these need a canary whose sign is known."""
