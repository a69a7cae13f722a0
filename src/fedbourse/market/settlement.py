"""Plans turned into payments, in whole micro-credits that sum to the reward exactly.

Budgets come in chunks that can be read again and again, so that a million plans never lie in memory
together. One reading sums them, exactly; one or two find which remainders are rounded up; and
whoever reads them once more is told the payments.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import FloatArray, per_owner, refuse_first
from fedbourse.units import MICRO_CREDITS_MAX, MicroCredits, amount_text, whole_number

if TYPE_CHECKING:
    from fedbourse.game.columns import IntArray

Read = Callable[[], Iterable[FloatArray]]
"""Starts at the first chunk of budgets, whenever it is called."""
Payments = Callable[[FloatArray], list[int]]
"""Tells the payments of the next chunk of budgets, in the order of reading."""

_ROWS = 1 << 20
_HALF = 26
"""Bits of a budget's 53 in the lower of two parts: doubles hold their sums over a chunk exactly."""
_CELL_BITS = 16
_DISTINCT = 1 << 14
"""How many different remainders are told apart one by one."""


def settle(plans: object, *, reward: MicroCredits) -> IntArray:
    """Return each owner's payment: R r_i / P, rounded so that the sum is R (largest remainder).

    Ties between equal remainders go to the owner who comes first.

    >>> settle([0.1, 0.1, 0.1, 0.0], reward=MicroCredits(100))
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
        return [divmod(total * weight, everything) for weight in _weights(budgets, least)]

    cut, ties = _cut(lambda: ([rest for _, rest in divided(b)] for b in read()), everything)

    def payments(budgets: FloatArray) -> list[int]:
        nonlocal ties
        found = []
        for whole, rest in divided(budgets):
            up = rest > cut
            if rest == cut and ties:
                up, ties = True, ties - 1
            found.append(whole + up)
        return found

    return payments


COMPENSATIONS: dict[str, Callable[[Read, MicroCredits], Payments]] = {"proportional": proportional}
"""Each turns budgets and the reward into payments that sum to the reward."""


def shares_at(total_budget: float, budgets: Iterable[FloatArray]) -> tuple[int, float]:
    """Return how many budgets are above 0, and what they are of an announced total in all.

    >>> shares_at(2.0, [np.array([0.5, 0.0]), np.array([1.0, 9.0])])
    (3, 5.25)
    """
    positive = 0

    def shares() -> Iterable[float]:
        nonlocal positive
        for some in budgets:
            sold = some[some > 0]
            positive += len(sold)
            yield from (sold / total_budget).tolist()

    share_sum = math.fsum(shares())
    return positive, share_sum


def regret_bound(
    budgets: Iterable[FloatArray], *, announced: float, sold: float, reward: float
) -> float:
    """Return the most that any owner could gain by another budget, up to the next power of ten.

    Each reply r to the announced P says that a unit of budget is worth v = R (1 - r/P)/P to its
    owner (a zero: R/P at least). ``sold`` is what all plans sum to. A power of ten, because the
    exact number would tell one owner's budget.
    """
    largest = reward * (1.0 - math.sqrt(min(1.0, sold / announced))) ** 2  # an outsider's
    for some in budgets:
        r = some[some > 0]
        value = reward * (1.0 - r / announced) / announced
        # (sqrt(v P) - sqrt(R (1 - s)))^2, as in game.certificate
        gain = (np.sqrt(value * sold) - np.sqrt(reward * np.maximum(1.0 - r / sold, 0.0))) ** 2
        largest = max(largest, float(gain.max(initial=0.0)))
    return float(10.0 ** math.ceil(math.log10(largest))) if largest > 1e-300 else 0.0


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
            found = np.bincount(exponents - low, weights=part.astype(np.float64))
            for i in np.flatnonzero(found).tolist():
                sums[low + i] += int(found[i]) << shift
    least = min(sums, default=0)
    return sum(each << (exponent - least) for exponent, each in sums.items()), least


def _weights(budgets: FloatArray, least: int) -> list[int]:
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
    head, bits = 0, everything.bit_length()
    while True:
        shift = max(bits - _CELL_BITS, 0)
        cells: Counter[int] = Counter()
        exact: Counter[int] = Counter()
        total = 0
        for chunk in read():
            rests = chunk if left is None else [rest for rest in chunk if rest >> bits == head]
            total += sum(rests)
            cells.update([rest >> shift for rest in rests])
            if len(exact) <= _DISTINCT:
                exact.update(rests)
        if left is None:
            left = total // everything
        decided = len(exact) <= _DISTINCT
        counts = exact if decided else cells
        for here in sorted(counts, reverse=True):
            if counts[here] >= left:
                break
            left -= counts[here]
        if decided or not shift:
            return here, left
        head, bits = here, shift
