"""A model of accuracy fitted to a pilot is found again, and the buyer can use it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse import (
    ACCURACY_MODELS,
    Accuracy,
    InvalidInput,
    Observation,
    Training,
    best_reward,
    calibrate,
)

TRAINING = Training(dimension=100, step_size=1.0, iterations=50, samples=100)


def observed(truth: Accuracy, *, spread: float = 0.0, count: int = 12) -> list[Observation]:
    rng = np.random.default_rng(0)
    result = []
    for scale in np.geomspace(0.01, 100, count):
        precisions = scale * truth.noise * rng.uniform(0.2, 2.0, size=5)
        level = truth.of(precisions, 9) + spread * rng.standard_normal()
        result.append(Observation(precisions, 9, float(np.clip(level, 0, 1))))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("model", ACCURACY_MODELS)
@given(chance=st.floats(0.0, 0.5), gain=st.floats(0.1, 0.5), noise=st.floats(1e-3, 1e3))
def test_a_noiseless_pilot_gives_back_the_truth(model, chance, gain, noise) -> None:
    truth = Accuracy(model, chance=chance, ceiling=chance + gain, noise=noise)
    fitted = calibrate(observed(truth), model=model)
    assert fitted.accuracy.noise == pytest.approx(noise, rel=1e-3)
    assert fitted.accuracy.chance == pytest.approx(chance, abs=1e-4)
    assert fitted.accuracy.ceiling == pytest.approx(chance + gain, abs=1e-4)
    assert fitted.largest_error < 1e-5


def test_a_noisy_pilot_comes_close_and_says_how_close() -> None:
    truth = Accuracy("precision", chance=0.5, ceiling=0.9, noise=0.05)
    fitted = calibrate(observed(truth, spread=0.01, count=60))
    assert fitted.observations == 60
    assert fitted.accuracy.ceiling == pytest.approx(0.9, abs=0.01)
    assert fitted.typical_error == pytest.approx(0.01, rel=0.3)
    assert fitted.typical_error <= fitted.largest_error


def test_the_coefficient_multiplies_all_noise() -> None:
    precisions = np.array([0.3, 2.0, 5.0])
    for model in ACCURACY_MODELS:
        plain, tenth = (Accuracy(model, noise=c) for c in (1.0, 0.1))
        assert tenth.of(precisions, 7) == pytest.approx(plain.of(10 * precisions, 7), rel=1e-14)


@pytest.mark.parametrize("model", ["averaged", "precision", "paper"])
def test_best_reward_takes_the_fitted_model(model) -> None:
    fitted = calibrate(observed(Accuracy(model, chance=0.5, ceiling=0.9, noise=0.04)), model=model)
    values = np.random.default_rng(1).uniform(1, 5, 200)
    offer = best_reward(values, TRAINING, accuracy_value=20, accuracy=fitted.accuracy)
    assert offer.reward > 0
    for step in (0.9, 1.1):
        other = offer.equilibrium.budgets * step
        precisions = TRAINING.precisions(other, offer.equilibrium.participants)
        utility = 20 * fitted.accuracy.of(precisions, 200) - step * offer.reward
        assert utility < offer.utility


def test_a_coefficient_moves_the_closed_form() -> None:
    """Precision, linear cost: R* = sqrt(gain c a tau) - c a tau."""
    accuracy = Accuracy("precision", chance=0.5, ceiling=0.9, noise=0.25)
    offer = best_reward([1.0, 1.0], TRAINING, accuracy_value=50, accuracy=accuracy)
    h = 0.25 * TRAINING.noise_factor * offer.equilibrium.cutoff
    assert offer.reward == pytest.approx(np.sqrt(50 * 0.4 * h) - h, rel=1e-9)


@pytest.mark.parametrize(
    ("observations", "sentence"),
    [
        ([], "at least 4 observations; found 0"),
        ([Observation(np.array([1.0]), 2, 1.5)] * 4, "accuracy must be .* found 1.5"),
        ([Observation(np.array([]), 2, 0.5)] * 4, "participants with precisions above 0"),
        ([Observation(np.array([1.0, 2.0]), 1, 0.5)] * 4, "owners must be"),
        ([Observation(np.array([1.0]), 2, 0.5)] * 4, "accuracy does not rise with the budgets"),
    ],
)
def test_pilots_that_say_nothing_are_refused(observations, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        calibrate(observations)


def test_falling_accuracy_is_refused() -> None:
    upside_down = [
        Observation(np.array([scale]), 2, 0.9 - 0.1 * k)
        for k, scale in enumerate([0.1, 1.0, 10.0, 100.0, 1000.0])
    ]
    with pytest.raises(InvalidInput, match="does not rise"):
        calibrate(upside_down)


@pytest.mark.parametrize("noise", [0.0, -1.0, float("nan"), float("inf")])
def test_a_wrong_coefficient_is_refused(noise) -> None:
    with pytest.raises(InvalidInput, match="noise must be"):
        Accuracy(noise=noise)
