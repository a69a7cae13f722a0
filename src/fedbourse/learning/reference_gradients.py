"""The directions that updates are compared with: mean gradients of the buyer's reference records.

They are functions of those records and of the model alone, so they are fixed before any update of
the round is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.learning.partition import Federation

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray, IntArray
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Records

_ROUNDING = 1e-9
CLASSES_MAX = 100
"""Above so many classes, mixtures of them are not looked at: their sums would outgrow a model."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The clipped mean gradients of the two halves of the reference records, at one model."""

    first: FloatArray
    second: FloatArray
    by_class: FloatArray | None = None
    """h_c, a row for each class that the reference has, where mixtures of classes are compared."""
    shares: FloatArray | None = None
    """The reference's own mixture of those classes."""

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
        """Return both halves without their parts along a direction."""
        return Reference(without(self.first, direction), without(self.second, direction))

    @property
    def numbers(self) -> FloatArray:
        """All of it in one row: both halves, the classes' means, and their shares."""
        parts = [self.first, self.second]
        if self.by_class is not None and self.shares is not None:
            parts += [self.by_class.ravel(), self.shares]
        return np.concatenate(parts)

    @property
    def content(self) -> bytes:
        """Its numbers as little-endian doubles."""
        return self.numbers.astype("<f8").tobytes()

    @classmethod
    def of(cls, content: bytes, *, dimension: int, clip: float, classes: int | None) -> Reference:
        """Read what ``content`` wrote, or say why no records can have these gradients.

        ``classes`` is how many there may be where mixtures of them are compared.
        """
        most = reference_bytes_max(dimension, classes)
        count, rest = divmod(len(content) - 16 * dimension, 8 * (dimension + 1))
        if not (len(content) == most if classes is None else not rest and 1 <= count <= classes):
            shape = "2 gradients"
            if classes is not None:
                shape += f", and one with its share for each class that is there, {classes} at most"
            raise InvalidInput(
                f"the numbers of a reference gradient are {shape}, of {dimension} doubles each, "
                f"{most} bytes{'' if classes is None else ' at most'}; found {len(content)}"
            )
        numbers = np.frombuffer(content, dtype="<f8").astype(np.float64, copy=False)
        rows = 2 if classes is None else 2 + count
        means, shares = numbers[: rows * dimension].reshape(rows, dimension), numbers[-count:]
        if not np.isfinite(numbers).all():
            raise InvalidInput(
                "a reference gradient holds finite numbers only; found one that is not"
            )
        with np.errstate(over="ignore"):  # a norm that overflows is too large
            norm = float(np.linalg.norm(means, axis=1).max())
        if norm > clip * (1 + _ROUNDING):
            raise InvalidInput(
                f"a mean of clipped gradients has a norm of at most {clip:g}; found {norm:.6g}"
            )
        if classes is None:
            return cls(means[0], means[1])
        if shares.min() <= 0 or abs(float(shares.sum()) - 1) > _ROUNDING:
            raise InvalidInput(
                f"shares of classes are above 0 and sum to 1; found {shares.min():.6g} as the "
                f"smallest, and {shares.sum():.6g} as their sum"
            )
        return cls(means[0], means[1], means[2:], shares)

    @cached_property
    def class_products(self) -> FloatArray:
        """<h_c, h_c'> for all pairs of classes."""
        assert self.by_class is not None
        products: FloatArray = self.by_class @ self.by_class.T
        return products


@dataclass(frozen=True, eq=False)
class ReferenceRecords:
    """Reference records, arranged once: every other record is of the first half."""

    halves: Federation
    classes: Federation | None
    """One part for each class that is there; None where mixtures are not compared."""

    @classmethod
    def of(cls, records: Records, *, by_class: bool) -> ReferenceRecords:
        """Arrange records; ``by_class`` is for rules that compare with any mixture of classes."""
        count = len(records)
        if count < 2:
            raise InvalidData(f"a reference needs at least 2 records; found {count}")
        if by_class and not 2 <= records.classes <= CLASSES_MAX:
            raise InvalidData(
                f"any-class-mixture needs labels that are 2 to {CLASSES_MAX} classes; "
                f"found {records.classes or 'numbers'}"
            )
        halves = np.concatenate([np.arange(0, count, 2), np.arange(1, count, 2)])
        return cls(
            _parts(records, halves, np.array([(count + 1) // 2, count // 2])),
            _classes(records) if by_class else None,
        )

    def at(self, model: Model, parameters: FloatArray, *, clip: float) -> Reference:
        """Return the directions at one model."""
        first, second = model.clipped_means(parameters, self.halves, clip=clip)
        if self.classes is None:
            return Reference(first, second)
        sizes = self.classes.sizes
        means = model.clipped_means(parameters, self.classes, clip=clip)
        return Reference(first, second, means, sizes / sizes.sum())


def reference_bytes_max(dimension: int, classes: int | None) -> int:
    """Return how many bytes ``Reference.content`` has at most.

    >>> reference_bytes_max(5, None), reference_bytes_max(5, 2)
    (80, 176)
    """
    return 16 * dimension + 8 * (dimension + 1) * (classes or 0)


def _classes(records: Records) -> Federation:
    labels = records.labels.astype(np.int64)
    sizes = np.bincount(labels)
    return _parts(records, np.argsort(labels, kind="stable"), sizes[sizes > 0])


def _parts(records: Records, rows: IntArray, sizes: IntArray) -> Federation:
    return Federation(records.take(rows), np.concatenate([[0], np.cumsum(sizes)]))


def without(vector: FloatArray, direction: FloatArray) -> FloatArray:
    """Return a vector without its part along a direction."""
    length = float(direction @ direction)
    rest: FloatArray = vector - (vector @ direction / length) * direction if length else vector
    return rest if np.linalg.norm(rest) > 1e-12 * np.linalg.norm(vector) else np.zeros_like(vector)
