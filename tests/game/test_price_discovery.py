"""Discovery reaches the equilibrium from two sums; best responses do not."""

import doctest
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse import (
    InvalidGame,
    NoEquilibrium,
    PriceDiscovery,
    best_response_dynamics,
    discover,
    equilibrium,
    share_at,
)
from fedbourse.game import price_discovery
from fedbourse.game.price_discovery import CONVERGED, TICKS_MAX, TickSum
from strategies import plain_values

any_total = st.floats(-90.0, 90.0).map(lambda exponent: 10.0**exponent)


def play(reply, *, start: float, cost: str = "linear") -> PriceDiscovery:
    """Let a discovery end; ``reply`` gives all budgets at a total."""
    market = PriceDiscovery.start(cost=cost, total_budget=start)
    while not market.converged and len(market.ticks) < TICKS_MAX:
        shares = reply(market.total_budget) / market.total_budget
        market = market.move(
            positive=int(np.count_nonzero(shares)), share_sum=math.fsum(shares.tolist())
        )
    return market


def with_floor(values, *, reward: float, floor: float, caps):
    """Truthful linear owners who sell no less than a floor: their shares jump to zero."""
    values, caps = np.asarray(values), np.broadcast_to(caps, len(values))

    def reply(total: float):
        best = np.maximum(0.0, 1.0 - values * total / reward) * total
        budgets = np.minimum(np.maximum(best, floor), caps)
        return np.where((values < reward / total) & (budgets >= floor), budgets, 0.0)

    return reply


@pytest.mark.parametrize("cost", ["linear", "quadratic", "exponential"])
@given(values=plain_values, reward=st.floats(0.01, 100.0), start=st.floats(1e-3, 1e3))
@settings(max_examples=60)
def test_discovery_ends_in_the_equilibrium(cost, values, reward, start) -> None:
    discovered = discover(values, reward=reward, cost=cost, start=start)
    known = equilibrium(values, reward=reward, cost=cost)
    # A linear game ends where an excess is as small as rounding; from 10^-8 of P it was 2e-11.
    near = price_discovery._ROUNDING if cost == "linear" else CONVERGED
    assert discovered.converged
    assert discovered.total_budget == pytest.approx(known.total_budget, rel=near)
    assert discovered.budgets == pytest.approx(known.dense(), abs=near * known.total_budget)
    assert discovered.budgets.sum() <= discovered.total_budget * (1 + 1e-15)
    assert len(discovered.totals) == discovered.ticks <= TICKS_MAX


@given(
    values=st.lists(st.floats(0.05, 50.0), min_size=2, max_size=15),
    reward=st.floats(0.01, 100.0),
    caps=st.one_of(st.just(math.inf), st.floats(1e-3, 10.0)),
    cost=st.sampled_from(["linear", "quadratic", "exponential"]),
    start=any_total,
)
def test_any_game_converges_in_time_from_any_first_total(values, reward, caps, cost, start) -> None:
    discovered = discover(values, reward=reward, cost=cost, caps=caps, start=start)
    assert discovered.converged
    assert discovered.ticks <= TICKS_MAX
    known = equilibrium(values, reward=reward, cost=cost, caps=caps)
    assert discovered.total_budget == pytest.approx(known.total_budget, rel=2 * CONVERGED)


@given(
    values=st.lists(st.floats(0.1, 5.0), min_size=2, max_size=12),
    floor=st.floats(1e-3, 2.0),
    caps=st.one_of(st.just(math.inf), st.floats(1e-3, 10.0)),
    start=st.floats(1e-3, 1e3),
)
def test_shares_that_jump_still_close_the_bracket_and_settle_by_rule(
    values, floor, caps, start
) -> None:
    reply = with_floor(values, reward=10.0, floor=floor, caps=caps)
    market = play(reply, start=start)
    settled = market.qualifying
    assert settled is not None
    assert settled.share_sum <= 1.0
    assert settled.total_budget == min(t.total_budget for t in market.ticks if t.share_sum <= 1.0)
    if caps < floor:  # nobody may sell
        assert settled.share_sum == 0.0
        return
    assert market.converged
    assert market.low.share_sum > 1.0
    assert market.low.total_budget < settled.total_budget
    assert settled.total_budget <= market.low.total_budget * (1 + 1.01 * CONVERGED)


def test_a_jump_over_the_equilibrium_settles_above_it_with_less_sold() -> None:
    # Alone neither of the high-value owners can sell 2 at a total of 4; together they are too many.
    reply = with_floor([1.0, 2.5, 2.5], reward=10.0, floor=1.9, caps=math.inf)
    market = play(reply, start=1.0)
    assert market.converged
    assert market.total_budget == pytest.approx(4.0)  # R/v: from here on they stay out
    assert market.qualifying.share_sum < 0.65
    assert market.low.share_sum > 1.5


def test_the_rule_of_settling_does_not_depend_on_convergence() -> None:
    market = PriceDiscovery.start(total_budget=1.0)
    for total, share_sum in ((1.0, 1.7), (4.0, 0.4), (2.0, 1.1), (3.0, 0.9)):
        market = market.after(TickSum(total, 3, share_sum))
    assert not market.converged
    assert market.qualifying == TickSum(3.0, 3, 0.9)
    assert market.low == TickSum(2.0, 3, 1.1)
    assert 2.0 < market.total_budget < 3.0


