"""Can an honest device have sent this answer? What whoever asks checks before using one.

An answer is a mean of norm L at most plus noise of a known scale, so its norm lies within bounds
that an honest device leaves once in a thousand million answers, at either end. Pure noise without
any data passes: no test of one answer can tell.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.privacy.terms import Terms

_FALSE_ALARM = 1e-9


def answer_bounds(terms: Terms) -> tuple[float, float]:
    """Return the least and the largest norm of an answer under these terms.

    >>> from fedbourse.privacy import Terms
    >>> terms = Terms(task="flights", rho=0.1, rounds=500, dimension=116, samples=1000)
    >>> [round(bound, 3) for bound in answer_bounds(terms)]
    [0.682, 2.522]
    """
    low, high = _noise_norms(terms.dimension)
    return terms.scale * low, terms.clip + terms.scale * high


def checked_answer(terms: Terms, body: object) -> FloatArray:
    """Return an answer that came as little-endian doubles, if an honest device can have sent it."""
    size = 8 * terms.dimension
    if not isinstance(body, bytes) or len(body) != size:
        found = f"{len(body)}" if isinstance(body, bytes) else type(body).__name__
        raise InvalidInput(
            f"an answer is {terms.dimension} doubles, {size} bytes; found {found:.60}"
        )
    vector: FloatArray = np.frombuffer(body, dtype="<f8").astype(np.float64)
    if not np.isfinite(vector).all():
        raise InvalidInput("an answer must be finite; found NaN or infinity")
    low, high = answer_bounds(terms)
    with np.errstate(over="ignore"):  # then the norm is infinite, and refused
        norm = float(np.linalg.norm(vector))
    if not low <= norm <= high:
        raise InvalidInput(
            f"an answer under these terms has a norm from {low:.6g} to {high:.6g}; found {norm:.6g}"
        )
    return vector


@lru_cache
def _noise_norms(dimension: int) -> tuple[float, float]:
    from scipy.stats import chi2

    low, high = chi2.ppf(_FALSE_ALARM, dimension), chi2.isf(_FALSE_ALARM, dimension)
    return math.sqrt(low), math.sqrt(high)
