"""A mean over seeds with its 95 % interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Mean:
    """A mean, and how far the true one may lie from it (Student's t, 95 %)."""

    value: float
    margin: float
    """Infinite for a single number."""
    count: int


def mean_of(numbers: Sequence[float]) -> Mean:
    """Return the mean of independent numbers with its interval."""
    from scipy.special import stdtrit

    count = len(numbers)
    spread = float(np.std(numbers, ddof=1)) if count > 1 else math.inf
    reach = float(stdtrit(count - 1, 0.975)) if count > 1 else 1.0
    return Mean(float(np.mean(numbers)), reach * spread / math.sqrt(count), count)
