"""The study of unknown values: regret falls for who learns, and what holding back brings."""

import math

import numpy as np
import pytest

from fedbourse import Uniform, equilibrium
from fedbourse.game.draws import linear_draws
from fedbourse.study import unknown_values as study
from fedbourse.study.ratchet import (
    ALL_TASKS,
    LATEST,
    _announced,
    _compare,
    _Play,
    run_ratchet_study,
)
from fedbourse.study.unknown_values import (
    ESTIMATE,
    GUESSING,
    SELLERS,
    ExpectedUtility,
    bounds_of,
    run_regret_study,
)


@pytest.fixture(scope="module")
def rows():
    rows = run_regret_study(owners=40, tasks=8, repeats=4, seed=1)
    return {(row.values, row.method, row.task): row for row in rows}


def test_the_best_of_all_rewards_has_no_regret() -> None:
    expected = ExpectedUtility.of(Uniform(1, 5), owners=30, seed=0)
    around = [expected.at(expected.best * factor) for factor in (0.5, 0.99, 1.0, 1.01, 2.0)]
    assert max(around) == around[2]
    assert expected.at(0.0) == 10.0  # a guess


def test_bounds_are_what_the_market_sees() -> None:
    values = np.random.default_rng(0).uniform(1, 5, (3, 20))
    lows, highs = bounds_of(values)
    for row, low, high in zip(values, lows, highs, strict=True):
        settled = equilibrium(row, reward=2.0)
        sellers = np.isin(np.arange(20), settled.participants)
        assert (low[sellers] == high[sellers]).all()
        assert (low[sellers] == row[sellers]).all()
        assert low[~sellers] == pytest.approx(2.0 / settled.total_budget)
        assert (highs[highs != lows] == math.inf).all()


def test_who_learns_from_all_replies_loses_less_and_less(rows) -> None:
    for name in study.true_distributions():
        first, last = rows[name, ESTIMATE, 1], rows[name, ESTIMATE, 8]
        guessing = rows[name, GUESSING, 8]
        assert first.regret.value == guessing.regret.value
        assert min(row.regret.value for row in rows.values()) >= 0
        if name.endswith("(as guessed)"):
            assert guessing.regret.value < 1e-3
        else:
            assert last.regret.value < 0.1 * guessing.regret.value
            assert last.total_regret.value < 0.3 * guessing.total_regret.value
        assert last.regret.value < rows[name, SELLERS, 8].regret.value


def test_totals_are_sums_over_tasks(rows) -> None:
    name = "uniform, 5 to 25"
    single = [rows[name, ESTIMATE, task].regret.value for task in range(1, 9)]
    assert rows[name, ESTIMATE, 8].total_regret.value == pytest.approx(sum(single))


def test_the_parts_of_a_groups_gain_are_what_a_play_gives() -> None:
    true = np.sort(np.random.default_rng(2).uniform(1, 5, 12))
    honest, dear = _Play.of(true, 4, 1.0), _Play.of(true, 4, 1.5)
    truthful, rewards = np.full(5, 2.0), np.array([2.0, 2.5, 2.5, 2.2, 2.1])
    acting, ratchet, gain, buyer = _compare(honest, dear, 2, truthful, rewards)

    def utility(values, reward) -> float:
        played = equilibrium(values, reward=reward)
        budgets = played.dense()
        pays = reward * budgets / budgets.sum()
        return float((pays - true * budgets)[:4].sum())

    acted = np.concatenate([1.5 * true[:4], true[4:]])
    before = sum(utility(true, reward) for reward in truthful)
    after = sum(utility(acted if k < 2 else true, reward) for k, reward in enumerate(rewards))
    assert gain == pytest.approx(after / before - 1)
    assert acting + ratchet == pytest.approx(gain)
    fixed = sum(utility(acted if k < 2 else true, reward) for k, reward in enumerate(truthful))
    assert acting == pytest.approx(fixed / before - 1)
    assert buyer > 0
    assert linear_draws(acted[None]).cutoffs[0] > linear_draws(true[None]).cutoffs[0]


def test_a_buyer_who_learns_pays_more_after_dear_tasks() -> None:
    true = np.sort(np.random.default_rng(2).uniform(1, 5, 30))
    honest, dear = _Play.of(true, 30, 1.0), _Play.of(true, 30, 3.0)
    play = {"early": 3, "tasks": 8, "first": 0.4}
    truthful = _announced(honest, honest, LATEST, **play)
    latest = _announced(honest, dear, LATEST, **play)
    pooled = _announced(honest, dear, ALL_TASKS, **play)
    assert len(truthful) == len(latest) == len(pooled) == 8
    assert (latest[1:4] > truthful[1:4]).all()
    assert latest[4:] == pytest.approx(truthful[4:])  # the latest replies are true again
    assert (pooled[4:] > truthful[4:]).all()
    assert (np.diff(pooled[4:]) < 0).all()


def test_one_owner_loses_by_holding_back_and_all_together_gain() -> None:
    rows = {
        (row.memory, row.group, row.factor, row.early): row
        for row in run_ratchet_study(owners=40, tasks=8, repeats=3)
    }
    for memory in (ALL_TASKS, LATEST):
        assert rows[memory, 1, 3.0, 1].gain.value < 0
        assert rows[memory, 40, 3.0, 5].acting.value > 0
        assert rows[memory, 40, 3.0, 5].ratchet.value > 0
    pooled, latest = (rows[memory, 40, 3.0, 1].ratchet.value for memory in (ALL_TASKS, LATEST))
    assert pooled > latest > 0
