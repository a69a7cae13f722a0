"""The descending clock tick by tick: what it sells, and that nobody gains by lying to it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import DescendingClock, InvalidInput, sell_lots
from fedbourse.game.mechanisms import exit_order, order_commitment

values = st.lists(
    st.one_of(st.integers(1, 10), st.integers(1, 10**6)), min_size=1, max_size=12
)  # what a lot costs each owner, in micro-credits
rewards = st.integers(1, 4 * 10**6)


def play(costs, reward, *, step=0.1, secret=b"s", exits=None, tick=DescendingClock.ticked):
    """Return each owner's pay; ``exits`` are the prices below which owners leave."""
    exits = costs if exits is None else exits
    names = {f"owner:{i}": i for i in range(len(costs))}
    staying = [names[name] for name in exit_order(secret, names) if exits[names[name]] <= reward]
    clock, replies = DescendingClock.opened(reward=reward, lots=len(staying)), []
    if clock.stopped:
        replies = [True] * len(staying)
    while not clock.stopped:
        price = clock.next_price(step=step)
        replies = [exits[i] <= price for i in staying]
        clock = tick(clock, price, replies)
        if not clock.stopped:
            staying = [i for i, stays in zip(staying, replies, strict=True) if stays]
            assert len(staying) == clock.lots
    pay = [0] * len(costs)
    for i, payment in zip(staying, clock.payments(replies).tolist(), strict=True):
        pay[i] = payment
    assert np.count_nonzero(pay) == clock.lots
    return pay


def gains(costs, pay):
    return [payment - cost if payment else 0 for cost, payment in zip(costs, pay, strict=True)]


@given(values, rewards, st.sampled_from([0.02, 0.1, 0.5, 1.0]))
@examples(100)
def test_sellers_are_paid_what_they_accepted_within_the_reward(costs, reward, step) -> None:
    pay = play(costs, reward, step=step)
    assert sum(pay) <= reward
    assert min(gains(costs, pay)) >= 0
    paid = sorted(filter(None, pay))
    assert not paid or paid[0] >= paid[-1] * (1 - step) - 1


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=7),
    st.integers(1, 80),
    st.integers(0, 6),
    st.sampled_from([0.1, 0.3, 0.5, 0.9]),
)
@examples(60)
def test_nobody_gains_by_leaving_at_another_price(costs, reward, owner, step) -> None:
    owner %= len(costs)
    truth = gains(costs, play(costs, reward, step=step))[owner]
    for lie in range(1, 23):
        exits = [lie if i == owner else cost for i, cost in enumerate(costs)]
        assert gains(costs, play(costs, reward, step=step, exits=exits))[owner] <= truth


def counts_only_who_leaves(clock, price, replies):
    """The planted fault: who leaves is removed in order, all others sell at the last price."""
    affordable = clock.reward // clock.price
    leaving = [place for place, stays in enumerate(replies) if not stays]
    removed = leaving[: clock.lots - affordable]
    if clock.lots - len(leaving) > affordable:
        return clock.ticked(price, replies)
    asked = (removed[-1] + 1) if removed else 0
    return DescendingClock(clock.reward, clock.price, affordable, True, clock.price, asked)


@pytest.mark.faults
def test_a_clock_that_counts_only_who_leaves_is_caught() -> None:
    """Between two prices a device would stay, and sell at the last one, above its value."""
    costs, reward, options = [4, 4, 4], 10, {"step": 0.5, "tick": counts_only_who_leaves}
    truth = gains(costs, play(costs, reward, **options))
    lies = [[3 if i == owner else 4 for i in range(3)] for owner in range(3)]
    best = [gains(costs, play(costs, reward, exits=lie, **options)) for lie in lies]
    assert any(best[owner][owner] > truth[owner] for owner in range(3))
    honest = gains(costs, play(costs, reward, step=0.5))
    for owner, lie in enumerate(lies):
        assert gains(costs, play(costs, reward, exits=lie, step=0.5))[owner] <= honest[owner]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(5, 60), st.randoms())
