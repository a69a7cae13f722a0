"""Games for Hypothesis to draw."""

from __future__ import annotations

from hypothesis import strategies as st

plain_value = st.floats(0.01, 100.0)
tied_value = st.integers(1, 12).map(lambda k: k / 10)  # decimal ties such as 0.1, 0.2, 0.3
wide_value = st.tuples(st.floats(1.0, 9.99), st.integers(-150, 149)).map(
    lambda p: p[0] * 10.0 ** p[1]
)

plain_values = st.lists(plain_value, min_size=2, max_size=40)
tied_values = st.lists(tied_value, min_size=2, max_size=40)
wide_values = st.lists(wide_value, min_size=2, max_size=40)
all_values = st.one_of(plain_values, tied_values, wide_values)

rewards = st.floats(1e-3, 1e3)
