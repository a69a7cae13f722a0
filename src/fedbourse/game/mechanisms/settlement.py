"""How a reward becomes payments, in whole micro-credits that sum to it exactly.

Budgets come in chunks that can be read repeatedly, so that a million plans are never in memory
together. One reading sums them, exactly; one or two find which remainders are rounded up; and the
last one returns the payments.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import FloatArray, IntArray, per_owner, refuse_first
from fedbourse.units import MICRO_CREDITS_MAX, MicroCredits, amount_text, whole_number

Read = Callable[[], Iterable[FloatArray]]
"""Reads the budgets from the first chunk, at each call."""
Payments = Callable[[FloatArray], list[int]]
"""Returns the payments of the next chunk of budgets, in the order of reading."""
Settlement = Callable[[Read, MicroCredits], Payments]
"""How the market turns plans and the reward into payments that sum to it."""

_ROWS = 1 << 20
_HALF = 26
"""Bits of a budget's 53 in the lower of two parts: doubles hold their sums over a chunk exactly."""
_PREFIX_BITS = 16
_DISTINCT = 1 << 14
"""How many different remainders are counted individually."""


def pay_proportionally(plans: object, *, reward: MicroCredits) -> IntArray:
    """Return each owner's payment: R r_i / P, rounded so that the sum is R (largest remainder).

    Ties between equal remainders go to the owner who comes first.

    >>> pay_proportionally([0.1, 0.1, 0.1, 0.0], reward=MicroCredits(100))
    array([34, 33, 33,  0])
    """
    budgets = per_owner("plans", plans, len(np.atleast_1d(np.asarray(plans))))
    chunks = [budgets[start : start + _ROWS] for start in range(0, len(budgets), _ROWS)]
    pay = proportional(lambda: chunks, reward)
    return np.array([each for chunk in chunks for each in pay(chunk)], dtype=np.int64)


def proportional(read: Read, reward: MicroCredits) -> Payments:
    """Pay in proportion to budgets: the paper's compensation function."""
    total = whole_number("reward", reward, at_least=1)
    if total > MICRO_CREDITS_MAX:
        raise InvalidGame(
            f"reward must be at most {amount_text(MICRO_CREDITS_MAX)}; found {amount_text(total)}"
        )
    everything, least = _exact_sum(read())
    if not everything:
        raise InvalidGame("a settlement needs at least one plan above 0; found none")

    def divided(budgets: FloatArray) -> list[tuple[int, int]]:
        return [divmod(total * units, everything) for units in _integers(budgets, least)]

    cut, ties = _cut(lambda: ([rest for _, rest in divided(b)] for b in read()), everything)

    def payments(budgets: FloatArray) -> list[int]:
        nonlocal ties
        amounts = []
        for whole, rest in divided(budgets):
            up = rest > cut
            if rest == cut and ties:
                up, ties = True, ties - 1
            amounts.append(whole + up)
        return amounts

    return payments


def _exact_sum(chunks: Iterable[FloatArray]) -> tuple[int, int]:
    """Return the sum of all budgets in units of 2^(least - 53), and the least exponent.

    Doubles are fractions with a power of two below, so all of them scale to integers.
    """
    sums: Counter[int] = Counter()
    rows = 0
    for budgets in chunks:
        wrong = ~((budgets >= 0) & (budgets < math.inf))
        refuse_first("plans", budgets, wrong, "a finite number of at least 0", start=rows)
        rows += len(budgets)
        fractions, exponents = np.frexp(budgets[budgets > 0])
        if not len(exponents):
            continue
        mantissas = (fractions * 2.0**53).astype(np.int64)
        low = int(exponents.min())
        for shift, part in ((_HALF, mantissas >> _HALF), (0, mantissas & ((1 << _HALF) - 1))):
            parts = np.bincount(exponents - low, weights=part.astype(np.float64))
            for i in np.flatnonzero(parts).tolist():
                sums[low + i] += int(parts[i]) << shift
    least = min(sums, default=0)
    return sum(each << (exponent - least) for exponent, each in sums.items()), least


def _integers(budgets: FloatArray, least: int) -> list[int]:
    """Return budgets in units of 2^(least - 53)."""
    fractions, exponents = np.frexp(budgets)
    mantissas = (fractions * 2.0**53).astype(np.int64).tolist()
    shifts = (exponents - least).tolist()
    return [m << s if m else 0 for m, s in zip(mantissas, shifts, strict=True)]


def _cut(read: Callable[[], Iterable[list[int]]], everything: int) -> tuple[int, int]:
    """Return the remainder above which all are rounded up, and how many equal to it are as well.

    What the floors leave of the reward is the remainders' sum. The largest of them are found by
    their leading bits, sixteen more at each reading, until few enough different ones are left: at
    the first reading of a small market, at the second of most others.
    """
    left: int | None = None
    prefix, bits = 0, everything.bit_length()
    while True:
        shift = max(bits - _PREFIX_BITS, 0)
        prefixes: Counter[int] = Counter()
        exact: Counter[int] = Counter()
        total = 0
        for chunk in read():
            rests = chunk if left is None else [rest for rest in chunk if rest >> bits == prefix]
            total += sum(rests)
            prefixes.update([rest >> shift for rest in rests])
            if len(exact) <= _DISTINCT:
                exact.update(rests)
        if left is None:
            left = total // everything
        decided = len(exact) <= _DISTINCT
        counts = exact if decided else prefixes
        for here in sorted(counts, reverse=True):
            if counts[here] >= left:
                break
            left -= counts[here]
        if decided or not shift:
            return here, left
        prefix, bits = here, shift
