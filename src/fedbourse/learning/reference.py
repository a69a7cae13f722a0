"""What the same records give without privacy, by scikit-learn: a peer, none of it our code."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbourse.errors import InvalidData, MissingExtra

if TYPE_CHECKING:
    from fedbourse.learning.records import Records


def reference_accuracy(training: Records, validation: Records) -> float:
    """Return the accuracy of logistic regression; where labels are numbers, R squared of ridge."""
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, Ridge
    except ImportError:
        raise MissingExtra(
            "the non-private reference needs scikit-learn: pip install 'fedbourse[data]'"
        ) from None
    if training.classes and len(set(training.labels.tolist())) < 2:
        raise InvalidData(
            f"{len(training)} records to learn from without privacy are all of class "
            f"{training.labels[0]:g}; choose another seed, or data with more of the rare class"
        )
    learner = LogisticRegression(max_iter=1000) if training.classes else Ridge()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner.fit(training.features, training.labels)
    return float(learner.score(validation.features, validation.labels))


@dataclass(frozen=True)
class Pilot:
    """What a buyer finds out from records of its own before it pays for any."""

    chance: float
    """The accuracy of guessing."""
    ceiling: float
    """The accuracy without noise."""
    training: Records
    """The half of the records that it learned from."""
    validation: Records
    """The other half, which both were measured on."""


def pilot(own: Records, *, seed: int) -> Pilot:
    """Learn from one half of the records, and measure on the other."""
    import numpy as np

    order = np.random.default_rng([seed, 1]).permutation(len(own))
    training, validation = (own.take(np.sort(part)) for part in np.array_split(order, 2))
    chance, ceiling = majority_accuracy(validation), reference_accuracy(training, validation)
    if ceiling < chance + 0.01:
        raise InvalidData(
            f"a pilot on {len(own)} records finds nothing to learn: {ceiling:.1%} without privacy, "
            f"{chance:.1%} by guessing"
        )
    return Pilot(chance, ceiling, training, validation)


def majority_accuracy(records: Records) -> float:
    """Return the accuracy of always saying the commonest class; 0 where labels are numbers."""
    if not records.classes:
        return 0.0
    import numpy as np

    counts = np.bincount(records.labels.astype(np.int64), minlength=records.classes)
    return float(counts.max() / counts.sum())
