"""One look at the owners serves every reward and every accuracy model."""

import numpy as np
import pytest

from fedbourse import (
    ACCURACY_MODELS,
    Accuracy,
    InvalidGame,
    ParticipantSketch,
    Training,
    best_reward,
    equilibrium,
    what_if,
)
from fedbourse.game import quadrature
from game.test_stream import Counted

TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
REWARDS = np.geomspace(0.01, 30, 25)


def games() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "few": np.array([1.0, 2.0, 3.0]),
        "uniform": rng.uniform(1, 5, 10_000),
        "all equal": np.full(20_000, 1.3),
        "half": 1 + rng.uniform(0, 4 / 20_000, 20_000),
        "many of high value": np.append(1 + rng.uniform(0, 2 / 30_000, 30_000), 0.2),
    }


@pytest.mark.slow
@pytest.mark.parametrize("game", list(games()))
@pytest.mark.parametrize("cost", ["linear", "quadratic"])
def test_it_says_what_each_equilibrium_would(game: str, cost: str) -> None:
    values = games()[game]
    outcome = what_if(values, TRAINING, rewards=REWARDS, accuracy_value=20.0, cost=cost)
    assert outcome.owners == len(values)
    for i in (0, 11, 24):
        here = equilibrium(values, reward=REWARDS[i], cost=cost)
        assert outcome.participants == here.count
        assert outcome.total_budgets[i] == pytest.approx(here.total_budget, rel=1e-12)
        precisions = TRAINING.precisions(here.budgets, here.participants)
        for model in ACCURACY_MODELS:
            due = Accuracy(model).of(precisions, here.owners)
            assert outcome.accuracy[model][i] == pytest.approx(due, rel=1e-12)
            assert outcome.utility[model][i] == pytest.approx(20 * due - REWARDS[i], abs=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("game", ["few", "uniform", "half"])
@pytest.mark.parametrize("model", ACCURACY_MODELS)
def test_the_best_reward_is_that_of_best_reward(game: str, model: str) -> None:
    values = games()[game]
    outcome = what_if(values, TRAINING, rewards=REWARDS, accuracy_value=20.0)
    offer = best_reward(values, TRAINING, accuracy_value=20.0, accuracy=model)
    assert outcome.best[model] == pytest.approx((offer.reward, offer.utility), rel=1e-9)
    assert outcome.best[model][1] >= outcome.utility[model].max()


def test_no_reward_that_pays_is_a_best_of_none() -> None:
    outcome = what_if(
        [1, 2, 3], TRAINING, rewards=[1.0], accuracy_value=1e-3, accuracy=["precision"]
    )
    assert outcome.best == {"precision": (0.0, 0.5e-3)}


def test_a_hundred_rewards_take_one_reading() -> None:
    values = games()["uniform"]
    source = Counted(np.array_split(values, 9))
    outcome = what_if(source, TRAINING, rewards=np.linspace(0.1, 10, 100), accuracy_value=20.0)
    assert source.readings == 1
    here = what_if(values, TRAINING, rewards=np.linspace(0.1, 10, 100), accuracy_value=20.0)
    assert outcome.accuracy["paper"] == pytest.approx(here.accuracy["paper"], rel=1e-13)


def test_a_support_serves_as_well() -> None:
    sketch = ParticipantSketch()
    sketch.add(games()["uniform"])
    assert (
        what_if(sketch, TRAINING, rewards=[1.0], accuracy_value=20.0).participants
        == sketch.result(1).count
    )


def test_few_points_stand_for_many_budgets() -> None:
    outcome = equilibrium(games()["half"], reward=1.0)
    budgets, owners = quadrature.budget_quadrature(outcome)
    assert owners.sum() == outcome.count
    assert budgets @ owners == pytest.approx(outcome.total_budget, rel=1e-13)
    for power in (-1, 0.5, 2):
        due = (outcome.budgets**power).sum()
        assert (budgets**power) @ owners == pytest.approx(due, rel=1e-11)
    big = equilibrium(np.full(10**6, 2.0), reward=1.0)
    assert len(quadrature.budget_quadrature(big)[0]) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rewards": [0.0, 1.0]}, r"rewards\[0\] must be a finite number above 0; found 0"),
        ({"rewards": [1.0], "cost": "exponential"}, "a linear or a quadratic cost.* exponential"),
        ({"rewards": [1.0], "accuracy": []}, "at least one model; found none"),
        ({"rewards": 3.0}, "rewards must be a list"),
    ],
)
def test_what_cannot_be_asked_is_refused(options, words) -> None:
    with pytest.raises(InvalidGame, match=words):
        what_if([1, 2, 3], TRAINING, accuracy_value=20.0, **options)


def test_budgets_too_small_for_a_bin_are_counted_as_well(monkeypatch) -> None:
    monkeypatch.setattr(quadrature, "FEW", 10)
    outcome = equilibrium(np.geomspace(1.0, 1e60, 40), reward=1.0, cost="quadratic")
    assert outcome.count == 40
    assert outcome.budgets.min() < outcome.budgets.max() * 2.0**-70
    budgets, counts = quadrature.budget_quadrature(outcome)
    assert counts.sum() == 40
    assert budgets.min() == outcome.budgets.min()
    assert budgets @ counts == pytest.approx(outcome.total_budget, rel=1e-12)
