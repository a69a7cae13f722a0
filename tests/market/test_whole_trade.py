"""A trade from the card to the last payment, in a real database, recomputed by everybody."""

import pytest

from fedbourse.errors import Conflict
from fedbourse.game import equilibrium
from fedbourse.market import price_discovery
from fedbourse.market.records import State
from fedbourse.market.service import escrow
from fedbourse.testing.trading import BUYER, Trading


@pytest.fixture
def trading(store) -> Trading:
    return Trading(store)


@pytest.mark.slow
@pytest.mark.parametrize("vesting", ["by-round", "upfront"])
def test_a_whole_trade_pays_everybody_and_empties_escrow(trading, vesting) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3, 9.0)
    trading.fund(12_000_000)
    task = trading.in_training(owners, vesting=vesting)
    assert task.state is State.TRAINING
    assert trading.balance(BUYER.party) == 2_000_000
    chosen = {allocation.owner: allocation for allocation in trading.allocations(task.id)}
    assert sum(allocation.payment for allocation in chosen.values()) == 10_000_000
    assert owners[4].name not in chosen
    for _ in range(task.card.rounds):
        for owner in owners[:4]:
            trading.update(owner, task)
        trading.advance()
        task = trading.task(task.id)
    assert task.state is State.COMPLETED
    assert trading.balance(escrow(task.id)) == 0
    assert trading.balance(BUYER.party) == 2_000_000
    for owner in owners[:4]:
        assert trading.balance(owner.name) == chosen[owner.name].payment
    assert all(check.passed for check in trading.verified(task.id)), trading.verified(task.id)
    own = trading.verified(task.id, owner=owners[0])
    assert all(check.passed for check in own if check.name.startswith("own"))
    assert not [check for check in own if check.passed is False]


@pytest.mark.slow
def test_withheld_values_reach_the_equilibrium_in_a_handful_of_ticks(trading) -> None:
    values = [1.0 + 0.03 * i for i in range(30)]
    owners = trading.owners(*values)
    trading.fund(12_000_000)
    task = trading.settled(owners)
    known = equilibrium(values, reward=10.0)
    assert task.tick <= 12
    allocations = {allocation.owner: allocation for allocation in trading.allocations(task.id)}
    budgets = [allocations[o.name].budget if o.name in allocations else 0.0 for o in owners]
    assert budgets == pytest.approx(known.dense(), rel=1e-6, abs=1e-9)


def test_where_all_values_are_reported_the_first_total_is_the_one(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    trading.fund(12_000_000)
    task = trading.settled(owners, report=True)
    assert task.totals[0] == pytest.approx(task.totals[task.settled_tick], rel=1e-11)
    assert task.tick <= 2  # a bracket needs a total on either side


def test_settling_twice_is_refused(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    trading.fund(12_000_000)
    task = trading.settled(owners)
    with (
        trading.store.begin() as tx,
        pytest.raises(Conflict, match="tick needs a task that is announced; it is settled"),
    ):
        price_discovery.close_tick(trading.market, tx, task.id)
