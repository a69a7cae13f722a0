"""The activity rule: one owner never contradicts itself; one that acts as several does."""

import doctest
import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedbourse.game import activity
from fedbourse.game.activity import Reply, contradiction
from fedbourse.game.costs import cost_named

R = 10.0
COSTS = ["linear", "quadratic", "exponential"]
NEAR = 1 + 1e-12

value = st.floats(0.05, 20.0)
cap = st.one_of(st.just(math.inf), st.floats(1e-3, 5.0))
total = st.one_of(st.floats(1e-3, 50.0), st.floats(1e-6, 1e6))


@st.composite
def totals(draw: st.DrawFn) -> list[float]:
    """Totals in any order, some of them next to another one."""
    drawn = draw(st.lists(total, min_size=2, max_size=12))
    twins = draw(st.lists(st.sampled_from(drawn), max_size=4))
    beside = [each * NEAR for each in twins] + [math.nextafter(each, math.inf) for each in twins]
    return draw(st.permutations(drawn + beside))


def budget_at(cost: str, value: float, total: float, *, cap: float, floor: float) -> float:
    """What an owner replies that wants to sell its best budget, at most a cap, and none in vain."""
    family, v = cost_named(cost), np.array([value])
    best = float(family.share(v, total, R)[0]) * total
    budget = min(max(best, floor), cap)
    if budget < floor or not budget:
        return 0.0
    pay, price = R * budget / total, float(family.cost(v, np.array([budget]))[0])
    return budget if budget > floor or pay > price else 0.0


def replies_of(cost, value, totals, *, cap=math.inf, floor=0.0) -> list[Reply]:
    return [
        Reply(tick, each, budget_at(cost, value, each, cap=cap, floor=floor))
        for tick, each in enumerate(totals)
    ]


def first_refusal(replies, **rule) -> str | None:
    """Say why the first reply was refused that was; None where all were accepted."""
    for place, reply in enumerate(replies):
        reason = contradiction(reply, replies[:place], reward=R, **rule)
        if reason is not None:
            return reason
    return None


@given(cost=st.sampled_from(COSTS), value=value, cap=cap, totals=totals())
def test_an_owner_with_one_convex_cost_never_contradicts_itself(cost, value, cap, totals) -> None:
    assert first_refusal(replies_of(cost, value, totals, cap=cap)) is None


@given(
    cost=st.sampled_from(COSTS),
    value=value,
    cap=cap,
    floor=st.floats(1e-3, 2.0),
    totals=totals(),
)
def test_nor_does_it_where_the_card_has_a_floor(cost, value, cap, floor, totals) -> None:
    replies = replies_of(cost, value, totals, cap=cap, floor=floor)
    assert first_refusal(replies, floor=floor) is None


@given(value=value, cap=cap, floor=st.one_of(st.just(0.0), st.floats(1e-3, 2.0)), totals=totals())
def test_a_linear_owner_holds_where_the_card_fixes_linear_costs(value, cap, floor, totals) -> None:
    replies = replies_of("linear", value, totals, cap=cap, floor=floor)
    assert first_refusal(replies, floor=floor, linear=True) is None


@given(
    cost=st.sampled_from(COSTS), value=value, totals=totals(), factor=st.floats(1e-7, 0.5), up=...
)
def test_another_budget_at_the_same_total_is_refused(
    cost, value, totals, factor: float, up: bool
) -> None:
    replies = replies_of(cost, value, totals)
    last = replies[-1]
    assume(factor * last.budget > 1e-8 * last.total_budget)
    other = last.budget * (1 + factor if up else 1 - factor)
    jump = Reply(len(replies), last.total_budget * NEAR, other)
    assert contradiction(jump, replies, reward=R) is not None


