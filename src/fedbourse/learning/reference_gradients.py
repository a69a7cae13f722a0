"""The directions that updates are compared with: mean gradients of the buyer's reference records.

They are functions of those records and of the model alone, so they are fixed before any update of
the round is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidData
from fedbourse.learning.partition import Federation

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray, IntArray
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Records

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
