"""Is the noise of a device what it claims? A statistical test with a stated error on both sides.

A device runs again and again on one of two neighbouring datasets, which differ in ONE RECORD: the
canary, of a random sign. Answers minus the noiseless answers that the claim implies must look like
independent normal noise of the claimed scale, and the sign must be no easier to guess than claimed.

Each test works at alpha / (number of tests), so an honest device is accused with probability alpha
at most (the union bound). All null distributions are exact or bounds, except that of ``shape``:

- too-little-noise, too-much-noise: residuals in sigmas, squared, sum to a chi-square;
- shape: Pearson's chi-square over equally likely bins of 100 numbers or more. The true tail is
  heavier than the chi-square's, by 3 % at 1e-5 and 20 % at 1e-7; ``TAIL_MARGIN`` covers both;
- reuse-rounds, -runs, -answers: two independent normal vectors of n numbers have a cosine with
  cos^2 ~ Beta(1/2, (n - 1)/2); the largest is tested, its chance multiplied by the pairs. Short
  vectors are often near-parallel, so whole rounds over all runs and whole runs are compared too;
- repeats: pairs of equal answers expected over those seen (Markov); works for d = 1 too;
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
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import betaincinv, gammainc, gammaincc, ndtr

from fedbourse.errors import InvalidInput, InvalidNumber
from fedbourse.privacy.audit_faults import (
    FAULTS_IN_WORDS,
    NUMBERS_MAX,
    ROUNDS_MAX,
    RUNS_MAX,
    TAIL_MARGIN,
    Claim,
    Plan,
    Subject,
    at_least,
    cosine_p_value,
    power_of,
)
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]

__all__ = [
    "Audit",
    "Claim",
    "Finding",
    "Subject",
    "audit_noise",
    "epsilon_lower_bound",
    "runs_needed",
]

_RUNS_MIN, _NUMBERS_MIN = 10, 400
_ALPHA_MIN = 1e-6  # further out, the margin of the shape test does not cover its tail
_HUGE = 1e6  # sigmas: no honest residual is that large, and squares of these do not overflow


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


@dataclass(frozen=True)
class Audit:
    """All findings, and what they add up to."""

    claim: Claim
    findings: tuple[Finding, ...]
    runs: int
    alpha: float
    """An honest device is accused with this probability at most."""
    epsilon_lower_bound: float
    """Above the device's true epsilon with probability alpha / (number of tests) at most."""

    @property
    def passed(self) -> bool:
        """Say whether every test passed."""
        return all(finding.passed for finding in self.findings)

    @property
    def epsilon_claimed(self) -> float:
        """Return the epsilon that the claim implies, about one record."""
        return self.claim.epsilon

    @property
    def power(self) -> dict[str, float]:
        """Return how likely the audit notices each fault, at least: the best test's power."""
        best: dict[str, float] = {}
        for finding in self.findings:
            for fault, power in finding.power.items():
                best[fault] = max(power, best.get(fault, 0.0))
        return {fault: best[fault] for fault in FAULTS_IN_WORDS if fault in best}

    def sentences(self) -> list[str]:
        """Say it to people."""
        failed = [finding for finding in self.findings if not finding.passed]
        verdict = "the noise is NOT what it claims" if failed else "no sign of wrong noise"
        lines = [
            f"{self.runs} runs, {len(self.findings)} tests: {verdict}; "
            f"an honest device is accused with probability {self.alpha:g} at most."
        ]
        for f in failed:
            lines.append(f"{f.name}: {f.catches} (p = {f.p_value:.2g}, limit {f.threshold:.2g}).")
        for fault, power in self.power.items():
            shown = math.floor(power * 1e4) / 1e4  # rounded down, never up to certainty
            lines.append(f"It notices {FAULTS_IN_WORDS[fault]} with probability {shown:g}.")
        lines.append(
            f"About one record, an epsilon of at least {self.epsilon_lower_bound:.3g} was shown; "
            f"{self.epsilon_claimed:.3g} is claimed (delta = {self.claim.delta:g})."
        )
        return lines


