"""Entry costs: an equilibrium with its certificate, or a reason why there is none."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import NoEquilibrium, equilibrium, regret, tolerance
from fedbourse.testing.oracles import COSTS, brute_force_regret


def test_no_entry_cost_is_the_plain_game() -> None:
    values = [1.0, 1.2, 1.4, 9.0]
    for cost in ("linear", "quadratic", "exponential"):
        free = equilibrium(values, reward=10.0, cost=cost)
        nothing = equilibrium(values, reward=10.0, cost=cost, entry_cost=[0.0] * 4)
        assert nothing.dense() == pytest.approx(free.dense(), rel=1e-12, abs=1e-15)


def test_the_pair_that_cannot_both_earn_its_entry_has_no_equilibrium() -> None:
    with pytest.raises(NoEquilibrium, match=r"cannot both earn the entry cost 0\.09"):
        equilibrium([0.1, 1.0], reward=1.0, entry_cost=0.09)


def test_an_equilibrium_may_exist_without_the_cheapest() -> None:
    result = equilibrium([0.7, 1.0, 1.0], reward=1.0, entry_cost=0.2025)
    assert result.participants.tolist() == [1, 2]
    assert brute_force_regret(
        [0.7, 1.0, 1.0], result.dense().tolist(), 1.0, COSTS["linear"], entry=0.2025
    ) == pytest.approx(0, abs=1e-12)


def test_a_misfit_is_skipped_and_the_next_owner_still_comes_in() -> None:
    values, entry = [1.15, 1.08, 1.34, 1.94, 1.67], [0.185, 0.041, 0.104, 0.038, 0.032]
    result = equilibrium(values, reward=1.0, entry_cost=entry)
    assert result.participants.tolist() == [1, 2, 4]
    assert (result.utilities > 0).all()


def test_a_convex_game_without_equilibrium_says_so() -> None:
    with pytest.raises(NoEquilibrium, match="3 of 3 starting pairs tried"):
        equilibrium([0.15, 0.55, 1.07], reward=84.0, cost="exponential", entry_cost=2.9)


def test_nobody_takes_part_where_entry_costs_the_whole_reward() -> None:
    result = equilibrium([1.0, 2.0], reward=1.0, entry_cost=1.0)
    assert len(result.participants) == 0
    assert result.total_budget == result.regret == 0
    with pytest.raises(NoEquilibrium, match="only owner 1 could profit"):
        equilibrium([1.0, 2.0], reward=1.0, entry_cost=[2.0, 0.1])


def test_entry_costs_that_eat_up_the_reward_leave_no_equilibrium() -> None:
    with pytest.raises(NoEquilibrium, match="two lowest entry costs alone use up the reward 1"):
        equilibrium([1.0, 1.0, 1.0], reward=1.0, entry_cost=[0.4, 0.6, 0.7])
    assert equilibrium([1.0, 1.0], reward=1.0, entry_cost=0.2).cutoff is None


def test_the_papers_exponential_cost_needs_a_reward_above_2_sqrt_e() -> None:
    limit = 2 * math.sqrt(math.e)
    assert len(equilibrium([1, 1], reward=1.0, cost="paper-exponential").participants) == 0
    with pytest.raises(NoEquilibrium, match=r"2 sqrt\(e\)"):
        equilibrium([1, 1], reward=limit * 0.999, cost="paper-exponential")
    result = equilibrium([1, 1], reward=limit * 1.001, cost="paper-exponential")
    assert len(result.participants) == 2
    assert (result.utilities >= 0).all()


@pytest.mark.parametrize(("reward", "fewest", "most"), [(10.0, 4, 4), (100.0, 30, 35)])
def test_the_papers_exponential_cost_at_its_own_scale(reward, fewest, most) -> None:
    for seed in range(3):
        values = np.random.default_rng(seed).uniform(1, 5, 1000)
        result = equilibrium(values, reward=reward, cost="paper-exponential")
        assert fewest <= len(result.participants) <= most
        assert result.regret <= tolerance(reward, len(result.participants))


@given(
    values=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=12),
    entry=st.lists(st.floats(0.0, 0.6), min_size=12, max_size=12),
    equal=st.booleans(),
    cost=st.sampled_from(["linear", "quadratic", "exponential"]),
)
@examples(150)
def test_either_a_certificate_or_a_reason(values, entry, equal, cost) -> None:
    costs = [entry[0]] * len(values) if equal else entry[: len(values)]
    try:
        result = equilibrium(values, reward=1.0, cost=cost, entry_cost=costs)
    except NoEquilibrium:
        return
    assert result.regret <= tolerance(1.0, len(result.participants))
    assert regret(values, result.dense(), reward=1.0, cost=cost, entry_cost=costs) <= tolerance(
        1.0, len(result.participants)
    )
    assert (result.utilities >= -1e-12).all()


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=10), st.floats(0.001, 0.14))
@examples(100)
def test_linear_games_with_a_fitting_pair_always_have_an_equilibrium(values, entry) -> None:
    kappa = math.sqrt(entry)
    first, second = sorted(values)[:2]
    if second / (1 - kappa) > (first + second) * (1 - 1e-9):
        with pytest.raises(NoEquilibrium):
            equilibrium(values, reward=1.0, entry_cost=entry)
    else:
        result = equilibrium(values, reward=1.0, entry_cost=entry)
        assert len(result.participants) >= 2


def test_with_many_owners_the_cheapest_take_part() -> None:
    values = np.random.default_rng(1).uniform(1, 5, 20_000)
    result = equilibrium(values, reward=1.0, entry_cost=1e-4)
    highest = values[result.participants].max()
    assert len(result.participants) == np.count_nonzero(values <= highest)
    assert 10 < len(result.participants) < len(equilibrium(values, reward=1.0).participants)