@given(st.lists(st.tuples(any_total, st.integers(0, 5), st.floats(0.0, 5.0)), max_size=70))
def test_whatever_is_replied_totals_stay_finite(ticks) -> None:
    market = PriceDiscovery.start(total_budget=1.0)
    for total, positive, share_sum in ticks:
        market = market.after(TickSum(total, positive, min(share_sum, float(positive))))
        assert 0 < market.total_budget < math.inf
    for _ in range(80):
        market = market.move(positive=0, share_sum=0.0)
        assert 0 < market.total_budget < math.inf


@pytest.mark.parametrize("n", [2, 10, 100, 1000, 10_000, 100_000])
def test_a_handful_of_rounds_is_enough(n: int) -> None:
    values = np.random.default_rng(n).uniform(1, 5, n)
    assert 3 <= discover(values, reward=10.0).ticks <= 18
    assert discover(values, reward=10.0, cost="quadratic").ticks <= 18
    assert discover(values, reward=10.0, cost="exponential").ticks <= 18


@pytest.mark.parametrize("start", [1e-30, 1e-20, 1e20])
def test_any_first_announcement_will_do(start) -> None:
    discovered = discover([1.0, 1.0], reward=1.0, start=start)
    assert discovered.total_budget == pytest.approx(0.5)
    assert discovered.ticks <= 15


def test_the_market_needs_two_sums_and_no_value() -> None:
    values, reward = [1.0, 1.2, 1.4, 3.0], 10.0
    market = PriceDiscovery.start(total_budget=1.0)
    while not market.converged:
        replies = [share_at(v, market.total_budget, reward=reward) for v in values]
        market = market.move(positive=sum(s > 0 for s in replies), share_sum=sum(replies))
    assert market.total_budget == pytest.approx(equilibrium(values, reward=reward).total_budget)


def test_the_example_in_the_docstring_holds() -> None:
    assert doctest.testmod(price_discovery).attempted >= 2
    assert doctest.testmod(price_discovery).failed == 0


def test_six_equal_owners_who_reply_to_each_other_swing_ever_wider() -> None:
    start = np.full(6, 5 / 36) * (1 + 1e-3 * np.arange(6))
    history = best_response_dynamics(np.ones(6), start, reward=1.0, rounds=12)
    distance = np.abs(history - 5 / 36).max(axis=1)
    assert distance[6] > 10 * distance[0]
    assert distance.max() > 0.1


def test_three_equal_owners_settle_even_so() -> None:
    history = best_response_dynamics(np.ones(3), [0.3, 0.2, 0.1], reward=1.0, rounds=200)
    assert history[-1] == pytest.approx(np.full(3, 2 / 9), rel=1e-6)


@pytest.mark.parametrize(("ratio", "settles"), [(5.0, True), (6.7, False)])
def test_two_owners_settle_up_to_a_ratio_of_5_83(ratio, settles) -> None:
    # 3 + 2 sqrt(2) = 5.83
    known = equilibrium([1.0, ratio], reward=1.0).dense()
    history = best_response_dynamics([1.0, ratio], known * [1.001, 1.0], reward=1.0, rounds=400)
    assert (np.abs(history[-1] - known).max() < 1e-9) == settles


def test_damping_by_two_over_n_settles_slowly() -> None:
    start = np.full(6, 5 / 36) * (1 + 1e-2 * np.arange(6))
    history = best_response_dynamics(np.ones(6), start, reward=1.0, rounds=600, damping=2 / 6)
    assert history[-1] == pytest.approx(np.full(6, 5 / 36), rel=1e-6)


def test_a_discovery_without_a_total_large_enough_says_so() -> None:
    with pytest.raises(NoEquilibrium, match="after 1 ticks owners still want more"):
        discover([1.0, 2.0, 3.0], reward=1.0, start=1e-6, ticks_max=1)


def test_a_discovery_that_is_cut_short_settles_by_rule() -> None:
    discovered = discover([1.0, 1.1, 1.2], reward=1.0, start=1.0, ticks_max=1, cost="quadratic")
    assert not discovered.converged
    assert discovered.total_budget == 1.0
    assert 0 < discovered.budgets.sum() < 1.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: discover([1, 1], reward=9, cost="paper-exponential"), "without an entry cost"),
        (lambda: PriceDiscovery.start(total_budget=0), "total_budget must be .* above 0; found 0"),
        (lambda: PriceDiscovery.start(total_budget=1).move(positive=2, share_sum=-1), "share_sum"),
        (lambda: PriceDiscovery.start(total_budget=1).move(positive=-1, share_sum=0), "positive"),
        (lambda: share_at(0, 1, reward=1), "value must be"),
        (lambda: best_response_dynamics([1, 1], [1], reward=1), "each of 2 owners; found 1"),
        (lambda: best_response_dynamics([1, 1], [1, -1], reward=1), r"budgets\[1\]"),
        (lambda: best_response_dynamics([1, 1], 1.0, reward=1, damping=2), "damping must be"),
    ],
)
def test_bad_updates_are_refused(call, words) -> None:
    with pytest.raises(InvalidGame, match=words):
        call()


@given(st.lists(st.floats(0.5, 20.0), min_size=2, max_size=12), st.floats(0.01, 5.0))
def test_capped_owners_are_led_to_the_capped_equilibrium(values, cap) -> None:
    caps = np.full(len(values), cap)
    result = discover(values, reward=10.0, caps=caps)
    known = equilibrium(values, reward=10.0, caps=caps)
    expected = np.zeros(len(values))
    expected[known.participants] = known.budgets
    assert result.budgets == pytest.approx(expected, abs=2 * CONVERGED * result.total_budget)
    assert (result.budgets <= cap * (1 + 1e-12)).all()
