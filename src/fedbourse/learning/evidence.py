"""Do a device's updates come from data like the buyer's? Statistics that cost no privacy.

An update is y = g + noise of scale sigma; h is the clipped mean gradient of the buyer's reference
records at the same model, fixed before y is read. Over rounds

    X = sum <y, h> / sigma^2,
    W = sum |h|^2 / sigma^2,
    l = sum (k <y, h> - k^2 |h|^2 / 2) / sigma^2,

where k is k0, a parameter, times the part of |h|^2 that two halves of the reference agree on.

Where there is no data, e^l is a supermartingale whatever the noise, discrete or continuous: l ever
reaches ln(1/alpha) with probability alpha at most. Where data agree with the reference, l ever
falls to the bound of dismissal with probability beta at most. docs/theory/evidence.md proves both,
at any stopping time, and says what neither shows: whoever knows the direction of the gradient
passes, with ten records or with m.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedbourse.learning.class_mixture import MixtureSums
from fedbourse.learning.partition import Federation
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Records

Verdict = Literal["shown", "dismissed", "undecided"]
Population = Literal["like-reference", "any-class-mixture"]
"""Whose updates must pass: owners like the reference, or of any mixture of its classes."""

_WINSOR = 3.0
"""A round counts for at most its expectation and so many standard deviations."""
_NORMAL_95 = 1.6448536269514722
"""What a standard normal number is below with a chance of 95 %."""
_CUT = math.exp(-(_WINSOR**2) / 2)
"""How likely, at most, the noise of an honest update is cut by that: a sub-Gaussian tail."""


@dataclass(frozen=True)
class Sums:
    """X, W and l of one test over the rounds so far."""

    x: float = 0.0
    w: float = 0.0
    likelihood: float = 0.0
    """l, the logarithm of the likelihood ratio of k h against nothing."""

    def added(self, product: float, square: float, *, scale: float, k: float) -> Sums:
        """Add a round: <y, h>, |h|^2, sigma and k; a term far above its mean is winsorised."""
        variance = square / scale**2
        term = min(product / scale**2, variance + _WINSOR * math.sqrt(variance))
        step = k * term - k**2 * variance / 2
        return Sums(self.x + term, self.w + variance, self.likelihood + step)

    @property
    def score(self) -> float:
        """z = X / sqrt(W), for reading: about standard normal without data; never for deciding."""
        return self.x / math.sqrt(self.w) if self.w > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Reference:
    """The clipped mean gradients of the two halves of the reference records, at one model."""

    first: FloatArray
    second: FloatArray
    by_class: FloatArray | None = None
    """The clipped mean gradient of each class's records, a row a class, where mixtures count."""
    shares: tuple[float, ...] = ()
    """How much of the reference each class is."""

    @property
    def mean(self) -> FloatArray:
        """h."""
        return (self.first + self.second) / 2

    @property
    def reliability(self) -> float:
        """The part of |h|^2 that both halves agree on, 0 to 1; the rest is chance of sampling."""
        square = float(self.mean @ self.mean)
        return min(1.0, max(0.0, float(self.first @ self.second) / square)) if square else 0.0

    def without(self, direction: FloatArray) -> Reference:
        """Return both without their parts along a direction."""
        return Reference(without(self.first, direction), without(self.second, direction))


