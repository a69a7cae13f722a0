"""Can an honest device have sent this update? Checked before one is used.

An update is a mean of norm L at most plus noise of a known scale, so its norm lies within bounds
that an honest device leaves once in a thousand million updates, at either end. Pure noise without
any data passes: no test of one update can tell.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbourse.errors import InvalidInput

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.privacy.terms import Terms

Fault = Literal["length", "not finite", "norm"]
_FALSE_ALARM = 1e-9
_LARGE = 10**6
_FLOAT_MAX = float(np.finfo(np.float32).max)
_FLOAT_LEAST = 2.0**-100  # far above 2^-126, below which floats lose digits


def update_bounds(terms: Terms) -> tuple[float, float]:
    """Return the least and the largest norm of an update under these terms.

    >>> from fedbourse.privacy import Terms
    >>> terms = Terms(task="flights", rho=0.1, rounds=500, dimension=116, samples=1000)
    >>> [round(bound, 3) for bound in update_bounds(terms)]
    [0.682, 2.522]
    """
    low, high = square_sum_bounds(terms.dimension, false_alarm=_FALSE_ALARM)
    return terms.scale * math.sqrt(low), terms.clip + terms.scale * math.sqrt(high)


def fits_float32(terms: Terms) -> bool:
    """Return whether updates under these terms can be sent as floats and still be accepted.

    None overflows or vanishes, and rounding, 2^-24 of an update, is far less than the noise: it
    cannot carry an update beyond its bounds.

    >>> from fedbourse.privacy import Terms
    >>> fits_float32(Terms(task="flights", rho=0.1, rounds=500, dimension=116, samples=1000))
    True
    """
    return (
        terms.clip + 40.0 * terms.scale <= _FLOAT_MAX
        and terms.scale >= _FLOAT_LEAST
        and terms.scale >= terms.clip * 2.0**-20
    )


def fault_of(terms: Terms, body: object) -> tuple[Fault, str] | None:
    """Return what is wrong with an update, and a sentence about it; None where nothing is."""
    d = terms.dimension
    if not isinstance(body, bytes) or len(body) not in (8 * d, 4 * d):
        size = f"{len(body)} bytes" if isinstance(body, bytes) else type(body).__name__
        return "length", (
            f"an update is {d} little-endian doubles, {8 * d} bytes, or floats, {4 * d} bytes; "
            f"found {size:.60}"
        )
    vector = update_numbers(body, dimension=d)
    with np.errstate(over="ignore", invalid="ignore"):  # a norm that overflows is too large
        norm = float(np.linalg.norm(vector))
    # A norm that is finite has no part that is not.
    if not math.isfinite(norm) and not np.isfinite(vector).all():
        return "not finite", "an update holds finite numbers only; found one that is not"
    low, high = update_bounds(terms)
    if not low <= norm <= high:
        return "norm", (
            f"the norm of an update with this noise lies between {low:.6g} and {high:.6g}; "
            f"found {norm:.6g}"
        )
    return None


def checked_update(terms: Terms, body: object) -> FloatArray:
    """Return the numbers of an update, if an honest device can have sent it."""
    fault = fault_of(terms, body)
    if fault is not None or not isinstance(body, bytes):
        raise InvalidInput(fault[1] if fault else "an update must be bytes")
    return update_numbers(body, dimension=terms.dimension)


def update_numbers(body: bytes, *, dimension: int) -> FloatArray:
    """Return the numbers of an update: doubles, or floats where there are half as many bytes.

    >>> import struct
    >>> update_numbers(struct.pack("<2f", 0.5, -2.0), dimension=2)
    array([ 0.5, -2. ])
    """
    kind = "<f8" if len(body) == 8 * dimension else "<f4"
    return np.frombuffer(body, dtype=kind).astype(np.float64, copy=False)


@lru_cache(maxsize=4096)
def square_sum_bounds(numbers: int, *, false_alarm: float) -> tuple[float, float]:
    """Return what the squares of so many normal numbers sum to, but for this chance at either end.

    >>> [round(bound, 2) for bound in square_sum_bounds(10, false_alarm=0.025)]
    [3.25, 20.48]
    """
    # Not scipy.stats: importing it takes seconds, in the midst of a market's first round.
    from scipy.special import gammainccinv, gammaincinv, ndtri

    if numbers > _LARGE:  # SciPy loses digits here, and Wilson and Hilferty's cube root gains them
        variance = 2 / (9 * numbers)
        spread = float(ndtri(false_alarm)) * math.sqrt(variance)
        return numbers * (1 - variance + spread) ** 3, numbers * (1 - variance - spread) ** 3
    half = numbers / 2
    return 2 * float(gammaincinv(half, false_alarm)), 2 * float(gammainccinv(half, false_alarm))
