"""Option values that several commands read alike."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from fedbourse.errors import InvalidInput

Whole = Annotated[float, Parameter(metavar="N")]
"""A whole number, which may also be written as 1e6; the command checks it."""


def low_and_high(uniform: str) -> tuple[float, float]:
    """Read LOW:HIGH, the ends of a uniform distribution."""
    low, _colon, high = uniform.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise InvalidInput(
            f"--uniform must be LOW:HIGH, such as 1:5; found {uniform!r:.60}"
        ) from None


def number_or_best(reward: str) -> float | None:
    """Read a reward; None stands for ``best``."""
    if reward == "best":
        return None
    try:
        return float(reward)
    except ValueError:
        raise InvalidInput(f"reward must be a number, or best; found {reward!r:.60}") from None
