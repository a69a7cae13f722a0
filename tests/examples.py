"""How many examples Hypothesis tries in a test that says so itself: few under ``make check``."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def at_most(number: int) -> int:
    """Return a number of examples, or that of the profile ``check`` where this is less."""
    if settings.get_current_profile_name() == "check":
        return min(number, settings.get_profile("check").max_examples)
    return number


def examples(number: int, **options: Any) -> settings:
    """Return settings of a test that usually tries so many examples."""
    return settings(max_examples=at_most(number), **options)
