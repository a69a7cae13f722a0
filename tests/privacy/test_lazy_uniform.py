"""A uniform number of a few bits is compared with exp(-gamma) without any rounding."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse.privacy.lazy_uniform import LazyUniform, exp_bounds


def times_exp(gamma: Fraction, bits: int) -> Decimal:
    """Return 2^bits exp(-gamma) by another library, whose exp rounds correctly."""
    with localcontext() as context:
        context.prec, context.Emin = 400, -(10**9)
        exponent = Decimal(-gamma.numerator) / Decimal(gamma.denominator)
        return exponent.exp() * Decimal(2) ** bits


def no_words(count: int) -> np.ndarray:
    raise AssertionError("no more bits are needed here")


gammas = st.one_of(
    st.fractions(0, 60),
    st.floats(0, 700).map(Fraction),
    st.floats(1e-300, 1e-3).map(Fraction),
    st.integers(0, 400).map(lambda k: Fraction(k, 4)),
)


@examples(300)
@given(gammas, st.sampled_from([53, 64, 117, 128, 300]))
def test_the_bounds_hold_and_are_close(gamma: Fraction, bits: int) -> None:
    low, high = exp_bounds(gamma, bits=bits)
    assert low <= times_exp(gamma, bits) <= high
    assert high - low <= 2


@pytest.mark.parametrize("gamma", [Fraction(10**9), Fraction(2) ** 3000, Fraction(10**300, 7)])
def test_a_huge_gamma_takes_no_time(gamma: Fraction) -> None:
    assert exp_bounds(gamma, bits=117) == (0, 1)


@examples(200)
@given(gammas, st.integers(-3, 3), st.integers(-3, 3))
def test_numbers_next_to_the_chance_are_told_apart_by_as_many_bits_as_it_takes(
    gamma: Fraction, first: int, second: int
) -> None:
    """All 181 bits are given: 53 at first, and the others as words."""
    chance = int(times_exp(gamma, 181))
    near = chance + first * 2**128 + second
    if not 0 <= near < 2**181:
        return
    words = iter([near >> 64 & 2**64 - 1, near & 2**64 - 1, 2**63])
    uniform = LazyUniform(
        near >> 128, bits=53, words=lambda count: np.array([next(words)] * count, np.uint64)
    )
    # The number goes on with 2^63: it lies in the middle between near and near + 1.
    with localcontext() as context:
        context.prec = 400
        expected = near + Decimal("0.5") < times_exp(gamma, 181)
    assert uniform.below_exp(gamma) is expected


def test_bits_that_decide_are_enough() -> None:
    half = Fraction(25, 36)  # exp(-half) is 0.4994
    assert LazyUniform(2**51, bits=53, words=no_words).below_exp(half)
    assert not LazyUniform(2**52, bits=53, words=no_words).below_exp(half)


def test_a_number_remembers_the_bits_that_it_drew() -> None:
    gamma = Fraction(1)
    chance = exp_bounds(gamma, bits=117)[0]
    drawn = iter([chance - 2**40 & 2**64 - 1])
    uniform = LazyUniform(
        chance >> 64, bits=53, words=lambda count: np.array([next(drawn)], np.uint64)
    )
    assert [uniform.below_exp(gamma) for _ in range(3)] == [True] * 3
    assert not uniform.below_exp(Fraction(2))
