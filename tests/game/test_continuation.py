"""Equilibria of a caller's cost at one reward after another: the same as each by itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import ACCURACY_MODELS, Training, best_reward
from fedbourse.game import continuation
from fedbourse.game.continuation import Continuation
from fedbourse.game.game import Game, equilibrium_budgets

TRAINING = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
VALUES = np.random.default_rng(1).uniform(1, 5, 40)


class Linear:
    def cost(self, values, budgets):
        return values * budgets

    def marginal(self, values, budgets):
        return values + 0 * budgets


class Root:
    """Steep at the first unit of budget, where lines lead far away: v r^1.2."""

    def cost(self, values, budgets):
        return values * budgets**1.2

    def marginal(self, values, budgets):
        return 1.2 * values * budgets**0.2


class Quadratic:
    def cost(self, values, budgets):
        return values * budgets**2

    def marginal(self, values, budgets):
        return 2 * values * budgets


class Cubic:
    def cost(self, values, budgets):
        return values * (budgets + budgets**3)

    def marginal(self, values, budgets):
        return values * (1 + 3 * budgets**2)


class Exponential:
    def cost(self, values, budgets):
        return np.expm1(values * budgets)

    def marginal(self, values, budgets):
        return values * np.exp(values * budgets)


@pytest.mark.parametrize("cost", [Linear(), Root(), Quadratic(), Cubic(), Exponential()])
@given(
    values=st.lists(st.floats(0.01, 100.0), min_size=2, max_size=12),
    rewards=st.lists(st.floats(1e-3, 1e4), min_size=2, max_size=6),
    cap=st.one_of(st.just(math.inf), st.floats(1e-3, 10.0)),
)
@examples(12)
def test_rewards_in_any_order_give_each_its_own_equilibrium(cost, values, rewards, cap) -> None:
    follower = Continuation(Game.of(values, reward=1.0, cost=cost, caps=cap))
    for reward in rewards:
        game = Game.of(values, reward=reward, cost=cost, caps=cap)
        alone = equilibrium_budgets(game)
        close = pytest.approx(alone, rel=1e-8, abs=1e-11 * float(alone.sum()))
        assert follower.budgets(reward) == close


def test_lines_too_steep_to_lead_anywhere_are_no_equilibrium() -> None:
    """Far above the last reward an exponential's slopes are so steep that nobody moves on them."""
    game = Game.of([1.0, 1.0], reward=1.0, cost=Exponential())
    follower = Continuation(game)
    for reward in (0.5, 5937.0):
        alone = equilibrium_budgets(Game.of([1.0, 1.0], reward=reward, cost=Exponential()))
        assert follower.budgets(reward) == pytest.approx(alone, rel=1e-8)


@pytest.mark.parametrize("model", ACCURACY_MODELS)
@pytest.mark.parametrize(("cost", "name"), [(Quadratic(), "quadratic"), (Linear(), "linear")])
def test_a_built_in_cost_written_as_an_own_one_has_the_same_best_reward(cost, name, model) -> None:
    own = best_reward(VALUES, TRAINING, accuracy_value=20, accuracy=model, cost=cost)
    built_in = best_reward(VALUES, TRAINING, accuracy_value=20, accuracy=model, cost=name)
    assert own.reward == pytest.approx(built_in.reward, rel=1e-8)
    assert own.utility == pytest.approx(built_in.utility, rel=1e-13)


class Counting(Quadratic):
    """Counts how often the solver asks."""

    calls = 0

    def marginal(self, values, budgets):
        Counting.calls += 1
        return super().marginal(values, budgets)


def calls_of_a_best_reward() -> int:
    Counting.calls = 0
    best_reward(VALUES, TRAINING, accuracy_value=20, cost=Counting())
    return Counting.calls


def test_a_best_reward_asks_for_few_marginal_costs(monkeypatch) -> None:
    # Solving each of its 350 games from nothing asks a thousand times a game.
    assert calls_of_a_best_reward() < 8000


@pytest.mark.faults
def test_without_continuation_the_calls_would_be_caught(monkeypatch) -> None:
    monkeypatch.setattr(continuation, "_STEPS", 0)  # planted: every game from nothing
    monkeypatch.setattr("fedbourse.game.reward.search.GRID", 8)
    assert calls_of_a_best_reward() > 8000
