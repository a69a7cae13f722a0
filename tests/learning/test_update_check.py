"""An honest update passes, and what no honest device can have sent does not."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from fedbourse.errors import InvalidInput
from fedbourse.learning.update_check import checked_update, fits_float32, update_bounds
from fedbourse.privacy import ExactNoise, Terms

TERMS = Terms(task="t", rho=0.5, rounds=10, dimension=40, samples=100, clip=2.0)


def test_the_bounds_are_those_of_the_design() -> None:
    low, high = update_bounds(TERMS)
    assert low**2 == pytest.approx(TERMS.scale**2 * chi2.ppf(1e-9, 40))
    assert high == pytest.approx(2.0 + TERMS.scale * np.sqrt(chi2.isf(1e-9, 40)))


@pytest.mark.parametrize("length", [0.0, 2.0])
def test_every_honest_update_passes(length: float) -> None:
    noise = ExactNoise([TERMS])
    mean = np.zeros((1, 40))
    mean[0, 0] = length
    for k in range(300):
        body = noise.release(mean, np.array([0]), k).astype("<f8").tobytes()
        assert checked_update(TERMS, body).tobytes() == body


@pytest.mark.parametrize(
    "body",
    [
        np.zeros(40).tobytes(),
        np.full(40, 1e200).tobytes(),
        np.full(40, np.nan).tobytes(),
        np.array([np.inf] + 39 * [0.1]).tobytes(),
        np.full(39, 0.5).tobytes(),
        b"",
        "text",
        None,
        [0.1] * 40,
    ],
    ids=["zeros", "huge", "nan", "inf", "short", "empty", "text", "none", "list"],
)
def test_what_cannot_be_an_update_is_refused(body: object) -> None:
    with pytest.raises(InvalidInput, match="update"):
        checked_update(TERMS, body)


@pytest.mark.parametrize("clip", [1e-60, 1e-20, 1e-6, 1.0, 1e6, 1e34, 1e50])
@pytest.mark.parametrize("samples", [1, 100, 10**6, 10**9])
def test_updates_that_fit_floats_are_taken_as_floats(clip: float, samples: int) -> None:
    terms = replace(TERMS, clip=clip, samples=samples)
    assert fits_float32(terms) == (1e-26 < clip < 1e35 and samples < 10**9)
    if fits_float32(terms):
        rng = np.random.default_rng(0)
        for _ in range(50):
            update = terms.scale * rng.standard_normal(40)
            update[0] += clip
            checked_update(terms, update.astype("<f4").tobytes())


def test_noise_too_large_for_floats_does_not_fit() -> None:
    assert fits_float32(replace(TERMS, rho=1e-60))
    assert not fits_float32(replace(TERMS, rho=1e-80))
