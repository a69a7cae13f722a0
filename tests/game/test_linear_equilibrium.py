"""The linear game: exact, strict at ties, whatever the values."""

import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse import InvalidGame, NoEquilibrium, ParticipantSketch, equilibrium, regret, tolerance
from fedbourse.game.profile import linear_equilibrium
from fedbourse.testing.oracles import COSTS, algorithm_2, brute_force_regret, exact_shares
from strategies import all_values, near_ties, plain_values, rewards


def test_the_tied_owner_of_the_oracle_stays_out() -> None:
    result = equilibrium([1, 1, 2], reward=8)
    assert result.participants.tolist() == [0, 1]
    assert result.cutoff == 2.0
    assert result.dense().tolist() == [2.0, 2.0, 0.0]
    assert result.payments.tolist() == [4.0, 4.0]
    assert result.utilities.tolist() == [2.0, 2.0]


def test_a_value_far_above_the_other_still_competes() -> None:
    result = equilibrium([1.0, 1e17], reward=1.0)
    assert result.participants.tolist() == [0, 1]
    assert result.payments[1] == pytest.approx(1e-17, rel=1e-15)


@given(all_values)
def test_who_takes_part_is_decided_as_in_exact_arithmetic(values: list[float]) -> None:
    result = equilibrium(values, reward=1.0)
    expected = [i for i, share in enumerate(exact_shares(values)) if share > 0]
    assert result.participants.tolist() == expected


@given(near_ties())
def test_a_last_digit_decides_as_in_exact_arithmetic(values: list[float]) -> None:
    expected = [i for i, share in enumerate(exact_shares(values)) if share > 0]
    assert equilibrium(values, reward=1.0).participants.tolist() == expected


@given(st.one_of(all_values, near_ties()))
def test_shares_are_right_to_the_last_digits(values: list[float]) -> None:
    result = equilibrium(values, reward=1.0)
    shares = exact_shares(values)
    for i, pay in zip(result.participants, result.payments, strict=True):
        assert abs(Fraction(float(pay)) / shares[i] - 1) < Fraction(2, 10**13)


@pytest.mark.parametrize("seed", range(40))
def test_the_last_participant_keeps_its_digits(seed: int) -> None:
    # Some twenty owners around 1, and one at their cutoff: its share is a few last digits of
    # sums of numbers on both sides of a power of two.
    base = np.random.default_rng(seed).uniform(0.97, 1.03, 20).tolist()
    inside = [v for v, share in zip(base, exact_shares(base), strict=True) if share > 0]
    tie = float(sum(map(Fraction, inside)) / (len(inside) - 1))
    values = [*base, math.nextafter(tie, 0.0)]
    shares = exact_shares(values)
    result = equilibrium(values, reward=1.0)
    assert result.participants.tolist() == [i for i, share in enumerate(shares) if share > 0]
    for i, pay in zip(result.participants, result.payments, strict=True):
        assert abs(Fraction(float(pay)) / shares[i] - 1) < Fraction(2, 10**13)


@given(all_values, rewards)
def test_no_owner_gains_by_deviating(values: list[float], reward: float) -> None:
    result = equilibrium(values, reward=reward)
    bound = tolerance(reward, len(result.participants))
    assert result.regret <= bound
    assert regret(values, result.dense(), reward=reward) <= bound
    assert math.isclose(result.payments.sum(), reward, rel_tol=1e-12)
    assert math.isclose(result.budgets.sum(), result.total_budget, rel_tol=1e-12)


@given(plain_values.filter(lambda v: len(v) <= 12), rewards)
def test_brute_force_finds_no_better_budget(values: list[float], reward: float) -> None:
    budgets = equilibrium(values, reward=reward).dense().tolist()
    assert brute_force_regret(values, budgets, reward, COSTS["linear"]) <= 1e-12 * reward


@given(plain_values, rewards)
def test_agrees_with_algorithm_2_of_the_paper(values: list[float], reward: float) -> None:
    # Algorithm 2 decides by rounded sums, so near a tie it may let one owner more in, or less.
    budgets = equilibrium(values, reward=reward).dense()
    assert budgets == pytest.approx(algorithm_2(values, reward), rel=1e-9, abs=1e-12 * reward)


@given(all_values, st.randoms())
def test_the_order_of_owners_does_not_matter(values: list[float], random) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    budgets = equilibrium(values, reward=1.0).dense()
    shuffled = equilibrium([values[i] for i in order], reward=1.0).dense()
    assert shuffled == pytest.approx(budgets[order], rel=1e-13, abs=0)


@given(all_values, st.one_of(st.floats(1e-150, 1e150)))
def test_adding_an_owner_never_raises_the_cutoff(values: list[float], value: float) -> None:
    before = equilibrium(values, reward=1.0).cutoff
    after = equilibrium([*values, value], reward=1.0).cutoff
    assert before is not None
    assert after is not None
    assert after <= before * (1 + 1e-15)


@given(plain_values, rewards)
def test_budgets_are_proportional_to_the_reward(values: list[float], reward: float) -> None:
    one, many = equilibrium(values, reward=1.0), equilibrium(values, reward=reward)
    assert many.dense() == pytest.approx(one.dense() * reward, rel=1e-14, abs=0)
    assert many.cutoff == one.cutoff


