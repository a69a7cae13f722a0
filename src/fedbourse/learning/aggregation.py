"""The weighted mean of a round's updates: the same for every engine and for the market.

Weights are ``equal`` (the paper's plain mean) or ``precision`` (by 1/sigma^2: the least noise that
updates allow, but those who sell privacy cheaply count for more). Either way they sum to 1 over the
updates received.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game.columns import FloatArray
from fedbourse.registry import Choice, Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

Weighing = Callable[[FloatArray], FloatArray]
"""Turns the noise scales of a round's updates into their weights, relative to each other."""


def _equal(scales: FloatArray) -> FloatArray:
    return np.ones(len(scales))


def _precision(scales: FloatArray) -> FloatArray:
    # Relative to the least noise, so that no square overflows.
    weights: FloatArray = (scales / scales.min(initial=np.inf)) ** -2.0
    return weights


AGGREGATIONS: Registry[Weighing] = Registry(
    "aggregation",
    Choice("equal", "all alike", "the paper's plain mean", _equal),
    Choice(
        "precision",
        "their precision: less noise counts more",
        "by 1/sigma^2, which is by pay: the least noise that updates allow",
        _precision,
    ),
)
"""How updates are weighted, by name."""


@dataclass(frozen=True, eq=False)
class Aggregate:
    """The updates of a round, added up."""

    weights: FloatArray
    """Each update's weight, relative to that of the least noise."""
    total: FloatArray
    """The weighted sum of the updates."""
    mean: FloatArray
    """Zero where nobody sent an update."""

    def others(self, number: int, update: FloatArray) -> FloatArray:
        """Return the weighted sum of all updates but this one."""
        rest: FloatArray = self.total - self.weights[number] * update
        return rest


def aggregate(
    blocks: Iterable[FloatArray], scales: FloatArray, rule: str, *, dimension: int
) -> Aggregate:
    """Add up updates, one a row, that come in blocks in the order of their noise scales.

    Memory grows with the model and one block, not with the number of updates.

    >>> aggregate([np.array([[1.0], [5.0]])], np.array([1.0, 2.0]), "precision", dimension=1).mean
    array([1.8])
    """
    weights = AGGREGATIONS[rule](scales)
    total, weight, first = np.zeros(dimension), 0.0, 0
    for block in blocks:
        part = weights[first : first + len(block)]
        total += block.sum(axis=0) if (part == 1.0).all() else part @ block
        weight += float(part.sum())
        first += len(block)
    return Aggregate(weights, total, total / (weight or 1.0))
