"""Ticks as the market runs them: settled by rule, whoever is out, and again after a decline."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse.errors import LeftTask
from fedbourse.game import equilibrium, regret
from fedbourse.game.mechanisms import pay_proportionally
from fedbourse.market import price_discovery
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.records import State
from fedbourse.market.service import escrow
from fedbourse.market.settlement import shares_at
from fedbourse.protocol.messages import min_pay
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.trading import BUYER, Trading, best_budget
from market.life_invariants import sqlite_stores

R = 10_000_000
HURRIED = Deadlines(tick_s=60, plans_s=90, review_s=0)


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


def assert_verified(trading, task, owners) -> None:
    for viewer in (None, *owners):
        checks = trading.verified(task.id, owner=viewer)
        assert [check for check in checks if check.passed is False] == []


def last(trading, task, kind) -> dict:
    return [event.body for event in trading.events(task.id) if event.kind == kind][-1]


def shares(trading, task, owners) -> list[float]:
    """What the replies of these owners sum to at each tick, as a part of the announced total."""
    parts: list[list[float]] = [[] for _ in task.totals]
    for owner in owners:
        for reply in trading.participation(owner, task.id)["replies"]:
            parts[reply["tick"]].append(reply["budget"] / task.totals[reply["tick"]])
    return [math.fsum(part) for part in parts]


def assert_settled_by_rule(trading, task, owners) -> None:
    """The lowest total whose replies sum to at most it; and nobody is paid below its price."""
    qualifying = {
        tick: task.totals[tick]
        for tick, share in enumerate(shares(trading, task, owners))
        if share <= 1.0
    }
    assert task.settled_tick == min(qualifying, key=qualifying.get)
    allocations = trading.allocations(task.id)
    assert sum(allocation.payment for allocation in allocations) == task.reward
    for allocation in allocations:
        total = task.totals[task.settled_tick]
        assert allocation.payment >= min_pay(
            budget=allocation.budget, total_budget=total, reward_micro=task.reward
        )


def sold(trading, task, owners) -> list[float]:
    allocations = {
        allocation.owner: allocation.budget for allocation in trading.allocations(task.id)
    }
    return [allocations.get(owner.name, 0.0) for owner in owners]


def cancelled_for(trading, task) -> str:
    task = trading.task(task.id)
    assert task.state is State.CANCELLED
    assert trading.balance(escrow(task.id)) == 0
    assert trading.balance(BUYER.party) == R
    return last(trading, task, "cancelled")["reason"]


# -- settled by rule -------------------------------------------------------------------------------


def test_where_time_is_up_before_p_converged_the_rule_settles(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    task = trading.announced(owners, deadlines=HURRIED)
    while task.state is State.ANNOUNCED:
        for owner in owners:
            trading.plan(owner, task)
        trading.wait(25)
        task = trading.task(task.id)
    assert task.tick == 1
    settled = last(trading, task, "settled")
    assert settled["converged"] is False
    assert_settled_by_rule(trading, task, owners)
    gain = regret([owner.value for owner in owners], sold(trading, task, owners), reward=10.0)
    assert 0 < gain <= settled["regret_bound"]
    assert_verified(trading, task, owners)


def test_where_the_last_tick_came_the_rule_settles(trading, monkeypatch) -> None:
    monkeypatch.setattr(price_discovery, "TICKS_MAX", 2)
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    task = trading.settled(owners)
    assert (task.state, task.tick) == (State.SETTLED, 1)
    settled = last(trading, task, "settled")
    assert settled["converged"] is False
    assert_settled_by_rule(trading, task, owners)
    gain = regret([owner.value for owner in owners], sold(trading, task, owners), reward=10.0)
    assert 0 < gain <= settled["regret_bound"]


@pytest.mark.slow
def test_devices_whose_shares_jump_veto_nothing(trading) -> None:
    """At the price at which the last three leave, all of them together are too many."""
    owners = trading.owners(2.0, 2.0, 2.5, 2.5, 2.5)
    task = trading.settled(owners, min_budget=0.9)
    assert task.state is State.SETTLED
    assert task.totals[task.settled_tick] == pytest.approx(4.0, rel=1e-6)
    assert sold(trading, task, owners) == [0.9, 0.9, 0.0, 0.0, 0.0]
    assert last(trading, task, "settled")["regret_bound"] >= 0.1
    assert_settled_by_rule(trading, task, owners)
    assert_verified(trading, task, owners)


def test_where_no_tick_qualifies_the_task_is_cancelled_and_refunded(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.announced(owners, deadlines=HURRIED)
    for owner in owners:
        trading.plan(owner, task, 50.0)
    trading.wait(90)
    reason = cancelled_for(trading, task)
    assert "at each of 1 totals announced owners wanted more than it: no tick qualifies" in reason


@pytest.mark.parametrize(("least", "settles"), [(0.999, True), (1.001, False)])
def test_a_total_below_the_card_s_least_is_cancelled_and_refunded(trading, least, settles) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    known = equilibrium([1.0, 1.1, 1.2], reward=10.0).total_budget
    task = trading.settled(owners, min_total_budget=least * known)
    if settles:
        assert task.state is State.SETTLED
    else:
        reason = cancelled_for(trading, task)
        assert f"the card needs a total of {least * known:g} rho, and the plans sum to" in reason


@pytest.mark.parametrize("at_the_deadline", [False, True])
def test_a_ring_that_sells_next_to_nothing_is_not_paid(trading, at_the_deadline) -> None:
    """Owners who all act dear would sell 0.0008 rho for all of R."""
    owners = trading.owners(1.0, 1.1, 1.2)
    deadlines = HURRIED if at_the_deadline else Deadlines(review_s=0)
    task = trading.settled(
        owners, budgets=[0.0004, 0.0004, 0.0], min_total_budget=1.0, deadlines=deadlines
    )
    assert "the card needs a total of 1 rho" in cancelled_for(trading, task)


# -- signatures ------------------------------------------------------------------------------------


@given(
    budgets=st.lists(st.floats(1e-100, 1e100), min_size=1, max_size=20),
    reward=st.one_of(st.integers(1, 50), st.integers(1, 10**12)),
    down=st.integers(0, 3),
)
def test_whatever_sums_to_at_most_its_total_is_paid_the_price_it_replied_to(
    budgets, reward, down
) -> None:
    """Also at the very last total that qualifies, where sums are rounded."""
    total = math.fsum(budgets)
    for _ in range(down):
        smaller = math.nextafter(total, 0)
        if shares_at(smaller, [np.array(budgets)])[1] <= 1.0:
            total = smaller
    while shares_at(total, [np.array(budgets)])[1] > 1.0:
        total = math.nextafter(total, math.inf)
    for budget, payment in zip(
        budgets, pay_proportionally(budgets, reward=reward).tolist(), strict=True
    ):
        assert payment >= min_pay(budget=budget, total_budget=total, reward_micro=reward)


@pytest.mark.slow
@settings(max_examples=15)
@given(
    values=st.lists(st.floats(0.5, 3.0), min_size=2, max_size=5),
    caps=st.lists(st.floats(0.05, 10.0), min_size=5, max_size=5),
    floor=st.sampled_from([0.0, 0.2]),
    pause=st.sampled_from([1, 700, 1500]),
)
def test_every_settlement_is_one_that_devices_sign(
    sqlite_template, values, caps, floor, pause
) -> None:
    with sqlite_stores(sqlite_template)() as store:
        trading = Trading(store)
        trading.fund(R)
        owners = trading.owners(*values)
        cap = {owner.name: caps[place] for place, owner in enumerate(owners)}
        task = trading.announced(owners, min_budget=floor)
        while task.state is State.ANNOUNCED:
            for owner in owners:
                budget = min(best_budget(owner, task), cap[owner.name])
                trading.plan(owner, task, budget if budget >= floor else 0.0)
            trading.wait(pause)
            task = trading.task(task.id)
        if task.state is State.SETTLED:
            assert_settled_by_rule(trading, task, owners)
            assert all(allocation.budget >= floor for allocation in trading.allocations(task.id))
            for allocation in trading.allocations(task.id):
                owner = next(each for each in owners if each.name == allocation.owner)
                terms = trading.participation(owner, task.id)["terms"]["terms"]
                assert terms["payment_micro"] >= min_pay(
                    budget=terms["budget"],
                    total_budget=terms["total_budget"],
                    reward_micro=task.reward,
                )
                assert terms["total_budget"] == task.totals[terms["tick"]]
        else:
            assert trading.balance(BUYER.party) == R
        assert_verified(trading, task, owners)


# -- discovered again ------------------------------------------------------------------------------


def decided(trading, owners, task, decliners):
    """Let everybody who was chosen sign but these, and the market go on."""
    chosen = {allocation.owner for allocation in trading.allocations(task.id)}
    for owner in owners:
        if owner.name in chosen:
            trading.decide(owner, task.id, accept=owner not in decliners)
    trading.advance()
    return trading.task(task.id)


@pytest.mark.slow
@pytest.mark.parametrize("gone", [{0}, {3}, {1, 2}, {0, 1, 4}], ids=str)
def test_after_a_decline_the_price_is_the_one_without_the_decliners(trading, gone) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3, 1.35)
    task = trading.settled(owners)
    ticks = len(task.totals)
    assert len(trading.allocations(task.id)) == 5
    decliners = [owners[place] for place in gone]
    left = [owner for owner in owners if owner not in decliners]
    task = decided(trading, owners, task, decliners)
    assert (task.state, task.settled_tick) == (State.ANNOUNCED, None)
    assert task.deadline_ms == trading.time_ms + 3600_000
    assert last(trading, task, "restarted")["struck_out"] == len(gone)
    assert trading.allocations(task.id) == []
    task = trading.play(left, task)
    known = equilibrium([owner.value for owner in left], reward=10.0)
    assert task.reward == R
    assert sold(trading, task, left) == pytest.approx(known.dense(), abs=2e-6)
    assert sold(trading, task, decliners) == [0.0] * len(gone)
    assert len(task.totals) - ticks <= 20
    assert_settled_by_rule(trading, task, left)
    assert trading.balance(escrow(task.id)) == R
    assert trading.balance(BUYER.party) == 0  # nothing is the buyer's because of a decline
    for owner in decliners:
        assert trading.participation(owner, task.id)["exit"]["reason"] == "declined"
    task = trading.signed(left, task)
    assert task.state is State.TRAINING
    assert_verified(trading, task, owners)


def test_declines_one_after_the_other_end_with_those_who_sign(trading) -> None:
    owners = trading.owners(1.0, 1.05, 1.1, 1.15)
    task = trading.settled(owners)
    left = list(owners)
    for _ in range(2):
        gone = left.pop(0)
        task = decided(trading, owners, task, [gone])
        task = trading.play(left, task)
        assert {allocation.owner for allocation in trading.allocations(task.id)} == {
            o.name for o in left
        }
        assert_verified(trading, task, owners)
    known = equilibrium([1.1, 1.15], reward=10.0)
    assert sold(trading, task, left) == pytest.approx(known.dense(), abs=2e-6)
    task = trading.signed(left, task)
    trading.trained(left, task)
    assert sum(trading.balance(owner.name) for owner in left) == R
    assert_verified(trading, trading.task(task.id), owners)


@pytest.mark.parametrize("signs", [0, 1])
def test_where_too_few_are_left_to_sell_all_is_refunded(trading, signs) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.settled(owners)
    decided(trading, owners, task, owners[signs:])
    assert f"needs 2 participants, and {signs} are left to sell" in cancelled_for(trading, task)
    assert_verified(trading, task, owners)


def test_a_decliner_too_small_to_matter_costs_no_further_tick(trading) -> None:
    trading.fund(1000 * R, reference="more")
    owners = trading.owners(1.0, 1.0, 1.0)
    task = trading.settled(owners, budgets=[1.0, 1.0, 1e-9], reward=10_000.0)
    assert len(trading.allocations(task.id)) == 3
    ticks = len(task.totals)
    task = decided(trading, owners, task, [owners[2]])
    assert (task.state, len(task.totals)) == (State.SETTLED, ticks)
    assert sold(trading, task, owners) == [1.0, 1.0, 0.0]
    assert [allocation.payment for allocation in trading.allocations(task.id)] == [500 * R, 500 * R]
    assert [allocation.state for allocation in trading.allocations(task.id)] == ["offered"] * 2
    assert_settled_by_rule(trading, task, owners[:2])
    assert_verified(trading, task, owners)


def test_terms_of_a_settlement_that_was_dropped_cannot_be_signed(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.settled(owners)
    before = trading.participation(owners[1], task.id)["terms"]
    task = trading.play(owners[1:], decided(trading, owners, task, [owners[0]]))
    with pytest.raises(Exception, match="the terms have the hash"):
        trading.do(
            owner_commands.decide,
            owners[1].caller,
            task.id,
            accept=True,
            terms_digest=before["digest"],
            signature="",
        )
    assert all(allocation.state == "offered" for allocation in trading.allocations(task.id))


# -- who is out ------------------------------------------------------------------------------------


def get_out(trading, owners, task, how):
    """Put the last owner out of a task, and return the task at a tick that is open again."""
    gone, others = owners[-1], owners[:-1]
    if how == "left":
        trading.do(owner_commands.leave_task, gone.caller, task.id)
    elif how == "missed":
        for owner in others:
            trading.plan(owner, task)
        trading.wait(60)
    else:
        task = trading.play(owners, task)
        for owner in others:
            trading.decide(owner, task.id)
        if how == "declined":
            trading.decide(gone, task.id, accept=False)
        trading.wait(3600)
    return trading.task(task.id)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["left", "missed", "declined", "unsigned"])
def test_whoever_is_out_says_nothing_more_and_counts_no_more(trading, how) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.25)
    task = trading.announced(owners)
    for owner in owners:
        trading.plan(owner, task)
    trading.advance()
    task = get_out(trading, owners, trading.task(task.id), how)
    assert (task.state, task.asked) == (State.ANNOUNCED, 3)
    assert trading.participation(owners[3], task.id)["exit"]["reason"] == how
    words = {
        "left": "you have left this task",
        "missed": "you did not reply to tick 1; a missed tick counts as zero from then on",
        "declined": "you have declined the terms of this task",
        "unsigned": "you did not sign the terms of this task in time",
    }[how]
    for budget in (0.0, best_budget(owners[3], task)):
        with pytest.raises(LeftTask, match=words):
            trading.plan(owners[3], task, budget)
    first = trading.do(owner_commands.leave_task, owners[3].caller, task.id)
    assert first.reason == how  # leaving changes nothing any more
    task = trading.play(owners[:3], task)
    known = equilibrium([1.0, 1.1, 1.2], reward=10.0)
    assert sold(trading, task, owners) == pytest.approx([*known.dense(), 0.0], abs=2e-6)
    assert_settled_by_rule(trading, task, owners[:3])
    assert_verified(trading, task, owners)


@pytest.mark.parametrize("how", ["left", "missed"])
def test_the_replies_of_who_goes_do_not_decide_which_tick_qualifies(trading, how) -> None:
    """What one device replied early must not move P once it is out: sniping would pay."""
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners, deadlines=HURRIED)
    for owner in owners:
        trading.plan(owner, task, 90.0 if owner is owners[2] else best_budget(owner, task))
    trading.advance()
    task = trading.task(task.id)
    assert task.total_budget > task.totals[0]  # it seemed too small
    for owner in owners[:2]:
        trading.plan(owner, task)
    if how == "left":
        trading.do(owner_commands.leave_task, owners[2].caller, task.id)
    trading.wait(90)
    # The others have all of the ticks and the time again.
    task = trading.play(owners[:2], trading.task(task.id))
    assert task.state is State.SETTLED
    assert {allocation.owner for allocation in trading.allocations(task.id)} == {
        o.name for o in owners[:2]
    }
    assert_settled_by_rule(trading, task, owners[:2])
    assert_verified(trading, task, owners)


def test_the_card_s_number_of_ticks_begins_anew_after_a_decline(trading, monkeypatch) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    task = trading.settled(owners)
    monkeypatch.setattr(price_discovery, "TICKS_MAX", 2)
    task = decided(trading, owners, task, [owners[0]])
    first = task.first_tick
    assert first == task.tick > 2
    task = trading.play(owners[1:], task)
    assert task.tick == first + 1
    assert_settled_by_rule(trading, task, owners[1:])


@pytest.mark.parametrize("goes", ["left", "missed"])
def test_who_goes_at_the_last_tick_leaves_the_others_all_ticks_and_time(
    trading, monkeypatch, goes
) -> None:
    """Otherwise the others would be settled at the totals that it led to."""
    monkeypatch.setattr(price_discovery, "TICKS_MAX", 3)
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    task = trading.announced(owners, deadlines=Deadlines(tick_s=60, plans_s=600, review_s=0))
    while task.tick < 2:
        for owner in owners:
            trading.plan(owner, task)
        assert trading.advance() == 1
        task = trading.task(task.id)
    first = {"left": 2, "missed": 3}[goes]
    if goes == "left":
        trading.time_ms += 30_000
        trading.do(owner_commands.leave_task, owners[3].caller, task.id)
    else:
        for owner in owners[:3]:
            trading.plan(owner, task)
        trading.wait(60)
    task = trading.task(task.id)
    assert task.first_tick == first
    assert task.deadline_ms == trading.time_ms + 600_000
    task = trading.play(owners[:3], task)
    assert last(trading, task, "last-tick")["closed_tick"] > 2
    assert_settled_by_rule(trading, task, owners[:3])


def test_a_lie_at_one_tick_binds_at_all_later_ones(trading) -> None:
    """A device that steers P by one false reply cannot take it back at the end."""
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    liar = replace(owners[2], value=3.0)
    for owner in (*owners[:2], liar):
        trading.plan(owner, task)
    trading.advance()
    task = trading.task(task.id)
    honest, lie = best_budget(owners[2], task), best_budget(liar, task)
    assert honest > lie
    with pytest.raises(Exception, match="contradicts"):
        trading.plan(owners[2], task, honest)
    trading.plan(owners[2], task, lie)
