"""Few sellers bring few records, whatever their noise: accuracy models that know how few."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse import (
    Accuracy,
    InvalidInput,
    Observation,
    Training,
    Uniform,
    best_reward,
    calibrate,
    equilibrium,
)

TRAINING = Training(dimension=100, step_size=1.0, iterations=50, samples=100)
PRECISIONS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8).map(np.array)
VARIANCES = st.floats(1e-3, 1e3)


def error_of(weights, precisions, accuracy) -> float:
    """The variance of a weighted mean of updates, each with noise and sampling of its own."""
    return float((weights**2 * (accuracy.noise / precisions + accuracy.sampling)).sum())


@pytest.mark.parametrize("model", ["averaged", "precision"])
@given(precisions=PRECISIONS, noise=VARIANCES, sampling=VARIANCES)
def test_quality_is_that_of_the_weighted_mean_that_is_trained_with(
    model, precisions, noise, sampling
) -> None:
    accuracy = Accuracy(model, chance=0, noise=noise, sampling=sampling)
    weights = precisions if model == "precision" else np.ones(len(precisions))
    error = error_of(weights / weights.sum(), precisions, accuracy)
    assert accuracy.of(precisions, 9) == pytest.approx(1 / (1 + error), rel=1e-12)


@pytest.mark.parametrize("model", ["averaged", "precision"])
def test_ever_larger_rewards_do_not_make_up_for_few_sellers(model) -> None:
    accuracy = Accuracy(model, sampling=0.5)
    two, fifty = (accuracy.of(np.full(count, 1e15), 50) for count in (2, 50))
    assert two == pytest.approx(0.5 + 0.5 / 1.25)
    assert fifty == pytest.approx(0.5 + 0.5 / 1.01)


@pytest.mark.parametrize("model", ["averaged", "precision"])
@given(precisions=PRECISIONS, sampling=VARIANCES)
def test_elasticity_and_slope_are_derivatives(model, precisions, sampling) -> None:
    accuracy, count, step = Accuracy(model, sampling=sampling), np.array(len(precisions)), 1e-4
    below, here, above = (
        accuracy.quality(precisions * np.exp(x), count, 9) for x in (-step, 0.0, step)
    )
    assert here.elasticity == pytest.approx((above.log - below.log) / (2 * step), rel=1e-5)
    assert here.slope == pytest.approx(
        (above.elasticity - below.elasticity) / (2 * step), rel=1e-4, abs=1e-9
    )


@pytest.mark.parametrize("model", ["averaged", "precision"])
@pytest.mark.parametrize("cost", ["linear", "quadratic", "exponential"])
def test_no_other_reward_is_better(model, cost) -> None:
    accuracy = Accuracy(model, chance=0.2, ceiling=0.9, noise=0.3, sampling=2.0)
    values = np.random.default_rng(3).uniform(1, 5, 20)
    offer = best_reward(values, TRAINING, accuracy_value=50, accuracy=accuracy, cost=cost)
    assert offer.reward > 0
    for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2.0):
        other = equilibrium(values, reward=factor * offer.reward, cost=cost)
        precisions = TRAINING.precisions(other.budgets, other.participants)
        assert 50 * accuracy.of(precisions, 20) - other.reward < offer.utility


def test_the_closed_form_divides_by_what_sampling_leaves() -> None:
    """1/quality = 1 + s sum w^2 + H/R, so that R* = (sqrt(gain H) - H) / (1 + s sum w^2)."""
    accuracy = Accuracy("precision", sampling=3.0)
    offer = best_reward([1.0, 1.0], TRAINING, accuracy_value=50, accuracy=accuracy)
    h = TRAINING.noise_factor * offer.equilibrium.cutoff
    assert offer.method == "closed form"
    assert offer.reward == pytest.approx((np.sqrt(25 * h) - h) / 2.5, rel=1e-9)


def test_a_buyer_who_knows_a_distribution_alone_takes_sampling_into_account() -> None:
    offers = [
        best_reward(
            Uniform(1, 5), TRAINING, owners=20, draws=50, accuracy_value=50,
            accuracy=Accuracy("precision", sampling=s),
        )
        for s in (0.0, 3.0)
    ]  # fmt: skip
    assert offers[1].reward < offers[0].reward
    assert offers[1].accuracy < offers[0].accuracy


def observed(truth: Accuracy, counts) -> list[Observation]:
    rng = np.random.default_rng(0)
    return [
        Observation(y, 99, truth.of(y, 99))
        for count in counts
        for scale in np.geomspace(0.01, 100, 6)
        for y in [scale / count * truth.noise * rng.uniform(0.2, 2.0, size=count)]
    ]


@pytest.mark.parametrize("model", ["averaged", "precision"])
@pytest.mark.parametrize("sampling", [0.02, 1.7, 30.0])
def test_a_pilot_with_several_numbers_of_sellers_finds_the_sampling_variance(
    model, sampling
) -> None:
    truth = Accuracy(model, chance=0.1, ceiling=0.9, noise=0.04, sampling=sampling)
    fitted = calibrate(observed(truth, (5, 20, 90)), model=model)
    assert fitted.accuracy.sampling == pytest.approx(sampling, rel=1e-3)
    assert fitted.accuracy.noise == pytest.approx(0.04, rel=1e-3)
    assert fitted.largest_error < 1e-5


def test_a_pilot_with_one_number_of_sellers_cannot_tell_sampling_from_the_ceiling() -> None:
    truth = Accuracy("precision", chance=0.1, ceiling=0.9, noise=0.04, sampling=0.5)
    fitted = calibrate(observed(truth, (20,)))
    assert fitted.accuracy.sampling == 0
    assert fitted.accuracy.ceiling < 0.9


@pytest.mark.parametrize("model", ["paper", "population"])
def test_models_that_add_no_variances_refuse_sampling(model) -> None:
    with pytest.raises(InvalidInput, match=f"sampling needs .* found sampling 1 with '{model}'"):
        Accuracy(model, sampling=1.0)
    assert Accuracy("precision", sampling=1.0).by(model).sampling == 0


def test_a_negative_sampling_variance_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"sampling must be .* at least 0 .* found -1"):
        Accuracy("precision", sampling=-1.0)
