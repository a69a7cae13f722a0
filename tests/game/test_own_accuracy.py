"""Accuracy models and costs of the caller's own: used everywhere; a wrong one gets a sentence."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fedbourse import (
    ACCURACY_MODELS,
    Accuracy,
    InvalidCost,
    InvalidInput,
    Training,
    Uniform,
    best_reward,
    equilibrium,
    what_if,
)
from fedbourse.game.accuracy import QualityModel
from fedbourse.registry import Choice

TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
VALUES = [1.0, 1.1, 1.3, 2.0, 9.0]


class Precision:
    """Our ``precision``, written as a caller would."""

    def accuracy(self, precisions, owners):
        return 0.5 + 0.5 / (1 + 1 / precisions.sum()) if len(precisions) else 0.5


class Population:
    def accuracy(self, precisions, owners):
        noise = np.log1p(1 / precisions).sum() / owners
        return 0.5 + 0.5 * math.exp(-noise) if len(precisions) else 0.5


@dataclass
class Coverage:
    """Worth nothing until three owners take part: no formula of ours."""

    wanted: int = 3

    def accuracy(self, precisions, owners):
        return min(len(precisions) / self.wanted, 1.0) * (1 - math.exp(-precisions.sum()))


TERMS = [
    {},
    {"cost": "quadratic"},
    {"cost": "exponential"},
    {"entry_cost": 0.01},
    {"caps": 0.02},
]


@pytest.mark.parametrize("terms", TERMS, ids=str)
def test_our_model_written_as_an_own_one_has_the_same_best_reward(terms) -> None:
    own = best_reward(VALUES, TRAINING, accuracy_value=20, accuracy=Precision(), **terms)
    ours = best_reward(VALUES, TRAINING, accuracy_value=20, accuracy="precision", **terms)
    assert own.reward == pytest.approx(ours.reward, rel=1e-6)
    assert own.utility == pytest.approx(ours.utility, rel=1e-10)
    assert own.equilibrium.count == ours.equilibrium.count


def test_no_other_reward_is_better_by_an_own_model() -> None:
    offer = best_reward(VALUES, TRAINING, accuracy_value=20, accuracy=Coverage())
    for reward in np.geomspace(1e-3, 20, 300):
        result = equilibrium(VALUES, reward=float(reward))
        precisions = TRAINING.precisions(result.budgets, result.participants)
        assert 20 * Coverage().accuracy(precisions, 5) - reward <= offer.utility + 1e-9


def test_a_buyer_who_does_not_know_the_values_may_have_an_own_model() -> None:
    arguments = {"accuracy_value": 20, "owners": 20, "draws": 8, "seed": 3}
    own = best_reward(Uniform(1, 5), TRAINING, accuracy=Population(), **arguments)
    ours = best_reward(Uniform(1, 5), TRAINING, accuracy="population", **arguments)
    assert own.utility == pytest.approx(ours.utility, rel=1e-6)
    assert own.reward == pytest.approx(ours.reward, rel=1e-2)


def test_a_what_if_has_own_models_beside_ours() -> None:
    table = what_if(
        VALUES, TRAINING, rewards=[0.5, 1], accuracy_value=20, accuracy=["precision", Precision()]
    )
    assert table.accuracy["Precision"] == pytest.approx(table.accuracy["precision"])
    assert table.best["Precision"] == pytest.approx(table.best["precision"], rel=1e-6)


def test_an_own_model_sees_every_participant_of_a_large_game() -> None:
    class Counts:
        def accuracy(self, precisions, owners):
            return len(precisions) / owners

    offer = best_reward(np.full(10_000, 2.0), TRAINING, accuracy_value=20, accuracy=Counts())
    assert offer.accuracy == 1.0


def test_where_no_reward_pays_by_an_own_model_there_is_none() -> None:
    offer = best_reward(VALUES, TRAINING, accuracy_value=1e-9, accuracy=Precision())
    assert (offer.reward, offer.accuracy) == (0.0, 0.5)
    assert "no reward pays" in offer.reason


def model(function):
    """An object whose method ``accuracy`` is the function."""
    return type("Mine", (), {"accuracy": lambda self, precisions, owners: function(precisions)})()


class Subclass(Accuracy):
    """What a newcomer tries first: another formula in a kind of ``Accuracy``."""

    def quality(self, precisions, count, owners, multiplicities=None):
        return 0.9


class NoOwners:
    def accuracy(self, precisions):
        return 0.5


WRONG = {
    "a subclass": (Subclass(), "method accuracy.*not used as an Accuracy"),
    "a class": (Precision, "a class; give an object of it"),
    "a function": (lambda precisions, owners: 0.5, "an object with the method accuracy"),
    "a number": (0.9, "accuracy must be one of paper, .*; found 0.9"),
    "no such name": ("papier", "accuracy must be one of .* found 'papier'"),
    "no second argument": (NoOwners(), "fails for .*: TypeError: .*takes 2 positional"),
    "too much": (model(lambda p: 1.5), "one number from 0 to 1; .* it returned 1.5"),
    "not a number": (model(lambda p: math.nan), "it returned nan"),
    "nothing": (model(lambda p: None), "it returned None"),
    "a word": (model(lambda p: "high"), "it returned high"),
    "one each": (model(lambda p: 1 / (1 + p)), r"it returned an array of shape \(3,\)"),
    "a division by zero": (model(lambda p: 1 // 0), "ZeroDivisionError"),
    "a missing name": (model(lambda p: p.median()), "AttributeError"),
    "a write": (model(lambda p: p.sort()), "ValueError: .*read-only"),
    "empty": (model(lambda p: 1 - 1 / (1 + p[0])), "0 participants of 5 owners: IndexError"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_a_wrong_accuracy_model_gets_a_sentence(case) -> None:
    accuracy, words = WRONG[case]
    with pytest.raises(InvalidInput, match=words) as caught:
        best_reward(VALUES, TRAINING, accuracy_value=20, accuracy=accuracy)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInput):
        what_if(VALUES, TRAINING, rewards=[1], accuracy_value=20, accuracy=[accuracy, "paper"])


def test_a_registered_formula_that_returns_a_number_gets_a_sentence(monkeypatch) -> None:
    choices = dict(ACCURACY_MODELS._choices)
    monkeypatch.setattr(ACCURACY_MODELS, "_choices", choices)
    ACCURACY_MODELS.add(Choice("mine", "mine", "a number", QualityModel(lambda p: 0.5)))  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidInput, match="the accuracy model 'mine' must be a Quality"):
        best_reward(VALUES, TRAINING, accuracy_value=20, accuracy="mine")


class Quartic:
    def cost(self, values, budgets):
        return values * (budgets + budgets**4)

    def marginal(self, values, budgets):
        return values * (1 + 4 * budgets**3)


def wrong_cost(**methods):
    return type("Mine", (Quartic,), methods)()


WRONG_COSTS = {
    "a class": (Quartic, "an object with the methods cost and marginal"),
    "one method": (Precision(), "an object with the methods cost and marginal"),
    "no second argument": (wrong_cost(cost=lambda self, v: v), "must take and return arrays"),
    "a missing name": (
        wrong_cost(marginal=lambda self, v, r: v.derivative(r)),
        r"Mine.marginal must take and return arrays; it failed: AttributeError",
    ),
    "a division by zero": (wrong_cost(cost=lambda self, v, r: 1 // 0), "ZeroDivisionError"),
    "one number of many": (
        wrong_cost(marginal=lambda self, v, r: np.ones(7)),
        "must take and return arrays",
    ),
    "not a number": (wrong_cost(cost=lambda self, v, r: v * np.nan), "is not a number|never"),
    "below zero": (wrong_cost(cost=lambda self, v, r: -v * r), "never reaches|must be above 0"),
}


@pytest.mark.parametrize("case", list(WRONG_COSTS))
def test_a_wrong_cost_gets_a_sentence(case) -> None:
    cost, words = WRONG_COSTS[case]
    with pytest.raises(InvalidCost, match=words) as caught:
        best_reward(VALUES, TRAINING, accuracy_value=20, cost=cost)
    assert "\n" not in str(caught.value)