def audit_noise(
    subject: Subject,
    claim: Claim,
    *,
    runs: int = 400,
    alpha: float = 1e-4,
    seed: int | np.random.Generator = 0,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Run the subject ``runs`` times and test its noise against the claim.

    ``seed`` draws the signs and what the reuse tests compare, never noise. ``progress`` is told
    after each run how many are done.
    """
    plan = Plan(claim, whole_number("runs", runs, at_least=_RUNS_MIN), _level(alpha))
    if not isinstance(seed, np.random.Generator):
        seed = np.random.default_rng(whole_number("seed", seed, at_least=0))
    seen = _collect(subject, plan, seed, progress)
    findings = []
    for name, (catches, measure) in _TESTS.items():
        statistic, p_value = measure(plan, seen)
        power = power_of(name, plan)
        findings.append(Finding(name, catches, statistic, min(1.0, p_value), plan.level, power))
    bound = epsilon_lower_bound(seen.right, plan.runs, delta=claim.delta, alpha=plan.level)
    return Audit(claim, tuple(findings), plan.runs, float(alpha), bound)


def epsilon_lower_bound(right: int, runs: int, *, delta: float, alpha: float) -> float:
    """Return an epsilon that exceeds a mechanism's own with probability alpha at most; 0 is none.

    ``right`` of ``runs`` independent guesses between two neighbours, equally likely, were right.
    """
    runs = whole_number("runs", runs, at_least=1)
    right = int(number("right", right, at_least=0, at_most=runs))
    chance = float(betaincinv(right, runs - right + 1, alpha)) if right else 0.0
    return math.log(max((chance - delta) / (1.0 - chance), 1.0))


def runs_needed(
    claim: Claim, *, test: str, fault: str, power: float = 0.99, alpha: float = 1e-4
) -> int:
    """Return how many runs give one test of an audit at alpha this power against a fault.

    >>> claim = Claim(rho=0.5, clip=1.0, samples=1000, rounds=4, dimension=10)
    >>> runs_needed(claim, test="canaries", fault="half-sigma")
    355
    """
    level, wanted = _level(alpha), number("power", power, above=0, at_most=1 - 1e-9)
    if test not in _TESTS:
        raise InvalidInput(f"test must be one of {', '.join(_TESTS)}; found {test!r:.60}")

    def enough(runs: int) -> bool:
        return power_of(test, Plan(claim, runs, level)).get(fault, 0.0) >= wanted

    low, high = _RUNS_MIN - 1, _RUNS_MIN
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
    return max(high, math.ceil(_NUMBERS_MIN / (claim.rounds * claim.dimension)))


def _level(alpha: float) -> float:
    if not number("alpha", alpha, at_least=_ALPHA_MIN) < 0.5:
        raise InvalidNumber(f"alpha must be a number below 0.5; found {alpha:g}")
    return float(alpha) / len(_TESTS)


class _Seen(NamedTuple):
    """What the runs left behind; residuals are counted in sigmas."""

    square_sum: float
    counts: IntArray  # residuals in each bin
    gram: FloatArray  # products of whole rounds
    runs: FloatArray  # some numbers of each run
    answers: FloatArray  # some answers
    drift: float  # along the canary; 0 +- 1 if the claim holds
    right: int  # guesses of the sign


def _collect(
    subject: Subject,
    plan: Plan,
    rng: np.random.Generator,
    progress: Callable[[int], None] | None,
) -> _Seen:
    claim = plan.claim
    expected = {sign: _shaped(subject.expected(sign), claim) for sign in (1, -1)}
    _check(expected[1], expected[-1], plan)
    middle, unit = (expected[1] + expected[-1]) / 2, expected[1] - expected[-1]
    unit /= np.linalg.norm(unit)
    kept_runs, kept_rounds, kept_coordinates = plan.kept
    rounds, few = (_some(rng, claim.rounds, most) for most in (ROUNDS_MAX, kept_rounds))
    coordinates = _some(rng, claim.dimension, kept_coordinates)
    numbers = _some(rng, claim.rounds * claim.dimension, NUMBERS_MAX)
    edges, counts = plan.edges, np.zeros(plan.bins, np.int64)
    gram = np.zeros((len(rounds), len(rounds)))
    whole = np.empty((min(plan.runs, RUNS_MAX), len(numbers)))
    answers = np.empty(plan.kept)
    square_sum, drift, right = 0.0, 0.0, 0
    for run in range(plan.runs):
        sign = 2 * int(rng.integers(2)) - 1
        found = _shaped(subject.answers(sign), claim)
        with np.errstate(over="ignore", invalid="ignore"):
            # The guess sees the answers alone: the bound on epsilon then holds for any noise.
            guess = 1 if np.vdot(found - middle, unit) > 0 else -1
            z = np.clip((found - expected[sign]) / claim.sigma, -_HUGE, _HUGE)
        right += guess == sign
        drift += sign * float(np.vdot(z, unit)) / math.sqrt(plan.runs)
        square_sum += float(np.vdot(z, z))
        counts += np.bincount(np.searchsorted(edges, z.ravel()), minlength=plan.bins)
        gram += z[rounds] @ z[rounds].T
        if run < len(whole):
            whole[run] = z.ravel()[numbers]
        if run < kept_runs:
            answers[run] = z[np.ix_(few, coordinates)]
        if progress is not None:
            progress(run + 1)
    singly = answers.reshape(-1, kept_coordinates)
    return _Seen(square_sum, counts, gram, whole, singly, drift, right)


def _some(rng: np.random.Generator, total: int, at_most: int) -> IntArray:
    return np.sort(rng.choice(total, min(total, at_most), replace=False))


def _shaped(found: object, claim: Claim) -> FloatArray:
    try:
        array = np.asarray(found, float)
    except (TypeError, ValueError):
        raise InvalidInput(f"answers must be an array of numbers; found {found!r:.60}") from None
    wanted = (claim.rounds, claim.dimension)
    if array.shape != wanted:
        raise InvalidInput(f"answers must have the claim's shape {wanted}; found {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInput("answers must be finite numbers; found NaN or infinity")
    return array


def _check(plus: FloatArray, minus: FloatArray, plan: Plan) -> None:
    """Refuse what would make an honest device look guilty, or a guilty one honest."""
    claim = plan.claim
    norm = float(max(np.linalg.norm(e, axis=1).max() for e in (plus, minus)))
    if norm > claim.clip * (1 + 1e-6):
        raise InvalidInput(
            f"an expected answer's norm must be at most the clip, {claim.clip:g}; found {norm:g}"
        )
    moves = np.linalg.norm(plus - minus, axis=1)
    wrong = moves[np.abs(moves - claim.sensitivity) > 1e-6 * claim.sensitivity]
    if wrong.size:
        raise InvalidInput(
            "the canary must move each expected answer by 2 clip / samples = "
            f"{claim.sensitivity:g}; found {wrong[0]:g}"
        )
    if plan.numbers < _NUMBERS_MIN:
        raise InvalidNumber(
            f"runs x rounds x dimension must be at least {_NUMBERS_MIN}; found {plan.numbers}: "
            "ask for more runs"
        )
    steps, least = claim.sigma / claim.grid, 64 * math.sqrt(plan.numbers)
    if steps < least:  # the bins' edges and the squares would feel the grid
        raise InvalidInput(
            f"sigma must be at least {least:.3g} steps of the answers' grid; found {steps:.3g}: "
            "ask for fewer runs"
        )


_Measure = tuple[float, float]  # a statistic, and a bound on its p-value


def _too_little(plan: Plan, seen: _Seen) -> _Measure:
    p_value = gammainc(plan.numbers / 2, seen.square_sum / 2)  # the chi-square's lower tail
    return seen.square_sum / plan.numbers, float(p_value)


def _too_much(plan: Plan, seen: _Seen) -> _Measure:
    p_value = gammaincc(plan.numbers / 2, seen.square_sum / 2)
    return seen.square_sum / plan.numbers, float(p_value)


def _shape(plan: Plan, seen: _Seen) -> _Measure:
    each = plan.numbers / plan.bins
    statistic = float(((seen.counts - each) ** 2).sum()) / each
    return statistic, TAIL_MARGIN * float(gammaincc((plan.bins - 1) / 2, statistic / 2))


def _reuse_rounds(plan: Plan, seen: _Seen) -> _Measure:
    norms = np.sqrt(np.diag(seen.gram))
    norms[norms == 0] = 1.0
    largest = float(np.abs(np.triu(seen.gram / norms / norms[:, None], 1)).max())
    return largest, cosine_p_value(largest, len(norms), plan.runs * plan.claim.dimension)


def _reuse_runs(_: Plan, seen: _Seen) -> _Measure:
    largest = _largest_cosine(seen.runs)
    return largest, cosine_p_value(largest, *seen.runs.shape)


def _reuse_answers(_: Plan, seen: _Seen) -> _Measure:
    largest = _largest_cosine(seen.answers)
    return largest, cosine_p_value(largest, *seen.answers.shape)


def _largest_cosine(vectors: FloatArray) -> float:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1.0
    units, block = vectors / norms, 500
    starts = range(0, len(units), block)
    return max(float(np.abs(np.triu(units[s : s + block] @ units[s:].T, 1)).max()) for s in starts)


def _repeats(plan: Plan, seen: _Seen) -> _Measure:
    ordered = seen.answers[np.argsort(seen.answers[:, 0])]
    near = np.abs(np.diff(ordered, axis=0)).max(axis=1) <= 2 * plan.claim.grid / plan.claim.sigma
    pairs = int(near.sum())
    return float(pairs), plan.repeats_expected / pairs if pairs else 1.0


def _sensitivity(_: Plan, seen: _Seen) -> _Measure:
    return seen.drift, 2 * float(ndtr(-abs(seen.drift)))


def _canaries(plan: Plan, seen: _Seen) -> _Measure:
    return float(seen.right), at_least(seen.right, plan.runs, plan.guess_chance)


def _epsilon(plan: Plan, seen: _Seen) -> _Measure:
    bound = epsilon_lower_bound(seen.right, plan.runs, delta=plan.claim.delta, alpha=plan.level)
    return bound, at_least(seen.right, plan.runs, plan.guess_chance_max)


_TESTS: dict[str, tuple[str, Callable[[Plan, _Seen], _Measure]]] = {
    "too-little-noise": ("there is less noise than claimed, so less privacy", _too_little),
    "too-much-noise": ("there is more noise than claimed, so less use to the buyer", _too_much),
    "shape": ("the noise is not normal", _shape),
    "reuse-rounds": ("rounds share noise: their differences show the data", _reuse_rounds),
    "reuse-runs": ("runs share noise: their differences show the data", _reuse_runs),
    "reuse-answers": ("two answers share noise: their difference shows the data", _reuse_answers),
    "repeats": ("answers have the very same noise: their differences show the data", _repeats),
    "sensitivity": ("one record does not move the answers as far as claimed", _sensitivity),
    "canaries": ("one record is easier to guess than claimed", _canaries),
    "epsilon": ("one record is easier to guess than the claimed epsilon allows", _epsilon),
}
