"""Money as whole micro-credits, and numbers that were checked once, at the border."""

from __future__ import annotations

import math
import numbers
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import NewType

from fedbourse.errors import InvalidInput, InvalidNumber

MicroCredits = NewType("MicroCredits", int)
"""Money: a whole number of millionths of a credit, so that sums are exact."""

MICRO_CREDITS_PER_CREDIT = 1_000_000

MICRO_CREDITS_MAX = 2**53 - 1
"""The largest reward: every amount up to it is a float without rounding."""

REWARD_MIN = 1 / MICRO_CREDITS_PER_CREDIT
REWARD_MAX = math.nextafter(MICRO_CREDITS_MAX / MICRO_CREDITS_PER_CREDIT, 0.0)
"""The smallest and the largest reward, in credits; both are within bounds as micro-credits."""


def micro_credits(credits: int | str | Decimal) -> MicroCredits:
    """Turn credits, written exactly, into micro-credits.

    >>> micro_credits("1.25")
    1250000
    """
    try:
        amount = Decimal(credits)
    except (InvalidOperation, TypeError, ValueError):
        amount = Decimal("NaN")
    if isinstance(credits, (bool, float)) or not amount.is_finite():
        raise InvalidNumber(f"credits must be a whole or decimal number; found {_shown(credits)}")
    if amount and amount.adjusted() > 30:
        raise InvalidNumber(f"credits must be below 10^30; found {_shown(credits)}")
    micro = Fraction(amount) * MICRO_CREDITS_PER_CREDIT if amount.adjusted() > -30 else None
    if amount and (micro is None or micro.denominator != 1):
        raise InvalidNumber(f"credits have at most six decimals; found {_shown(credits)}")
    return MicroCredits(int(micro or 0))


def credits_text(amount: int) -> str:
    """Return micro-credits as credits with all six decimals.

    >>> credits_text(1_250_000)
    '1.250000'
    """
    sign = "-" if amount < 0 else ""
    whole, part = divmod(abs(amount), MICRO_CREDITS_PER_CREDIT)
    return f"{sign}{whole}.{part:06d}"


def amount_text(amount: object) -> str:
    """Return micro-credits as people read them; what somebody else calls an amount, as it is.

    >>> amount_text(1_250_000), amount_text("much")
    ('1.250000 credits', "'much'")
    """
    return f"{credits_text(amount)} credits" if isinstance(amount, int) else _shown(amount)


def number(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    error: type[InvalidInput] = InvalidNumber,
) -> float:
    """Return ``value`` as a float if it is a finite real number within its range.

    >>> number("reward", 2, above=0)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise error(f"{name} must be a number; found {_shown(value)}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not (math.isfinite(result) and result > above and at_least <= result <= at_most):
        raise error(f"{name} must be {_range(above, at_least, at_most)}; found {_shown(value)}")
    return result


def whole_number(
    name: str, value: object, *, at_least: int, error: type[InvalidInput] = InvalidNumber
) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``at_least``.

    >>> whole_number("rounds", 500.0, at_least=1)
    500
    """
    result = number(name, value, at_least=at_least, error=error)
    if result != int(result):
        raise error(f"{name} must be a whole number; found {_shown(value)}")
    return int(result)


def rounded_up(exact: Fraction) -> float:
    """Return the smallest float that is not below a fraction; infinity beyond the largest one.

    >>> rounded_up(Fraction(1, 3)) > Fraction(1, 3), rounded_up(Fraction(1, 2))
    (True, 0.5)
    """
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def _range(above: float, at_least: float, at_most: float) -> str:
    parts = []
    if above > -math.inf:
        parts.append(f"above {above:g}")
    if at_least > -math.inf:
        parts.append(f"of at least {at_least:g}")
    if at_most < math.inf:
        parts.append(f"of at most {at_most:g}")
    return f"a finite number {' and '.join(parts)}".rstrip()


def _shown(value: object) -> str:
    # str() of a huge int raises, and a long one helps nobody.
    try:
        text = str(value) if isinstance(value, numbers.Number) else repr(value)
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
