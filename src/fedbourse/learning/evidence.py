"""Do a device's updates come from data like the buyer's? Statistics that cost no privacy.

An update is y = g + noise of scale sigma; h is the clipped mean gradient of the buyer's reference
records at the same model, fixed before y is read. Over rounds

    X = sum <y, h> / sigma^2,
    W = sum |h|^2 / sigma^2,
    l = sum (k <y, h> - k^2 |h|^2 / 2) / sigma^2,

where k is k0, a parameter, times the part of |h|^2 that two halves of the reference agree on.

Where there is no data, e^l is a supermartingale whatever the noise, discrete or continuous: l ever
reaches ln(1/alpha) with probability alpha at most. Where data agree with the reference, l ever
falls to the bound of dismissal with probability beta at most. That is the population
``like-reference``; with ``any-class-mixture`` data may agree with any mixture of the reference's
classes (``class_mixtures``). docs/theory/evidence.md proves all of it, at any stopping time, and
says what neither shows: whoever knows the direction of the gradient passes, with ten records or
with m.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedbourse.errors import InvalidInput
from fedbourse.learning.class_mixtures import MixtureSums
from fedbourse.learning.reference_gradients import Reference, ReferenceRecords, without
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Records

__all__ = [
    "POPULATIONS",
    "Evidence",
    "EvidenceRule",
    "Population",
    "Reference",
    "ReferenceRecords",
    "Sums",
    "Verdict",
    "block_starts",
]

Verdict = Literal["shown", "dismissed", "undecided"]
Population = Literal["like-reference", "any-class-mixture"]
POPULATIONS: tuple[Population, ...] = get_args(Population)
"""Whose data count as data: such as the reference's, or any mixture of its classes."""

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
    mixtures: MixtureSums | None = None
    """The test against mixtures of classes, where the rule's population is any of them."""

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
        echo, mixtures = self.echo, self.mixtures
        if others is not None:
            residual = without(others, reference.mean)
            echo = self.echo.added(
                float(update @ residual), float(residual @ residual), scale=scale, k=self.k0
            )
        if mixtures is not None:
            assert reference.by_class is not None  # the rule's own reference has them
            assert reference.shares is not None
            mixtures = mixtures.added(
                reference.by_class @ update,
                reference.class_products,
                reference.shares,
                scale=scale,
                k0=self.k0,
            )
        return replace(
            self,
            rounds=self.rounds + 1,
            plain=self._compared(self.plain, update, reference, scale),
            rest=self._compared(self.rest, update, reference.without(first), scale),
            echo=echo,
            mixtures=mixtures,
        )

    def _compared(self, sums: Sums, update: FloatArray, reference: Reference, scale: float) -> Sums:
        h = reference.mean
        k = self.k0 * reference.reliability
        return sums.added(float(update @ h), float(h @ h), scale=scale, k=k)

    @property
    def likelihood(self) -> float:
        """The logarithm of what is a supermartingale where there is no data."""
        return self.plain.likelihood if self.mixtures is None else self.mixtures.likelihood

    @property
    def score(self) -> float:
        """z, for reading."""
        return self.plain.score

    @property
    def document(self) -> dict[str, Any]:
        """The evidence as plain JSON, from which ``of`` makes the same again, bit for bit."""
        document = asdict(self)
        if self.mixtures is not None:
            document["mixtures"] = {
                "x": list(self.mixtures.x),
                "g": [list(row) for row in self.mixtures.g],
                "shares": list(self.mixtures.shares),
            }
        return document

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Evidence:
        """Return the evidence that a document holds."""
        try:
            mixtures = document["mixtures"]
            return cls(
                k0=number("k0", document["k0"], above=0, at_most=1),
                rounds=whole_number("rounds", document["rounds"], at_least=0),
                mixtures=None if mixtures is None else _mixtures(mixtures),
                **{name: _sums(document[name]) for name in ("plain", "rest", "echo")},
            )
        except (KeyError, TypeError) as error:
            raise InvalidInput(
                "evidence must hold k0, rounds, plain, rest, echo and mixtures as they were "
                f"written; found {type(error).__name__} at {error!s:.60}"
            ) from None


