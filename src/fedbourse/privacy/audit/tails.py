"""Tails of distributions, for the tests and for their power alike."""

from __future__ import annotations

from scipy.special import betainc

TAIL_MARGIN = 1.25
"""What the p-value of the shape test is multiplied by, for the tail that it approximates."""


def at_least(right: int, runs: int, chance: float) -> float:
    """Return how likely that many of ``runs`` guesses are right, or more: the binomial tail."""
    if right > runs:  # no count is ever that high, however likely a right guess is
        return 0.0
    return float(betainc(right, runs - right + 1, chance)) if right else 1.0


def cosine_p_value(largest: float, vectors: int, length: int) -> float:
    """Return how likely some pair of independent normal vectors has such a |cosine|: a bound."""
    pairs = vectors * (vectors - 1) / 2
    if length < 2 or not pairs:
        return 1.0
    # A computed cosine is good to 1e-15 only.
    sine_squared = max((1.0 - largest) * (1.0 + largest), 1e-15)
    return min(1.0, pairs * float(betainc((length - 1) / 2, 0.5, sine_squared)))