@given(
    first=total,
    ratio=st.floats(1.001, 100.0),
    share=st.floats(0.0, 1.0),
    rise=st.floats(1e-3, 1.0),
    floor=st.one_of(st.just(0.0), st.floats(1e-3, 2.0)),
)
def test_a_share_never_rises_with_the_total(first, ratio, share, rise, floor) -> None:
    before = Reply(0, first, share * first)
    after = Reply(1, first * ratio, (share + rise) * first * ratio)
    # The market takes no budget between 0 and the floor.
    assume(all(not each.budget or each.budget >= floor for each in (before, after)))
    for earlier, later in ((before, after), (after, before)):
        assert contradiction(later, [earlier], reward=R, floor=floor) is not None


@given(replies=st.lists(st.tuples(total, st.floats(0.0, 1.5)), max_size=25))
def test_sums_of_accepted_replies_cross_one_once(replies) -> None:
    """A share below 1 never rises; so no total qualifies below one that is too small."""
    accepted: list[Reply] = []
    for tick, (at, share) in enumerate(replies):
        reply = Reply(tick, at, share * at)
        if contradiction(reply, accepted, reward=R) is None:
            accepted.append(reply)
    for one, other in itertools.permutations(accepted, 2):
        share = one.budget / one.total_budget
        # Of a share that rounds to 1 the margin rounds to 0, whatever the total.
        if one.total_budget <= other.total_budget and share <= 1 - 1e-6:
            assert other.budget / other.total_budget <= share + 1e-8


@given(first=total, ratio=st.floats(1.001, 1e6), share=st.floats(1e-6, 1.0))
def test_a_zero_stands_for_every_larger_total(first, ratio, share) -> None:
    zero, larger = Reply(0, first, 0.0), Reply(1, first * ratio, share * first * ratio)
    assert contradiction(larger, [zero], reward=R, floor=1e-3 * first).endswith(
        "a zero holds at every larger total"
    )


@given(
    first=value,
    other=value,
    points=st.lists(st.floats(0.05, 0.9), min_size=3, max_size=3, unique=True),
)
def test_two_values_are_not_one_linear_cost(first, other, points) -> None:
    """Two replies below the largest budget state their margins: these must be one value."""
    assume(not math.isclose(first, other, rel_tol=1e-6))
    ceiling = R / max(first, other)
    replies = [
        Reply(tick, at * ceiling, budget_at("linear", v, at * ceiling, cap=math.inf, floor=0.0))
        for tick, (v, at) in enumerate(zip((first, first, other), points, strict=True))
    ]
    by_budget = sorted(replies, key=lambda reply: reply.budget)
    # The largest budget may be a cap; the two below it are not.
    assume(replies[2] in by_budget[:2] and by_budget[0].budget > 1e-3)
    assume(not math.isclose(by_budget[1].budget, by_budget[2].budget, rel_tol=1e-6))
    assert first_refusal(replies, linear=True) is not None


def test_a_convex_owner_is_refused_where_the_card_fixes_linear_costs() -> None:
    replies = replies_of("quadratic", 1.0, [1.0, 1.5, 2.0, 2.5])
    assert first_refusal(replies) is None
    assert "the card fixes linear costs" in first_refusal(replies, linear=True)


@pytest.mark.parametrize(
    ("earlier", "later", "why"),
    [
        ((2.0, 0.5), (3.0, 1.5), "a share never rises with the total"),
        ((2.0, 0.0), (2.5, 0.5), "a zero holds at every larger total"),
        ((2.0, 1.5), (1.9, 1.6), "a larger budget must be worth it at the margin"),
    ],
)
def test_a_refusal_shows_both_replies_and_the_reason(earlier, later, why) -> None:
    reason = contradiction(Reply(7, *later), [Reply(3, *earlier)], reward=R)
    assert reason.startswith(f"{later[1]:g} rho at a total of {later[0]:g} contradicts ")
    assert f"{earlier[1]:g} rho at a total of {earlier[0]:g} (tick 3): {why}" in reason


def test_the_example_in_the_docstring_holds() -> None:
    assert doctest.testmod(activity).failed == 0
