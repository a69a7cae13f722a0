"""Where pay goes that nobody earned: by the card, and to the last micro-credit."""

import doctest
import itertools
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbourse.market import unearned
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.market.unearned import shared_bonuses, shared_pay, undelivered_pay
from fedbourse.protocol.messages import earned
from fedbourse.testing.trading import BUYER, OPERATOR, Trading
from market.life_invariants import sqlite_stores

R = 10_000_000
RULES = ("fund", "refund", "share")


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


# -- the arithmetic --------------------------------------------------------------------------------


@st.composite
def trainings(draw: st.DrawFn):
    """Payments, who delivered each closed round, who the open one, and how many rounds there are.

    Nobody delivers an open round where all are closed.
    """
    names = [f"owner:{i}" for i in range(draw(st.integers(1, 6)))]
    amount = st.one_of(st.integers(1, 12), st.integers(1, 2**53))
    payments = {name: draw(amount) for name in names}
    rounds = draw(st.integers(1, 7))
    closed = draw(st.integers(0, rounds))
    some = st.lists(st.sampled_from(names), unique=True).map(sorted)
    deliverers = [draw(some) for _ in range(closed)]
    early = draw(some) if closed < rounds else []
    return payments, deliverers, early, rounds


def exact_pay(payments, deliverers, rounds) -> dict[str, Fraction]:
    """THEORY: each round brings R/T to those who delivered it, in proportion to their payments."""
    reward = sum(payments.values())
    pay = dict.fromkeys(payments, Fraction(0))
    for names in deliverers:
        for name in names:
            part = Fraction(payments[name], sum(payments[each] for each in names))
            pay[name] += Fraction(reward, rounds) * part
    return pay


@given(trainings())
def test_shared_pay_is_exact_and_rounded_by_largest_remainder(training) -> None:
    payments, deliverers, _, rounds = training
    exact, pay = (
        exact_pay(payments, deliverers, rounds),
        shared_pay(payments, deliverers, rounds=rounds),
    )
    assert sum(pay.values()) == int(sum(exact.values()))
    assert all(int(exact[name]) <= pay[name] <= int(exact[name]) + 1 for name in payments)
    up = [exact[name] - int(exact[name]) for name in payments if pay[name] > int(exact[name])]
    down = [exact[name] - int(exact[name]) for name in payments if pay[name] == int(exact[name])]
    assert not up or not down or min(up) >= max(down)


@given(trainings())
def test_whoever_delivers_never_earns_less_where_rounds_are_shared(training) -> None:
    payments, deliverers, _, rounds = training
    delivered = Counter(itertools.chain(*deliverers))
    pay = shared_pay(payments, deliverers, rounds=rounds)
    for name, payment in payments.items():
        assert pay[name] >= earned(payment, delivered=delivered[name], rounds=rounds)
        assert pay[name] == 0 or delivered[name]
    if len(deliverers) == rounds and all(deliverers):
        assert sum(pay.values()) == sum(payments.values())  # nothing is left for anybody else


@given(trainings())
def test_escrow_always_holds_what_is_shared_and_what_is_not_delivered(training) -> None:
    """Also where answers to a round that was never closed are paid."""
    payments, deliverers, early, rounds = training
    delivered = Counter(itertools.chain(*deliverers))
    counted = delivered + Counter(early)
    left = sum(payments.values()) - sum(
        earned(payment, delivered=counted[name], rounds=rounds)
        for name, payment in payments.items()
    )
    absent = undelivered_pay(payments, delivered, closed_rounds=len(deliverers), rounds=rounds)
    assert 0 <= absent <= left
    bonuses = shared_bonuses(payments, deliverers, rounds=rounds, most=absent)
    assert all(bonus > 0 and delivered[name] for name, bonus in bonuses.items())
    assert sum(bonuses.values()) <= absent
    if all(deliverers):
        # All that absentees leave is shared, in whole micro-credits.
        assert sum(bonuses.values()) == absent


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(unearned).failed == 0


# -- the market ------------------------------------------------------------------------------------


def balances(trading, owners) -> dict[str, int]:
    names = [BUYER.party, FUND, *(owner.name for owner in owners)]
    return {name: trading.balance(name) for name in names}


