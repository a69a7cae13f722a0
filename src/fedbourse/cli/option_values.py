"""Option values that several commands read alike."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from fedbourse.errors import InvalidInput
from fedbourse.learning.models import MODELS
from fedbourse.units import number, whole_number

Whole = Annotated[float, Parameter(metavar="N")]
"""A whole number, which may also be written as 1e6; the command checks it."""

_SAMPLES = "Records behind each owner's updates; by default what suits the data."
_MODEL = f"What is trained: {MODELS.explained}; by default what suits the data."
_CLIP = "The norm that each record's gradient is clipped to."
Samples = Annotated[Whole | None, Parameter(help=_SAMPLES)]
Model = Annotated[str | None, Parameter(help=_MODEL)]
Rounds = Annotated[Whole, Parameter(help="How many rounds of training.")]
StepSize = Annotated[float, Parameter(help="The step size of training.")]
Clip = Annotated[float, Parameter(help=_CLIP)]


def low_and_high(uniform: str) -> tuple[float, float]:
    """Read LOW:HIGH, the ends of a uniform distribution."""
    low, _colon, high = uniform.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise InvalidInput(
            f"--uniform must be LOW:HIGH, such as 1:5; found {uniform!r:.60}"
        ) from None


def number_or_best(name: str, text: str) -> float | None:
    """Read a number above zero; None stands for ``best``."""
    if text == "best":
        return None
    try:
        given = float(text)
    except ValueError:
        raise InvalidInput(f"{name} must be a number, or best; found {text!r:.60}") from None
    return number(name, given, above=0)


def numbers(name: str, text: str, *, example: str) -> list[float]:
    """Read numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(
            f"{name} must be numbers separated by commas, such as {example}; found {text!r:.60}"
        ) from None


def count_or_none(name: str, value: float | None, *, at_least: int = 1) -> int | None:
    """Return a whole number that may be left out."""
    return None if value is None else whole_number(name, value, at_least=at_least)
