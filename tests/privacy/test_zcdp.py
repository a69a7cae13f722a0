"""Noise that spends a budget exactly."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse import InvalidInput, noise_scale


@given(st.floats(1e-6, 1e3), st.floats(1e-3, 1e3), st.integers(1, 10**6), st.integers(1, 10**5))
def test_all_rounds_together_spend_the_budget(rho, clip, samples, iterations) -> None:
    sigma = noise_scale(rho, clip=clip, samples=samples, iterations=iterations)
    sensitivity = 2 * clip / samples
    assert iterations * sensitivity**2 / (2 * sigma**2) == pytest.approx(rho, rel=1e-12)


def test_one_scale_for_each_budget() -> None:
    scales = noise_scale(
        np.array([0.1, 0.4]), clip=1.0, samples=np.array([1e3, 1e3]), iterations=500
    )
    assert scales == pytest.approx([0.1, 0.05])


def test_the_smallest_budgets_do_not_overflow() -> None:
    assert math.isfinite(noise_scale(5e-324, clip=1.0, samples=1, iterations=10**6))


@pytest.mark.parametrize(
    "wrong", [{"rho": 0.0}, {"rho": math.nan}, {"clip": 0}, {"samples": -1}, {"iterations": 0}]
)
def test_bad_numbers_are_refused(wrong) -> None:
    good = {"rho": 0.1, "clip": 1.0, "samples": 10, "iterations": 5}
    with pytest.raises(InvalidInput, match=f"{next(iter(wrong))} must be"):
        noise_scale(**(good | wrong))
