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


def play(costs, reward, *, step=0.1, secret=b"s", exits=None, end=lambda clock, price: clock):
    """Return who sells and the price; ``exits`` are the prices below which owners leave."""
    exits = costs if exits is None else exits
    names = [f"owner:{i}" for i in range(len(costs))]
    order = {name: place for place, name in enumerate(exit_order(secret, names))}
    staying = [i for i in range(len(costs)) if exits[i] <= reward]
    clock = DescendingClock.opened(reward=reward, lots=len(staying))
    while not clock.stopped:
        price = clock.next_price(step=step)
        leaving = sorted((i for i in staying if exits[i] > price), key=lambda i: order[names[i]])
        clock = end(clock.ticked(price, exits=len(leaving)), price)
        gone = set(leaving[: clock.removed])
        staying = [i for i in staying if i not in gone]
        assert len(staying) == clock.lots
    return staying, clock.price


@given(values, rewards, st.sampled_from([0.02, 0.1, 0.5, 1.0]))
@examples(100)
def test_sellers_are_paid_what_they_accepted_within_the_reward(costs, reward, step) -> None:
    sellers, price = play(costs, reward, step=step)
    assert price * len(sellers) <= reward
    assert all(costs[i] <= price for i in sellers)


def pays_the_price_just_announced(clock, price):
    """The planted fault: who is kept though it left sells at a price that it had refused."""
    return DescendingClock(clock.reward, price, clock.lots, clock.stopped, clock.removed)


@pytest.mark.faults
def test_a_price_that_a_seller_had_refused_is_caught() -> None:
    costs, reward = [5, 5, 5, 5], 10
    sellers, price = play(costs, reward, step=0.1)
    assert (len(sellers), price) == (2, 5)
    sellers, price = play(costs, reward, step=0.1, end=pays_the_price_just_announced)
    assert any(costs[i] > price for i in sellers)


@given(values, rewards, st.integers(0, 11), st.integers(0, 10**6), st.sampled_from([0.1, 0.5]))
@examples(150)
def test_nobody_gains_by_leaving_at_another_price(costs, reward, owner, lie, step) -> None:
    owner %= len(costs)

    def utility(exits):
        sellers, price = play(costs, reward, step=step, exits=exits)
        return price - costs[owner] if owner in sellers else 0

    exits = [lie if i == owner else cost for i, cost in enumerate(costs)]
    assert utility(exits) <= utility(costs)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(5, 60), st.randoms())
@examples(100)
def test_two_who_lie_together_do_not_both_gain(costs, reward, random) -> None:
    """Group strategy-proof, without side payments: one of them has no less by the truth."""
    pair = random.sample(range(len(costs)), 2)
    exits = [random.randint(0, 10) if i in pair else cost for i, cost in enumerate(costs)]

    def utilities(exits):
        sellers, price = play(costs, reward, step=0.05, exits=exits)
        return [price - costs[i] if i in sellers else 0 for i in pair]

    lie, truth = utilities(exits), utilities(costs)
    assert not all(a > b for a, b in zip(lie, truth, strict=True))


@given(values, rewards)
@examples(40)
def test_small_steps_sell_what_the_limit_sells(costs, reward) -> None:
    """A price that falls by one micro-credit at a time, jumped to where something happens."""
    limit = sell_lots(np.array(costs, float), reward=reward, lot=1.0)
    unit = [cost * 10**6 for cost in costs]
    sellers, price = play(unit, reward * 10**6, step=5e-3)
    # A tick may stop early, at a price that is one step too high, and sell to fewer.
    assert len(sellers) <= limit.sellers
    if limit.tied == 0 and limit.sellers:
        assert price / 10**6 == pytest.approx(limit.price, rel=1e-2) or len(sellers) < limit.sellers
    if limit.sellers == len(sellers) and limit.sellers:
        assert price / 10**6 >= limit.price * (1 - 1e-6)


def test_the_limit_is_reached_where_steps_are_finer_than_values() -> None:
    costs = np.random.default_rng(3).uniform(1, 5, 200)
    limit = sell_lots(costs, reward=150.0, lot=1.0)
    scaled = [round(cost * 10**6) for cost in costs]
    sellers, price = play(scaled, 150 * 10**6, step=1e-3)
    assert len(sellers) == limit.sellers
    assert price / 10**6 == pytest.approx(limit.price, rel=2e-3)
    assert set(sellers) == set(np.flatnonzero(limit.certain(costs)).tolist())


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
        (lambda: opened().ticked(10, exits=1), "the price must fall below 10; found 10"),
        (lambda: opened().ticked(9, exits=5), "at most 4 who are in can leave; found 5"),
        (lambda: opened().next_price(step=0), "step must be"),
        (lambda: opened().ticked(1, exits=4).ticked(0, exits=0), "the clock has stopped at 10"),
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
