"""What a buyer does: drafts, escrow and cancelling."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from fedbourse.errors import Conflict, InvalidInput, InvalidTransfer
from fedbourse.market import merkle
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.records import State
from fedbourse.market.service import escrow
from fedbourse.tasks.card import Assumptions
from fedbourse.testing.trading import BUYER, OPERATOR, Trading, card

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


def test_a_draft_starts_the_log_with_its_card(trading) -> None:
    task = trading.do(buyer_commands.create, BUYER, card())
    (created,) = trading.events(task.id)
    assert created.previous == task.card.digest == created.body["card"]
    assert trading.task(task.id) == task
    assert int(task.id[:12], 16) == trading.time_ms


def test_a_card_that_is_too_large_for_the_market_is_refused(trading) -> None:
    with pytest.raises(InvalidInput, match="rounds must be at most 1000000 on this market"):
        trading.do(buyer_commands.create, BUYER, card(rounds=10**6 + 1))
    with pytest.raises(InvalidInput, match="dimension must be at most 1000000"):
        trading.do(buyer_commands.create, BUYER, card(features=10**6 + 1, dimension=10**6 + 1))


def test_escrow_holds_all_of_the_reward_or_nothing_is_opened(trading) -> None:
    first = trading.opened()
    assert (trading.balance(escrow(first.id)), trading.balance(BUYER.party)) == (R, 0)
    assert trading.events(first.id)[-1].body["reserved_micro"] == R
    second = trading.do(buyer_commands.create, BUYER, card())
    with pytest.raises(InvalidTransfer, match=r"whole reward, 10\.0+ credits; buyer:acme has 0"):
        trading.do(buyer_commands.open_task, BUYER, second.id)
    assert trading.task(second.id).state is State.DRAFT
    assert trading.balance(escrow(first.id)) == R


def test_a_buyer_with_one_micro_credit_too_little_opens_nothing(trading) -> None:
    task = trading.do(buyer_commands.create, BUYER, card(reward=10.000001))
    with pytest.raises(InvalidTransfer, match=r"whole reward, 10\.000001 credits"):
        trading.do(buyer_commands.open_task, BUYER, task.id)
    trading.fund(1, reference="more")
    assert trading.do(buyer_commands.open_task, BUYER, task.id).state is State.OPEN
    assert trading.balance(BUYER.party) == 0


@pytest.mark.parametrize("reward", ["best", "best-reported"])
def test_a_reward_that_is_still_unknown_reserves_the_most_it_may_be(trading, reward) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.opened(
        reward=reward, max_reward=10.0, assumptions=Assumptions(accuracy_value=5.0)
    )
    assert (trading.balance(escrow(task.id)), trading.balance(BUYER.party)) == (R, 0)
    for owner in owners:
        said = {"value": owner.value, "previous": task.card.digest}
        trading.do(owner_commands.register_interest, owner.caller, task.id, **said)
    task = trading.do(buyer_commands.announce, BUYER, task.id)
    assert 0 < task.reward < R
    assert trading.balance(escrow(task.id)) == task.reward
    assert trading.balance(BUYER.party) == R - task.reward
    assert trading.events(task.id)[-1].body["released_micro"] == R - task.reward
    assert [check for check in trading.verified(task.id) if check.passed is False] == []


def test_a_card_that_pays_upfront_is_opened_only_where_that_is_confirmed(trading) -> None:
    task = trading.do(buyer_commands.create, BUYER, card(vesting="upfront"))
    with pytest.raises(Conflict, match="deliver nothing: it keeps all of its pay; confirm"):
        trading.do(buyer_commands.open_task, BUYER, task.id)
    assert trading.balance(BUYER.party) == R
    assert (
        trading.do(buyer_commands.open_task, BUYER, task.id, confirm_upfront=True).state
        is State.OPEN
    )


def test_the_log_says_where_unearned_pay_goes_from_the_opening_on(trading) -> None:
    trading.market = replace(trading.market, fund_pays_to="the hospital's library")
    opened = trading.events(trading.opened().id)[-1].body
    assert opened["fund"] == {"account": "fund", "pays_to": "the hospital's library"}


@pytest.mark.parametrize("needed", [2, 3, 4])
def test_fewer_than_the_card_needs_is_too_few(trading, needed) -> None:
    owners = trading.owners(*[1.0] * (needed - 1))
    with pytest.raises(Conflict, match=f"needs {needed} participants, and {needed - 1} are"):
        trading.announced(owners, min_participants=needed)


def test_the_settlement_in_the_log_vouches_for_every_line(trading) -> None:
    owners = trading.owners(*[1.0 + i / 50 for i in range(11)])
    task = trading.settled(owners)
    allocations = trading.allocations(task.id)
    settled = trading.events(task.id)[-1].body
    leaves = [allocation.leaf for allocation in allocations]
    assert [allocation.position for allocation in allocations] == list(range(len(allocations)))
    assert settled["allocations_root"] == merkle.root(leaves)
    total = sum(Fraction(allocation.budget) for allocation in allocations)
    for allocation in allocations:
        assert abs(allocation.payment - R * Fraction(allocation.budget) / total) < 1
        path = merkle.proof(leaves, allocation.position)
        assert merkle.proves(
            path,
            leaf=allocation.leaf,
            position=allocation.position,
            leaves=len(allocations),
            root=settled["allocations_root"],
        )
    assert len({allocation.salt for allocation in allocations}) == len(allocations)


def test_a_reward_too_small_for_all_pays_some_and_still_sums(trading) -> None:
    owners = trading.owners(*[1.0] * 5)
    task = trading.settled(owners, budgets=[1.0] * 5, reward=3e-6)
    assert [allocation.payment for allocation in trading.allocations(task.id)] == [1, 1, 1]
    assert trading.events(task.id)[-1].body["plans"] == 5
    assert [check for check in trading.verified(task.id) if check.passed is False] == []


@pytest.mark.parametrize("who", [BUYER, OPERATOR], ids=str)
@pytest.mark.parametrize("stage", ["draft", "open", "announced", "settled", "training"])
def test_cancelling_gives_back_what_nobody_earned(trading, stage, who) -> None:
    owners = trading.owners(1.0, 1.1)
    task = {
        "draft": lambda: trading.do(buyer_commands.create, BUYER, card()),
        "open": trading.opened,
        "announced": lambda: trading.announced(owners),
        "settled": lambda: trading.settled(owners),
        "training": lambda: trading.in_training(owners),
    }[stage]()
    if stage == "training":
        trading.update(owners[0], task)
    earned = trading.balance(owners[0].name)
    ended = trading.do(buyer_commands.cancel, who, task.id, reason=" no more use ")
    assert ended.state is State.CANCELLED
    assert trading.balance(escrow(task.id)) == 0
    assert trading.balance(BUYER.party) == R - earned
    last = trading.events(task.id)[-1].body
    assert last["reason"] == "no more use"
    held = 0 if stage == "draft" else R
    assert last["refunded_micro"] == held - earned
    with pytest.raises(Conflict, match="it is cancelled"):
        trading.do(buyer_commands.cancel, who, task.id)
    assert trading.balance(BUYER.party) == R - earned
    assert trading.wait(10**8) == 0


@pytest.mark.parametrize("bad", ["\0", "\x07", "\ud83d"])
def test_a_reason_holds_nothing_that_clients_cannot_read(trading, bad) -> None:
    task = trading.announced(trading.owners(1.0, 1.1))
    with pytest.raises(InvalidInput, match="reason must hold no control characters"):
        trading.do(buyer_commands.cancel, BUYER, task.id, reason=f"no{bad}more")
    assert trading.task(task.id).state is State.ANNOUNCED
    assert trading.balance(escrow(task.id)) == R


def test_budgets_of_any_size_that_a_card_allows_settle(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.announced(owners, max_rho=1e100)
    with pytest.raises(InvalidInput, match="budget must be"):
        trading.plan(owners[0], task, 1.7e308)
    task = trading.play(owners, task, lambda owner, task: 1e100)
    assert task.state is State.SETTLED
    assert trading.events(task.id)[-1].body["total_budget"] == pytest.approx(2e100)
    assert math.isfinite(task.total_budget)


def test_nobody_who_sells_at_any_total_ends_the_task_in_a_few_ticks(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.play(owners, trading.announced(owners), lambda owner, task: 0.0)
    assert task.state is State.CANCELLED
    assert task.tick < 30
    assert trading.balance(BUYER.party) == R


@pytest.mark.slow
def test_three_hundred_withheld_values_reach_the_equilibrium(sqlite_template, tmp_path) -> None:
    import shutil

    from fedbourse.game import equilibrium
    from fedbourse.storage import SqlStore

    file = shutil.copy(sqlite_template, tmp_path / "market.db")
    with SqlStore(f"sqlite:///{file}") as store:
        trading = Trading(store)
        owners = trading.owners(*[1.0 + i / 100 for i in range(300)])
        trading.fund(R)
        task = trading.settled(owners)
        allocations = {
            allocation.owner: allocation.budget for allocation in trading.allocations(task.id)
        }
        known = equilibrium([owner.value for owner in owners], reward=10.0)
        assert task.tick <= 15
        found = [allocations.get(owner.name, 0.0) for owner in owners]
        assert found == pytest.approx(known.dense(), rel=1e-6, abs=1e-9)


def test_a_buyer_has_a_bounded_number_of_unfinished_tasks(trading, monkeypatch) -> None:
    trading.fund(2 * R, reference="more")
    monkeypatch.setattr(buyer_commands, "TASKS_MAX", 2)
    first = trading.opened()
    trading.opened()
    with pytest.raises(Conflict, match="buyer:acme has 2 drafts and tasks that have not ended"):
        trading.opened()
    trading.do(buyer_commands.cancel, BUYER, first.id)
    trading.opened()
