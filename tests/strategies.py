"""Games for Hypothesis to draw."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import strategies as st

from fedbourse.testing.oracles import exact_shares

plain_value = st.floats(0.01, 100.0)
tied_value = st.integers(1, 12).map(lambda k: k / 10)  # decimal ties such as 0.1, 0.2, 0.3
wide_value = st.tuples(st.floats(1.0, 9.99), st.integers(-150, 149)).map(
    lambda p: p[0] * 10.0 ** p[1]
)

plain_values = st.lists(plain_value, min_size=2, max_size=40)
tied_values = st.lists(tied_value, min_size=2, max_size=40)
wide_values = st.lists(wide_value, min_size=2, max_size=40)
all_values = st.one_of(plain_values, tied_values, wide_values)


# Hypothesis likes round numbers, whose sums are exact; these use every digit that a double has.
all_digits = st.tuples(st.integers(2**52, 2**53 - 1), st.integers(-55, -50)).map(
    lambda pair: math.ldexp(*pair)
)


@st.composite
def near_ties(draw: st.DrawFn) -> list[float]:
    """Games whose highest-value owner stands at the cutoff of the others, give or take a digit."""
    base = draw(st.lists(all_digits, min_size=2, max_size=30))
    shares = exact_shares(base)
    inside = [Fraction(v) for v, share in zip(base, shares, strict=True) if share > 0]
    tie = float(sum(inside) / (len(inside) - 1))
    for _ in range(abs(step := draw(st.integers(-2, 2)))):
        tie = math.nextafter(tie, math.copysign(math.inf, step))
    copies = draw(st.integers(1, 3))
    return draw(st.permutations([*base, *[tie] * copies]))


rewards = st.floats(1e-3, 1e3)
