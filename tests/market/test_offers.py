"""Where R comes from, and the first total."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.errors import InvalidInput
from fedbourse.game import Quantiles, equilibrium
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.offers import (
    assumed_values,
    choose_reward,
    first_total,
    likely_reward,
    reported_to,
    value_stream,
)
from fedbourse.tasks.card import Assumptions, TaskCard
from fedbourse.testing.trading import Trading, card
from fedbourse.units import MICRO_CREDITS_MAX, REWARD_MAX, REWARD_MIN


@given(st.integers(1, 2**51))  # beyond it credits in doubles are coarser than a micro-credit
def test_a_sum_is_the_reward_to_the_micro_credit(micro) -> None:
    assert choose_reward(card(reward=micro / 1e6), interested=5) == (micro, "as the card says")


def test_the_best_reward_knows_how_many_are_interested_and_no_value() -> None:
    wanted = card(reward="best", max_reward=1000.0)
    few, method = choose_reward(wanted, interested=3)
    many, _ = choose_reward(wanted, interested=30)
    assert 0 < few != many
    assert "3 values spread evenly over 1 to 5" in method
    reported = np.array([2.0, 2.0, 2.0])
    assert choose_reward(wanted, interested=3, reports=3, reported=reported)[0] == few


def test_the_best_reward_for_reported_values_says_that_it_can_be_manipulated() -> None:
    wanted = card(reward="best-reported", max_reward=1000.0)
    low, method = choose_reward(wanted, interested=3, reports=3, reported=np.array([1.0, 1.0, 1.0]))
    high, _ = choose_reward(wanted, interested=3, reports=3, reported=np.array([2.0, 2.0, 2.0]))
    assert low != high
    assert "manipulate" in method
    for told in (0, 1):
        with pytest.raises(InvalidInput, match=f"needs two of them; found {told}"):
            choose_reward(wanted, interested=3, reports=told, reported=np.ones(told))


@given(
    st.sampled_from(["best", "best-reported"]),
    st.floats(1e-6, 1e4),
    st.lists(st.floats(0.01, 100), min_size=2, max_size=20),
    st.floats(1, 1e6),
)
def test_no_best_reward_is_above_the_cards_most(reward, most, values, accuracy_value) -> None:
    wanted = card(
        reward=reward, max_reward=most, assumptions=Assumptions(accuracy_value=accuracy_value)
    )
    try:
        chosen, _method = choose_reward(
            wanted, interested=len(values), reports=len(values), reported=np.array(values)
        )
    except InvalidInput:  # no reward pays, or none that is a whole micro-credit
        return
    assert 0 < chosen <= round(most * 1e6)


def test_the_likely_reward_is_not_above_the_cards_most() -> None:
    free = likely_reward(card(reward="best", max_reward=1000.0), 30)
    assert 0.01 < free < 1000
    assert likely_reward(card(reward="best", max_reward=0.01), 30) == 0.01


def test_the_largest_reward_is_one_that_can_be_announced() -> None:
    assert choose_reward(card(reward=REWARD_MAX), interested=5)[0] <= MICRO_CREDITS_MAX
    assert choose_reward(card(reward=REWARD_MIN), interested=5)[0] == 1
    with pytest.raises(InvalidInput, match="at most 9"):
        card(reward=math.nextafter(REWARD_MAX, math.inf))


def test_a_reward_that_the_card_limits_says_so() -> None:
    reward, method = choose_reward(card(reward="best", max_reward=0.5), interested=30)
    assert reward == 500_000
    assert "not above the card's max_reward" in method


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=20), st.floats(0.01, 1e6))
def test_where_all_values_are_told_the_first_total_is_the_equilibriums(values, reward) -> None:
    everybody = {"interested": len(values), "reports": len(values)}
    total = first_total(card(), reward=reward, reported=np.array(values), **everybody)
    assert total == equilibrium(values, reward=reward).total_budget


def test_where_a_value_is_withheld_the_first_total_uses_none() -> None:
    totals = {
        first_total(card(), reward=10.0, interested=3, reports=len(told), reported=np.array(told))
        for told in ([1.0, 1.0], [2.0, 1.0], [1.0])
    }
    assert len(totals) == 1
    assert totals.pop() > 0


@pytest.mark.slow
@pytest.mark.parametrize("reward", [10.0, "best", "best-reported"])
@pytest.mark.parametrize("max_reward", [10.0, 500.0])
def test_every_source_of_the_reward_leads_to_a_trade(store, reward, max_reward) -> None:
    trading = Trading(store)
    owners = trading.owners(1.0, 1.1, 1.2)
    trading.fund(1_000_000_000)
    task = trading.completed(owners, report=True, reward=reward, max_reward=max_reward)
    assert 0 < task.reward <= max_reward * 1e6
    assert sum(allocation.payment for allocation in trading.allocations(task.id)) == task.reward
    assert all(check.passed for check in trading.verified(task.id)), trading.verified(task.id)


@given(
    st.lists(st.one_of(st.none(), st.floats(0.01, 100)), min_size=2, max_size=30),
    st.integers(1, 9),
)
def test_values_that_come_in_chunks_give_the_same_reward_and_total(said, size) -> None:
    told = [value for value in said if value is not None]
    names = [f"owner:{n}" for n in range(len(said))]
    stream = value_stream(
        lambda: (
            (tuple(said[i : i + size]), tuple(names[i : i + size]))
            for i in range(0, len(said), size)
        )
    )
    found = [(v, n) for c in stream.chunks() for v, n in zip(c.values, c.names, strict=True)]
    assert found == [(v, n) for v, n in zip(said, names, strict=True) if v is not None]
    if len(told) < 2:
        return
    wanted = card(reward="best-reported", max_reward=1e6)
    counts = {"interested": len(told), "reports": len(told)}
    column = np.array(told)
    assert choose_reward(wanted, reported=stream, **counts) == choose_reward(
        wanted, reported=column, **counts
    )
    assert first_total(wanted, reward=3.0, reported=stream, **counts) == first_total(
        wanted, reward=3.0, reported=column, **counts
    )


QUANTILES = [[0, 10], [0.1, 20], [1, 100]]


def test_the_best_reward_goes_by_the_cards_quantiles_in_place_of_the_range() -> None:
    ends, twin, high = (
        card(
            reward="best",
            max_reward=1e6,
            assumptions=Assumptions(accuracy_value=20.0, values_quantiles=quantiles),
        )
        for quantiles in ((), [[0, 1], [0.5, 3], [1, 5]], QUANTILES)
    )
    rewards = [choose_reward(each, interested=30) for each in (ends, twin, high)]
    assert rewards[1][0] == pytest.approx(rewards[0][0], rel=0.02)
    assert rewards[2][0] > 2 * rewards[0][0]
    assert "spread evenly over 1 to 5" in rewards[0][1]
    assert "30 values with the card's 3 quantiles, 10 to 100" in rewards[2][1]
    (chunk,) = assumed_values(high, 4).chunks()
    assert chunk.values == pytest.approx(Quantiles(high.assumed.values_quantiles).spread(4))
    totals = [first_total(each, reward=5.0, interested=30) for each in (ends, twin, high)]
    assert totals[0] == pytest.approx(totals[1])
    assert totals[2] < totals[0] / 5
    assert TaskCard.of(high.document) == high  # as it is stored and sent
    assert high.digest != ends.digest


@pytest.mark.parametrize(
    ("quantiles", "words"),
    [
        ("x", "values_quantiles must be pairs [part, value]; found 'x'"),
        ([[0, 1], [1]], "values_quantiles must be pairs [part, value]; found [1]"),
        ([[0, 1], [1, "y"]], "values_quantiles: value must be a number; found 'y'"),
        ([[0, 1], [0.5, 2]], "the parts from 0 to 1; found the parts 0, 0.5"),
        ([[0, 1]] * 101, "values_quantiles must have at most 100 pairs; found 101"),
    ],
)
def test_wrong_quantiles_of_a_card_get_one_sentence(quantiles, words) -> None:
    document = card(assumptions=Assumptions(accuracy_value=1.0)).document
    document["assumptions"]["values_quantiles"] = quantiles
    with pytest.raises(InvalidInput) as error:
        TaskCard.of(document)
    assert words in str(error.value)


@pytest.mark.parametrize("owners", [2, 3, 1000, 70_000, 200_000])
def test_assumed_values_lie_evenly_between_the_ends(owners) -> None:
    said = card(assumptions=Assumptions(accuracy_value=1.0, values_low=2.0, values_high=3.0))
    values = np.concatenate([chunk.values for chunk in assumed_values(said, owners).chunks()])
    assert (values == 2.0 + (np.arange(owners) + 0.5) / owners).all()


def test_who_told_what_is_read_from_the_records(store) -> None:
    trading = Trading(store)
    trading.fund(10_000_000)
    owners = trading.owners(3.0, 1.0, 2.0)
    task = trading.opened()
    for owner in owners:
        value = owner.value if owner is not owners[1] else None
        said = {"value": value, "previous": task.card.digest}
        trading.do(owner_commands.register_interest, owner.caller, task.id, **said)
    with store.read() as tx:
        found = equilibrium(reported_to(tx, task.id, named=True), reward=1.0)
        assert (found.owners, found.who) == (2, [owners[0].name, owners[2].name])
