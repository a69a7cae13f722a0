"""A uniform number of which only the first bits are drawn, compared exactly with exp(-gamma).

All arithmetic is on whole numbers: nothing here depends on floating point. The proof is in
docs/theory/exact-noise.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

RandomWords = Callable[[int], npt.NDArray[np.uint64]]
"""Returns as many independent uniform 64-bit words as it is asked for."""

_GUARD_BITS = 16


def exp_bounds(gamma: Fraction, *, bits: int) -> tuple[int, int]:
    """Return whole numbers, at most 2 apart, with low <= 2^bits exp(-gamma) <= high.

    >>> exp_bounds(Fraction(1), bits=64)  # 2^64 / e is 6786177901268885274.4
    (6786177901268885274, 6786177901268885275)
    """
    if gamma >= bits:  # exp(-bits) is below 2^-bits
        return 0, 1
    # exp(-gamma) is the square of the square ... of exp(-y), with y below 1/2.
    halvings = max(0, gamma.numerator.bit_length() - gamma.denominator.bit_length() + 2)
    precision = bits + halvings + _GUARD_BITS
    y = (gamma.numerator << precision) // (gamma.denominator << halvings)
    term = total = 1 << precision
    count = 0
    while term:  # each is at most 3 too small, and so is the sum of all that are left out
        count += 1
        term = ((term * y) >> precision) // count
        total += -term if count % 2 else term
    low, high = total - 3 * (count + 2), total + 3 * (count + 2)
    for _ in range(halvings):
        low = low * low >> precision
        high = -(-high * high >> precision)
    dropped = precision - bits
    return low >> dropped, -(-high >> dropped)


class LazyUniform:
    """A uniform number between 0 and 1, known by its first bits: more are drawn when needed."""

    def __init__(self, first_bits: int, *, bits: int, words: RandomWords) -> None:
        self._value, self._bits, self._words = first_bits, bits, words

    def below_exp(self, gamma: Fraction) -> bool:
        """Return whether the number is below exp(-gamma), for a gamma of at least 0."""
        while True:
            low, high = exp_bounds(gamma, bits=self._bits)
            # The number lies between value and value + 1, in units of 2^-bits.
            if self._value + 1 <= low:
                return True
            if self._value >= high:
                return False
            self._value = self._value << 64 | int(self._words(1)[0])
            self._bits += 64