@pytest.mark.slow
def test_everybody_takes_part_where_all_are_equal() -> None:
    n = 300_000
    result = equilibrium(np.full(n, 3.0), reward=6.0)
    assert len(result.participants) == n
    assert result.regret <= tolerance(6.0, n)
    assert result.payments == pytest.approx(np.full(n, 6.0 / n), rel=1e-12)


def test_an_outsider_who_would_gain_spoils_the_certificate() -> None:
    sketch = ParticipantSketch()
    sketch.add([1.0, 1.2, 9.0])
    result = sketch.participants()
    assert result.cheapest_outsider == 9.0
    assert linear_equilibrium(result, reward=1.0).regret < 1e-20
    planted = replace(result, cheapest_outsider=result.cutoff.tau * 0.9)
    with pytest.raises(NoEquilibrium, match="would gain"):
        linear_equilibrium(planted, reward=1.0).certify()


def test_the_tolerance_is_a_billionth_of_the_reward_over_the_participants_squared() -> None:
    assert tolerance(5.0, 1000) == pytest.approx(5e-15)


def test_the_tolerance_notices_a_tenth_of_the_owners_missing() -> None:
    # Plain 1e-9 R would pass this profile.
    n, reward = 100_000, 1.0
    silent = equilibrium(np.ones(n - n // 10), reward=reward)
    budgets = np.concatenate([silent.budgets, np.zeros(n // 10)])
    result = regret(np.ones(n), budgets, reward=reward)
    assert result < 1e-9 * reward
    assert result > tolerance(reward, len(silent.participants))


def test_an_equilibrium_cannot_be_written_to_and_survives_pickling() -> None:
    result = equilibrium([1.0, 2.0, 2.5], reward=1.0)
    with pytest.raises(ValueError, match="read-only"):
        result.budgets[0] = 1.0
    with pytest.raises(AttributeError):
        result.reward = 2.0  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(equilibrium([1.0, 2.0, 2.5], reward=1.0)))
    assert again.budgets.tolist() == result.budgets.tolist()


def test_an_equilibrium_does_not_change_with_the_array_it_came_from() -> None:
    values = np.full(1000, 2.0)
    result = equilibrium(values, reward=1.0)
    values[:] = np.nan
    assert result.payments == pytest.approx(np.full(1000, 1e-3))


@pytest.mark.parametrize(
    ("values", "reward", "words"),
    [
        ([1e300] * 2, 1e-300, "beyond what a float can hold"),
        ([1e-300] * 2, 1e300, "beyond what a float can hold"),
        ([1.7e308] * 3, 1.0, "beyond what a float can hold"),
        ([5e305, 6e305, 7e305, 5.5e305], 8e-15, "beyond what a float can hold"),
    ],
)
def test_budgets_that_no_float_can_hold_are_an_error(values, reward, words) -> None:
    with pytest.raises(InvalidGame, match=words):
        equilibrium(values, reward=reward)


def test_shares_that_no_float_can_hold_are_an_error() -> None:
    with pytest.raises(InvalidGame, match="too far apart"):
        equilibrium([1e-250, 1e250], reward=1.0)


@pytest.mark.parametrize("reward", [0, -1, math.nan, math.inf, "2", None, True])
def test_a_reward_must_be_a_number_above_0(reward) -> None:
    with pytest.raises(InvalidGame, match=r"reward must be .*; found"):
        equilibrium([1, 2], reward=reward)


def test_pay_for_information_is_the_same_game_in_other_units() -> None:
    values, samples = np.array([1.0, 2.0, 3.0, 8.0]), np.array([10.0, 20.0, 30.0, 40.0])
    paid = equilibrium(values, reward=5.0, samples=samples, pay_for="information")
    information = samples[paid.participants] ** 2 * paid.budgets
    assert paid.payments == pytest.approx(5.0 * information / information.sum())
    # Each is still at its best: utility R x / X - (v / m^2) x.
    units = equilibrium(values / samples**2, reward=5.0)
    assert information == pytest.approx(units.budgets)
    assert paid.regret <= tolerance(5.0, len(paid.participants))
    terms = {"reward": 5.0, "samples": samples, "pay_for": "information"}
    assert regret(values, paid.dense(), **terms) <= tolerance(5.0, len(paid.participants))
    assert regret(values, paid.dense() * [1, 1.1, 1, 1], **terms) > 1e-4
    with pytest.raises(InvalidGame, match=r"budgets\[1\] must be at most its cap 0.1; found"):
        regret(values, paid.dense(), **terms, caps=[9, 0.1, 9, 9])


def test_pay_for_information_of_equal_records_is_pay_for_budget() -> None:
    values = [1.0, 1.3, 1.9, 4.0]
    for cost in ("linear", "quadratic", "exponential"):
        plain = equilibrium(values, reward=3.0, cost=cost)
        paid = equilibrium(values, reward=3.0, cost=cost, samples=7.0, pay_for="information")
        assert paid.payments == pytest.approx(plain.payments, rel=1e-9) or cost == "exponential"
        assert paid.dense() == pytest.approx(plain.dense(), rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pay_for": "love"}, "pay_for must be 'budget' or 'information'; found 'love'"),
        ({"pay_for": "information", "samples": [1, 0]}, r"samples\[1\] must be above 0"),
        ({"pay_for": "information", "samples": [1]}, "one number for each of 2 owners; found 1"),
    ],
)
def test_bad_pay_is_refused(arguments, words) -> None:
    with pytest.raises(InvalidGame, match=words):
        equilibrium([1, 2], reward=1, **arguments)
