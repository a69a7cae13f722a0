"""Plans become payments that sum to the reward, to the last micro-credit."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.errors import InvalidGame, InvalidInput
from fedbourse.game.mechanisms import pay_proportionally, proportional, settlement
from fedbourse.market.settlement import shares_at
from fedbourse.protocol.messages import earned

budgets = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-300, 1e300)), min_size=1, max_size=30
).filter(any)


@given(budgets, st.integers(1, 2**53 - 1))
def test_payments_sum_to_the_reward_and_are_within_one_of_their_share(plans, reward) -> None:
    payments = pay_proportionally(plans, reward=reward)
    assert sum(payments.tolist()) == reward
    total = sum(map(Fraction, plans))
    for plan, payment in zip(plans, payments.tolist(), strict=True):
        assert abs(payment - reward * Fraction(plan) / total) < 1
        assert plan or not payment


@given(budgets, st.integers(1, 10**9), st.randoms())
def test_equal_plans_differ_by_one_at_most_and_larger_plans_earn_no_less(
    plans, reward, random
) -> None:
    plans = plans + random.choices(plans, k=3)
    payments = pay_proportionally(plans, reward=reward).tolist()
    for (a, pay_a), (b, pay_b) in zip(
        sorted(zip(plans, payments, strict=True)),
        sorted(zip(plans, payments, strict=True))[1:],
        strict=False,
    ):
        assert pay_a <= pay_b + (a == b)


def largest_remainders(plans, reward):
    """The definition, with fractions, everything in memory."""
    total = sum(map(Fraction, plans))
    exact = [reward * Fraction(plan) / total for plan in plans]
    payments = [share.numerator // share.denominator for share in exact]
    by_rest = sorted(range(len(plans)), key=lambda i: (payments[i] - exact[i], i))
    for i in by_rest[: reward - sum(payments)]:
        payments[i] += 1
    return payments


def streamed(plans, reward, size):
    """Payments of plans that come in chunks."""
    chunks = [np.array(plans[i : i + size]) for i in range(0, len(plans), size)]
    pay = proportional(lambda: iter(chunks), reward)
    return [payment for chunk in chunks for payment in pay(chunk)]


few_budgets = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.7, 5e-324, 1e300]), min_size=1).filter(any)


@given(st.one_of(budgets, few_budgets), st.integers(1, 2**53 - 1), st.integers(1, 9))
def test_in_chunks_each_payment_is_that_of_the_definition(plans, reward, size) -> None:
    assert streamed(plans, reward, size) == largest_remainders(plans, reward)
    assert pay_proportionally(plans, reward=reward).tolist() == largest_remainders(plans, reward)


@pytest.mark.parametrize("distinct", [0, 1, 5, 40])
@given(st.one_of(budgets, few_budgets), st.integers(1, 10**6), st.integers(1, 9))
def test_where_remainders_are_too_many_to_tell_apart_more_readings_do(
    distinct, plans, reward, size
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settlement, "_DISTINCT", distinct)
        patch.setattr(settlement, "_PREFIX_BITS", 3)
        assert streamed(plans, reward, size) == largest_remainders(plans, reward)


@pytest.mark.slow
def test_many_remainders_that_begin_alike_are_told_apart() -> None:
    plans = 0.5 + np.arange(40_000) * 2.0**-53
    assert streamed(plans, 10**9 + 7, 9_999) == largest_remainders(plans.tolist(), 10**9 + 7)


def test_a_tie_that_went_to_another_owner_would_be_seen(monkeypatch) -> None:
    plans, cut = [0.1] * 7, settlement._cut
    assert streamed(plans, 10, 2) == [2, 2, 2, 1, 1, 1, 1]
    monkeypatch.setattr(settlement, "_cut", lambda *of: (cut(*of)[0], cut(*of)[1] - 1))
    assert streamed(plans, 10, 2) != largest_remainders(plans, 10)


def test_a_plan_in_a_later_chunk_that_is_no_number_is_named_by_its_place() -> None:
    with pytest.raises(InvalidGame, match=r"plans\[3\] must be a finite number of at least 0"):
        streamed([1.0, 2.0, 3.0, float("inf")], 5, 2)


@given(st.lists(st.floats(0, 1e100), max_size=30), st.floats(1e-9, 1e9), st.integers(1, 9))
def test_shares_are_summed_as_if_all_were_there_at_once(plans, total, size) -> None:
    chunks = [np.array(plans[i : i + size]) for i in range(0, len(plans), size)]
    sold = [plan / total for plan in plans if plan]
    assert shares_at(total, chunks) == (len(sold), math.fsum(sold))


@pytest.mark.slow
def test_a_million_plans_settle_exactly() -> None:
    plans = np.random.default_rng(0).random(10**6)
    payments = pay_proportionally(plans, reward=10**12 + 7)
    assert payments.sum() == 10**12 + 7


@given(st.integers(0, 10**12), st.integers(1, 500))
def test_vesting_ends_at_the_whole_payment_and_never_runs_ahead(payment, rounds) -> None:
    steps = [earned(payment, delivered=k, rounds=rounds) for k in range(rounds + 1)]
    assert steps[0] == 0
    assert steps[-1] == payment
    assert all(a <= b for a, b in itertools.pairwise(steps))
    assert all(step * rounds <= payment * k for k, step in enumerate(steps))


@pytest.mark.parametrize(
    ("plans", "reward", "sentence"),
    [
        ([0.0, 0.0], 5, "at least one plan above 0"),
        ([1.0, -1.0], 5, r"plans\[1\] must be"),
        ([1.0, float("nan")], 5, r"plans\[1\] must be"),
        ([1.0], 0, "reward must be"),
        ([1.0], 0.5, "reward must be"),
        ([1.0], 2**53, "at most 9007199254.740991 credits"),
    ],
)
def test_what_cannot_be_settled_is_refused(plans, reward, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        pay_proportionally(plans, reward=reward)


def test_no_plans_at_all_are_refused() -> None:
    with pytest.raises(InvalidGame):
        pay_proportionally([], reward=5)


def test_vesting_is_exact_for_numpy_integers_and_refuses_more_than_all_rounds() -> None:
    payment = pay_proportionally([1, 2], reward=2**53 - 1)[0]
    assert earned(payment, delivered=10**6, rounds=10**6) == int(payment)
    with pytest.raises(InvalidInput, match="delivered must lie between 0 and 3 rounds; found 5"):
        earned(100, delivered=5, rounds=3)