@examples(100)
def test_two_who_lie_together_do_not_both_gain(costs, reward, random) -> None:
    """Group strategy-proof, without side payments: one of them has no less by the truth."""
    pair = random.sample(range(len(costs)), 2)
    exits = [random.randint(0, 10) if i in pair else cost for i, cost in enumerate(costs)]
    lie, truth = (gains(costs, play(costs, reward, step=0.3, exits=e)) for e in (exits, costs))
    assert not all(lie[i] > truth[i] for i in pair)


def test_the_limit_is_reached_where_steps_are_finer_than_values() -> None:
    costs = np.random.default_rng(3).uniform(1, 5, 200)
    limit = sell_lots(costs, reward=150.0, lot=1.0)
    scaled = [round(cost * 10**6) for cost in costs]
    pay = np.array(play(scaled, 150 * 10**6, step=1e-3)) / 10**6
    assert np.count_nonzero(pay) == pytest.approx(limit.sellers, abs=1)
    assert pay[pay > 0] == pytest.approx(limit.price, rel=4e-3)
    assert np.count_nonzero((pay > 0) != limit.certain(costs)) <= 1


def test_shills_lower_the_price_so_what_is_left_must_not_return_to_the_buyer() -> None:
    assert sell_lots([1.0] * 8, reward=10.0, lot=1.0).price == 1.25
    with_shills = sell_lots([1.0] * 8 + [1.0001] * 2, reward=10.0, lot=1.0)
    assert with_shills.price == pytest.approx(1.0001)
    assert with_shills.sellers == 9


@pytest.mark.parametrize(
    ("values", "reward", "sellers", "price"),
    [
        ([1.0, 2.0, 3.0], 6.0, 2, 3.0),  # the third would take 9: its value is the price
        ([1.0, 2.0, 9.0], 6.0, 2, 3.0),  # nobody's value: R/k
        ([7.0], 6.0, 0, 0.0),
        ([6.0], 6.0, 1, 6.0),
        ([2.0] * 5, 6.0, 3, 2.0),  # ties: chance decides
        ([1.0, 1.0], 6.0, 2, 3.0),
    ],
)
def test_what_the_limit_sells(values, reward, sellers, price) -> None:
    sale = sell_lots(values, reward=reward, lot=1.0)
    assert (sale.sellers, sale.price) == (sellers, price)
    assert sale.spend <= reward
    assert np.count_nonzero(sale.certain(np.array(values))) + sale.tied == sellers


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: DescendingClock.opened(reward=0, lots=2), "reward must be"),
        (lambda: DescendingClock.opened(reward=2**53, lots=2), "reward must be at most"),
        (lambda: DescendingClock.opened(reward=5, lots=-1), "lots must be"),
        (lambda: opened().ticked(10, [True] * 4), "the price must fall below 10; found 10"),
        (lambda: opened().ticked(9, [True]), "each of 4 who are in must reply; found 1"),
        (lambda: opened().payments([True] * 4), "the clock has not stopped yet"),
        (lambda: opened().next_price(step=0), "step must be"),
        (lambda: opened().ticked(1, [False] * 4).ticked(0, []), "the clock has stopped at 10"),
        (lambda: sell_lots([1.0], reward=-1, lot=1), "reward must be"),
        (lambda: sell_lots([1.0], reward=1, lot=math.nan), "lot must be"),
        (lambda: sell_lots([], reward=1, lot=1), "values must hold at least one"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        call()


def opened():
    return DescendingClock.opened(reward=10, lots=4)


def test_the_order_of_exits_follows_from_the_secret_alone() -> None:
    names = [f"owner:{i}" for i in range(20)]
    assert exit_order(b"one", names) == exit_order(b"one", names[::-1])
    assert exit_order(b"one", names) != exit_order(b"two", names)
    assert order_commitment(b"one") != order_commitment(b"two")
    firsts = {exit_order(bytes([i]), names)[0] for i in range(200)}
    assert len(firsts) == 20  # everybody may be first
