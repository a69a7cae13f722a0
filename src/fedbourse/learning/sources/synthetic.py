"""Simulated records of known truth: one Gaussian cloud for each class.

The clouds have unit variance and means at the same distance, ``separation``, from one another, so
the best accuracy that any model can have is known. For two classes of the same size it is
Phi(separation / 2); ``best_accuracy`` has the general formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from fedbourse.errors import InvalidData
from fedbourse.game.columns import FloatArray, IntArray
from fedbourse.learning.records import Records, Scaling
from fedbourse.learning.sources import Source, split
from fedbourse.units import number, whole_number


@dataclass(frozen=True)
class Truth:
    """What the records are drawn from.

    d: the features, the constant among them. n: the records, the buyer's among them. separation:
    the distance between two classes' means, in standard deviations. flip: the chance that a label
    is another one than the truth. skew: how much rarer each class is than the one before.
    """

    d: int = 100
    n: int = 50_000
    separation: float = 2.0
    classes: int = 2
    flip: float = 0.0
    skew: float = 0.0

    def __post_init__(self) -> None:
        classes = whole_number("classes", self.classes, at_least=2, error=InvalidData)
        d = whole_number("d", self.d, at_least=classes + 1, error=InvalidData)
        n = whole_number("n", self.n, at_least=3, error=InvalidData)
        number("separation", self.separation, at_least=0, at_most=1000, error=InvalidData)
        number("flip", self.flip, at_least=0, at_most=1 - 1 / classes, error=InvalidData)
        number("skew", self.skew, at_least=0, at_most=0.99, error=InvalidData)
        for name, value in (("classes", classes), ("d", d), ("n", n)):
            object.__setattr__(self, name, value)

    @property
    def shares(self) -> FloatArray:
        """How frequent each class is."""
        weights = (1 - self.skew) ** np.arange(self.classes)
        return np.asarray(weights / weights.sum())

    @property
    def best_accuracy(self) -> float:
        """The accuracy of the best possible model, which knows the means.

        With s = separation / sqrt(2), a record of class c has one coordinate s + t, t normal, where
        every other class has a normal coordinate of its own. Bayes' rule picks c if each of those
        is below t + s + log(share_c / share_j) / s, so the accuracy is the sum over c of
        share_c * E[product over j != c of Phi(t + s + log(share_c / share_j) / s)].
        Of what is then right a label says otherwise with the chance flip, and the reverse.
        """
        right = _chance_of_right(self.shares, self.separation / math.sqrt(2))
        return right * (1 - self.flip) + (1 - right) * self.flip / (self.classes - 1)


@dataclass(frozen=True, eq=False)
class Clouds:
    """A pool of records, each drawn from its own random numbers when it is taken."""

    means: FloatArray
    key: IntArray
    ids: IntArray
    truth: IntArray
    labels: FloatArray

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.means)

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, rows: IntArray) -> Clouds:
        """Return the records at ``rows``, still not drawn."""
        return Clouds(self.means, self.key, self.ids[rows], self.truth[rows], self.labels[rows])

    def take(self, rows: IntArray) -> Records:
        """Return the records at ``rows``, in that order."""
        columns = self.means.shape[1]
        raw = np.empty((len(rows), columns))
        for i, number_of_record in enumerate(self.ids[rows].tolist()):
            # A counter of its own for each record: the same numbers whatever else is taken.
            stream = np.random.Philox(key=self.key, counter=[0, 0, 0, number_of_record])
            np.random.Generator(stream).standard_normal(out=raw[i])
        raw += self.means[self.truth[rows]]
        return Records(_scaling(columns).apply(raw), self.labels[rows], self.classes)


def load(options: str, *, seed: int, buyer_records: int | None) -> Source:
    """Return records of the truth that ``KEY=NUMBER,...`` describes."""
    truth = _parse(options)
    name = f"synthetic:{options}" if options else "synthetic"
    rows = split(
        name,
        rows=truth.n,
        buyer_records=buyer_records,
        usual=max(2, min(10_000, truth.n // 5)),
        seed=seed,
    )
    clouds = _clouds(truth, seed)
    return Source(
        name=name,
        pool=clouds.only(rows.pool),
        buyer=clouds.take(rows.buyer),
        groups=None,
        scaling=_scaling(truth.d - 1),
        description=(
            f"A record is a simulated point of {truth.d - 1} numbers; "
            f"predicted is which of {truth.classes} clouds it was drawn from."
        ),
        feature_names=(*(f"x{i}" for i in range(truth.d - 1)), "constant"),
        default_samples=max(1, min(1000, len(rows.pool) // 20)),
        default_model="logistic" if truth.classes == 2 else "softmax",
        best_accuracy=truth.best_accuracy,
    )


def _parse(options: str) -> Truth:
    names = [field.name for field in fields(Truth)]
    values: dict[str, float] = {}
    for option in filter(None, options.split(",")):
        key, _, text = option.strip().partition("=")
        if key not in names or key in values:
            raise InvalidData(
                f"synthetic takes each of {', '.join(names)} once, as d=100,n=5000; "
                f"found {option!r:.60}"
            )
        try:
            values[key] = float(text)
        except ValueError:
            raise InvalidData(f"{key} must be a number; found {text!r:.60}") from None
    return Truth(**values)  # type: ignore[arg-type]  # Truth checks which must be whole


def _clouds(truth: Truth, seed: int) -> Clouds:
    rng = np.random.default_rng([seed, 1])  # not the stream that chooses the buyer's rows
    directions = np.linalg.qr(rng.standard_normal((truth.d - 1, truth.classes)))[0].T
    means = truth.separation / math.sqrt(2) * (directions - directions.mean(axis=0))
    true = rng.choice(truth.classes, size=truth.n, p=truth.shares)
    other = (true + rng.integers(1, truth.classes, size=truth.n)) % truth.classes
    flipped = rng.random(truth.n) < truth.flip
    return Clouds(
        means=means,
        key=rng.integers(2**63, size=2),
        ids=np.arange(truth.n),
        truth=true,
        labels=np.where(flipped, other, true).astype(np.float64),
    )


def _scaling(columns: int) -> Scaling:
    """Return the scaling that gives a record's drawn features a norm of about 2."""
    return Scaling(np.zeros(columns), np.full(columns, math.sqrt(columns) / 2))


def _chance_of_right(shares: FloatArray, s: float) -> float:
    """Integrate the formula above; on so smooth a curve the plain sum is exact to rounding."""
    from scipy import special

    if s == 0:
        return float(shares.max())
    t = np.linspace(-10, 10, 401)
    density = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) * (t[1] - t[0])
    right = 0.0
    for c, share in enumerate(shares):
        with np.errstate(over="ignore"):
            shift = s + np.log(share / np.delete(shares, c)) / s
        logs = special.log_ndtr(t[:, None] + shift).sum(axis=1)
        right += float(share) * float(density @ np.exp(logs))
    return right