@dataclass(frozen=True)
class EvidenceRule:
    """How evidence is decided on.

    A device is dismissed where either test falls to the bound; where the population is any mixture
    of classes, where no mixture stays above it.

    >>> rule = EvidenceRule(alpha=0.01, beta=0.01, k0=0.5, rounds=50)
    >>> round(rule.show_bound, 3), round(rule.dismissal_bound, 3)
    (4.605, -5.851)
    """

    alpha: float
    """How likely, at most, a device without data ever shows data."""
    beta: float
    """How likely, at most, a device whose data are of the population is ever dismissed."""
    k0: float
    """The part of the reference's gradient that an honest device's must reach."""
    rounds: int
    """T, or the length of a block."""
    population: Population = "like-reference"
    """Whose data count as data."""

    def __post_init__(self) -> None:
        number("alpha", self.alpha, above=0, at_most=0.5)
        number("beta", self.beta, above=0, at_most=0.5)
        number("k0", self.k0, above=0, at_most=1)
        whole_number("rounds", self.rounds, at_least=1)
        if self.population not in POPULATIONS:
            raise InvalidInput(
                f"population must be {' or '.join(POPULATIONS)}; found {self.population!r:.60}"
            )

    def for_blocks(self, blocks: int) -> EvidenceRule:
        """Return the rule for each of several blocks of rounds, all of them judged afresh.

        By the union bound alpha and beta then hold over all blocks together. Where the blocks
        begin is ``block_starts``.
        """
        longest = -(-self.rounds // len(block_starts(self.rounds, blocks)))
        return replace(self, alpha=self.alpha / blocks, beta=self.beta / blocks, rounds=longest)

    @property
    def show_bound(self) -> float:
        """The likelihood at which data have shown."""
        return math.log(1 / self.alpha)

    @property
    def dismissal_bound(self) -> float:
        """The likelihood at which a device is dismissed.

        Like the reference: half of beta for each of the two tests, and what winsorising may cost
        an honest device. Mixtures of classes are one test, without winsorising.
        """
        if self.population == "any-class-mixture":
            return -math.log(1 / self.beta)
        return -math.log(2 / self.beta) - self.rounds * math.log1p(_CUT)

    def begin(self) -> Evidence:
        """Return the evidence of a device that has sent nothing yet, or nothing in this block."""
        mixed = self.population == "any-class-mixture"
        return Evidence(self.k0, mixtures=MixtureSums() if mixed else None)

    def reference_records(self, records: Records) -> ReferenceRecords:
        """Arrange the buyer's reference records, for the directions of many rounds."""
        return ReferenceRecords.of(records, by_class=self.population == "any-class-mixture")

    def reference(
        self, model: Model, records: Records, parameters: FloatArray, *, clip: float
    ) -> Reference:
        """Return the directions of one round, those of the records at the model's parameters."""
        return self.reference_records(records).at(model, parameters, clip=clip)

    def verdict(self, evidence: Evidence) -> Verdict:
        """Return what evidence says now; "shown" is never final, "dismissed" is."""
        if self._is_dismissed(evidence):
            return "dismissed"
        return "shown" if evidence.likelihood >= self.show_bound else "undecided"

    def _is_dismissed(self, evidence: Evidence) -> bool:
        if evidence.mixtures is not None:
            return evidence.mixtures.all_at_most(self.dismissal_bound)
        return min(evidence.plain.likelihood, evidence.rest.likelihood) <= self.dismissal_bound

    def is_echo(self, evidence: Evidence) -> bool:
        """Return whether updates repeat the model's own steps beyond what the reference explains.

        Under fresh noise alone that is so with probability alpha at most, ever.
        """
        return evidence.echo.likelihood >= self.show_bound

    def stands(self, devices: Sequence[Evidence]) -> bool:
        """Return whether dismissals count, once training, or the block, has ended.

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
        return sum(each.likelihood for each in others) >= self.show_bound + sets

    @property
    def least_variance(self) -> float:
        """W_T at which 95 % of junk is dismissed and 95 % of honest devices have shown data.

        At the end l is normal: with mean -k0^2 W / 2 without data, c W with data like the
        reference's, and standard deviation k0 sqrt(W) in both cases. Where mixtures of classes
        count, junk needs more: its W is that of the mixture that fits it best.
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


def block_starts(rounds: int, blocks: int) -> tuple[int, ...]:
    """Return the first round of each block; lengths differ by one at most.

    >>> block_starts(10, 4)
    (0, 2, 5, 7)
    """
    rounds = whole_number("rounds", rounds, at_least=1)
    blocks = whole_number("blocks", blocks, at_least=1)
    if blocks > rounds:
        raise InvalidInput(f"blocks must be at most the {rounds} rounds; found {blocks}")
    return tuple(b * rounds // blocks for b in range(blocks))


def _sums(document: Mapping[str, Any]) -> Sums:
    return Sums(**{name: number(name, document[name]) for name in ("x", "w", "likelihood")})


def _mixtures(document: Mapping[str, Any]) -> MixtureSums:
    x, shares = (tuple(number(name, each) for each in document[name]) for name in ("x", "shares"))
    g = tuple(tuple(number("g", each) for each in row) for row in document["g"])
    if not len(x) == len(shares) == len(g) or any(len(row) != len(x) for row in g):
        raise InvalidInput(
            f"mixtures of {len(x)} classes must have as many shares and a square g; "
            f"found {len(shares)} shares and rows of {sorted({len(row) for row in g})}"
        )
    return MixtureSums(x, g, shares)