@dataclass(frozen=True)
class Evidence:
    """What one device's updates have shown so far; O(d) work a round, O(1) memory."""

    k0: float
    """The part of the reference's gradient that an honest device's must reach."""
    rounds: int = 0
    plain: Sums = Sums()
    """The test with h as it is."""
    rest: Sums = Sums()
    """The test without the direction of the first h, which base rates make nearly public."""
    echo: Sums = Sums()
    """How far updates repeat the others' last aggregate beyond what h explains."""
    mixture: MixtureSums | None = None
    """The test beside every mixture of the reference's classes, where that is the rule."""

    @property
    def score(self) -> float:
        """z, for reading."""
        return self.plain.score

    @property
    def document(self) -> dict[str, Any]:
        """It as plain numbers, without loss."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Evidence:
        """Read a document."""
        sums = {name: Sums(**document[name]) for name in ("plain", "rest", "echo")}
        mixture = document["mixture"]
        return cls(
            k0=document["k0"],
            rounds=document["rounds"],
            mixture=None if mixture is None else MixtureSums.of(mixture),
            **sums,
        )

    def added(
        self,
        update: FloatArray,
        *,
        scale: float,
        reference: Reference,
        first: FloatArray,
        others: FloatArray | None = None,
    ) -> Evidence:
        """Add a round's update.

        ``first`` is the h of round 0, and ``others`` the last round's aggregate with the device's
        own part taken out, if there was one.
        """
        rest = reference.without(first)
        echo = self.echo
        if others is not None:
            residual = without(others, reference.mean)
            echo = self.echo.added(
                float(update @ residual), float(residual @ residual), scale=scale, k=self.k0
            )
        return replace(
            self,
            rounds=self.rounds + 1,
            plain=self._compared(self.plain, update, reference, scale),
            rest=self._compared(self.rest, update, rest, scale),
            echo=echo,
            mixture=self._mixed(update, reference, scale),
        )

    def _mixed(self, update: FloatArray, reference: Reference, scale: float) -> MixtureSums | None:
        if reference.by_class is None:
            return self.mixture
        before = self.mixture or MixtureSums.none(reference.shares)
        return before.added(update, reference.by_class, scale=scale, k=self.k0)

    def _compared(self, sums: Sums, update: FloatArray, reference: Reference, scale: float) -> Sums:
        h = reference.mean
        k = self.k0 * reference.reliability
        return sums.added(float(update @ h), float(h @ h), scale=scale, k=k)


@dataclass(frozen=True)
class EvidenceRule:
    """How evidence is decided on: a device is dismissed where either test falls to the bound.

    >>> rule = EvidenceRule(alpha=0.01, beta=0.01, k0=0.5, rounds=50)
    >>> round(rule.show_bound, 3), round(rule.dismissal_bound, 3)
    (4.605, -5.851)
    """

    alpha: float
    """How likely, at most, a device without data ever shows data."""
    beta: float
    """How likely, at most, a device whose data are like the reference's is ever dismissed."""
    k0: float
    """The part of the reference's gradient that an honest device's must reach."""
    rounds: int
    """T; or how many rounds are judged together, where rounds are judged in blocks."""
    population: Population = "like-reference"

    def __post_init__(self) -> None:
        number("alpha", self.alpha, above=0, at_most=0.5)
        number("beta", self.beta, above=0, at_most=0.5)
        number("k0", self.k0, above=0, at_most=1)
        whole_number("rounds", self.rounds, at_least=1)

    @property
    def show_bound(self) -> float:
        """The likelihood at which data have shown."""
        return math.log(1 / self.alpha)

    @property
    def dismissal_bound(self) -> float:
        """The likelihood at which a device is dismissed.

        Half of beta for each of the two tests, and what winsorising may cost an honest device.
        Beside mixtures there is one test, and nothing is winsorised.
        """
        if self.population == "any-class-mixture":
            return -math.log(1 / self.beta)
        return -math.log(2 / self.beta) - self.rounds * math.log1p(_CUT)

    def begin(self) -> Evidence:
        """Return the evidence of a device that has sent nothing yet."""
        return Evidence(self.k0)

    def reference(
        self, model: Model, records: Records, parameters: FloatArray, *, clip: float
    ) -> Reference:
        """Return what updates at a model are compared with: a function of these records alone."""
        count = len(records)
        halves = Federation(records, np.array([0, count // 2, count]))
        first, second = model.clipped_means(parameters, halves, clip=clip)
        if self.population == "like-reference":
            return Reference(first, second)
        order = np.argsort(records.labels, kind="stable")
        _, counts = np.unique(records.labels, return_counts=True)
        classes = Federation(records.take(order), np.concatenate([[0], np.cumsum(counts)]))
        by_class = model.clipped_means(parameters, classes, clip=clip)
        return Reference(first, second, by_class, tuple((counts / count).tolist()))

    def verdict(self, evidence: Evidence) -> Verdict:
        """Return what evidence says now; "shown" is never final, "dismissed" is."""
        if self._is_dismissed(evidence):
            return "dismissed"
        return "shown" if self.likelihood(evidence) >= self.show_bound else "undecided"

    def likelihood(self, evidence: Evidence) -> float:
        """Return l, by which data are shown."""
        if self.population == "like-reference":
            return evidence.plain.likelihood
        return evidence.mixture.mean_likelihood if evidence.mixture else 0.0

    def _is_dismissed(self, evidence: Evidence) -> bool:
        if self.population == "like-reference":
            least = min(evidence.plain.likelihood, evidence.rest.likelihood)
            return least <= self.dismissal_bound
        return evidence.mixture is not None and evidence.mixture.all_below(self.dismissal_bound)

    def is_echo(self, evidence: Evidence) -> bool:
        """Return whether updates repeat the model's own steps beyond what the reference explains.

        Under fresh noise alone that is so with probability alpha at most, ever.
        """
        return evidence.echo.likelihood >= self.show_bound

    def stands(self, devices: Sequence[Evidence]) -> bool:
        """Return whether dismissals count, once training has ended.

        They are void where more than half of the devices are dismissed, or where the others
        together do not show data: then the reference fits nobody. Devices are counted, not their
        budgets, since a budget costs a device without data nothing. Where nobody has data, the
        others together ever show some with probability alpha at most, whoever is dismissed.
        """
        others = [each for each in devices if self.verdict(each) != "dismissed"]
        dismissed = len(devices) - len(others)
        if 2 * dismissed > len(devices):
            return False
        # One supermartingale for each set of devices that may have been left.
        sets = math.log(len(devices) + 1) + math.log(math.comb(len(devices), dismissed))
        return sum(self.likelihood(each) for each in others) >= self.show_bound + sets

    @property
    def least_variance(self) -> float:
        """W_T at which 95 % of junk is dismissed and 95 % of honest devices have shown data.

        At the end l is normal: with mean -k0^2 W / 2 without data, c W with data like the
        reference's, and standard deviation k0 sqrt(W) in both cases.
        """
        c, spread = self.k0 - self.k0**2 / 2, _NORMAL_95 * self.k0
        junk = (_NORMAL_95 + math.sqrt(_NORMAL_95**2 - 2 * self.dismissal_bound)) / self.k0
        honest = (spread + math.sqrt(spread**2 + 4 * c * self.show_bound)) / (2 * c)
        return max(junk, honest) ** 2

    def min_budget(self, *, squares: float, samples: int, clip: float) -> float:
        """Return the least rho that can be judged, where a pilot's sum of |h|^2 is ``squares``.

        W = rho m^2 squares / (2 T L^2), since sigma = (L / m) sqrt(2 T / rho).
        """
        number("squares", squares, above=0)
        return self.least_variance * 2 * self.rounds * clip**2 / (samples**2 * squares)


def without(vector: FloatArray, direction: FloatArray) -> FloatArray:
    """Return a vector without its part along a direction."""
    length = float(direction @ direction)
    rest: FloatArray = vector - (vector @ direction / length) * direction if length else vector
    return rest if np.linalg.norm(rest) > 1e-12 * np.linalg.norm(vector) else np.zeros_like(vector)
