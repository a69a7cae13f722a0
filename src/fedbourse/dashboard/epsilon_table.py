"""The privacy loss of every budget as a short table, for scripts that cannot compute the proof.

A script reads between its points on logarithmic axes. The true curve bends by less than the margin
there, so what it reads is never below the proved epsilon, and hardly above it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedbourse.privacy.zcdp import DELTA, epsilon

LOW, HIGH = 1e-9, 1e5
"""The budgets between which there are points; below, the first point stands for all."""
POINTS = 281
_MARGIN = 1.001
_DIGITS = 8


@dataclass(frozen=True)
class EpsilonTable:
    """Epsilons at budgets in a geometric row."""

    low: float
    high: float
    delta: float
    epsilons: tuple[float, ...]

    @property
    def text(self) -> str:
        """The epsilons, with blanks between them."""
        return " ".join(f"{each:.{_DIGITS}g}" for each in self.epsilons)


_making = threading.Lock()


def epsilon_table() -> EpsilonTable:
    """Return the table, which takes a second to make and is made once, however many ask for it."""
    with _making:
        return _made()


@cache
def _made() -> EpsilonTable:
    epsilons = epsilon(rho=np.geomspace(LOW, HIGH, POINTS), delta=DELTA)
    return EpsilonTable(LOW, HIGH, DELTA, tuple((_MARGIN * epsilons).tolist()))