def assert_verified(trading, task, owners) -> None:
    for viewer in (None, *owners):
        checks = trading.verified(task.id, owner=viewer)
        assert [check for check in checks if check.passed is False] == []


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_what_absentees_leave_goes_where_the_card_says(trading, rule) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.completed(owners, rounds=3, unearned=rule, absent={(0, 0), (1, 0), (1, 1)})
    pay = {allocation.owner: int(allocation.payment) for allocation in trading.allocations(task.id)}
    first, second, third = (owner.name for owner in owners)
    own = {first: pay[first] // 3, second: pay[second] * 2 // 3, third: pay[third]}
    absent = R - sum(own.values())
    moved = balances(trading, owners)
    assert trading.balance(escrow(task.id)) == 0
    if rule == "share":
        deliverers = [[second, third], [third], [first, second, third]]
        assert {name: moved[name] for name in own} == shared_pay(pay, deliverers, rounds=3)
        assert (moved[BUYER.party], moved[FUND]) == (0, 0)
    else:
        assert {name: moved[name] for name in own} == own
        assert moved[BUYER.party] == (absent if rule == "refund" else 0)
        assert moved[FUND] == (absent if rule == "fund" else 0)
    ended = trading.events(task.id)[-1].body
    assert (ended["refunded_micro"], ended["fund_micro"], ended["shared_micro"]) == tuple(
        absent if rule == each else 0 for each in ("refund", "fund", "share")
    )
    assert_verified(trading, task, owners)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("who", [BUYER, OPERATOR], ids=str)
def test_a_cancelled_training_returns_open_rounds_and_keeps_closed_ones_apart(
    trading, rule, who
) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners, rounds=4, unearned=rule)
    task = trading.trained(owners, task, absent={(0, 0), (1, 1)}, until=2)
    trading.update(owners[0], task)  # a round that will not be closed
    trading.do(buyer_commands.cancel, who, task.id)
    pay = {allocation.owner: int(allocation.payment) for allocation in trading.allocations(task.id)}
    first, second, third = (owner.name for owner in owners)
    own = {first: pay[first] * 2 // 4, second: pay[second] // 4, third: pay[third] * 2 // 4}
    # The answer to round 2 makes up for neither of the rounds that were missed.
    absent = pay[first] * 2 // 4 - pay[first] // 4 + pay[second] * 2 // 4 - pay[second] // 4
    moved = balances(trading, owners)
    got = sum(moved[name] - own[name] for name in own)
    assert sum(moved.values()) == R
    assert {name: moved[name] >= own[name] for name in own} == dict.fromkeys(own, True)
    assert got == (absent if rule == "share" else 0)
    assert moved[FUND] == (absent if rule == "fund" else 0)
    assert moved[BUYER.party] == R - sum(own.values()) - (0 if rule == "refund" else absent)
    assert_verified(trading, task, owners)


def test_a_task_cancelled_in_its_first_round_is_returned_but_for_what_was_delivered(
    trading,
) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners)
    trading.update(owners[0], task)
    trading.do(buyer_commands.cancel, BUYER, task.id)
    assert trading.balance(FUND) == 0
    assert trading.balance(BUYER.party) == R - trading.balance(owners[0].name)


def test_a_puppet_that_stays_away_returns_nothing_to_its_buyer(trading) -> None:
    """The buyer's attack: take part under another name, sign, and never deliver."""
    owners = trading.owners(1.0, 1.0, 1.0)
    task = trading.completed(owners, absent={(number, 2) for number in range(4)})
    assert trading.balance(BUYER.party) == 0
    assert trading.balance(FUND) == pytest.approx(R / 3, abs=1)
    assert task.state is State.COMPLETED


@st.composite
def endings(draw: st.DrawFn):
    """Rounds, who stays away from which, when the buyer cancels, and who was faster than that."""
    rounds = draw(st.integers(1, 5))
    cells = st.tuples(st.integers(0, rounds - 1), st.integers(0, 2))
    return rounds, draw(st.sets(cells)), draw(st.integers(0, rounds)), draw(st.sets(cells))


@pytest.mark.slow
@settings(max_examples=25)
@given(ending=endings(), rule=st.sampled_from(RULES), reward=st.sampled_from([3, 7, 10, 1_000_003]))
def test_any_training_that_ends_anywhere_adds_up(sqlite_template, ending, rule, reward) -> None:
    """Also with rewards of a few micro-credits, where floors matter most."""
    rounds, absent, closed, early = ending
    with sqlite_stores(sqlite_template)() as store:
        trading = Trading(store)
        trading.fund(reward)
        owners = trading.owners(1.0, 1.1, 1.2)
        task = trading.in_training(owners, reward=reward / 1e6, rounds=rounds, unearned=rule)
        task = trading.trained(owners, task, absent=absent, until=closed)
        if task.state is State.TRAINING:
            chosen = {allocation.owner for allocation in trading.allocations(task.id)}
            for place, owner in enumerate(owners):
                if owner.name in chosen and (closed, place) in early:
                    trading.update(owner, task)
            trading.do(buyer_commands.cancel, BUYER, task.id)
        ended = trading.events(task.id)[-1].body
        assert trading.balance(escrow(task.id)) == 0
        assert trading.balance(FUND) == ended["fund_micro"]
        assert trading.balance(BUYER.party) == ended["refunded_micro"]
        for allocation in trading.allocations(task.id):
            own = earned(allocation.payment, delivered=allocation.delivered, rounds=rounds)
            assert trading.balance(allocation.owner) == allocation.earned >= own
            assert allocation.earned == own or rule == "share"
        assert_verified(trading, task, owners)
