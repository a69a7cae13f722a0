"""An owner steps back before settlement: nothing of it is sold, and it does not come back."""

import threading
from dataclasses import replace

import pytest

from fedbourse.errors import Conflict, LeftTask, NotAllowed, NotFound
from fedbourse.game import equilibrium
from fedbourse.market import price_discovery, what_if
from fedbourse.market.audit import verify_task
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.records import State
from fedbourse.market.service import escrow
from fedbourse.storage.sql import SqlTransaction
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, caller

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


def interested(trading, owners, *, report=True, **changes):
    """A task that is open, and that these owners like."""
    task = trading.opened(**changes)
    for owner in owners:
        register(trading, owner, task, value=owner.value if report else None)
    return task


def register(trading, owner, task, value=None):
    options = {"value": value, "previous": task.card.digest}
    return trading.do(owner_commands.register_interest, owner.caller, task.id, **options)


def step_back(trading, owner, task, *, by_token=False):
    who = caller(owner.name) if by_token else owner.caller
    return trading.do(owner_commands.leave_task, who, task.id)


def assert_right(trading, task, owners):
    for viewer in (None, *owners):
        found = trading.verified(task.id, owner=viewer)
        assert [check for check in found if check.passed is False] == []


@pytest.mark.parametrize("by_token", [False, True])
def test_an_interest_that_was_withdrawn_no_longer_counts(trading, by_token) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = interested(trading, owners)
    step_back(trading, owners[0], task, by_token=by_token)
    participation = trading.participation(owners[0], task.id)
    assert participation["interest"] is participation["plan"] is None
    assert (participation["exit"]["reason"], participation["exit"]["at_ms"]) == (
        "left",
        trading.time_ms,
    )
    with trading.store.read() as tx:
        assert (tx.count_interests(task.id), tx.count_reported(task.id)) == (2, 2)
    task = trading.do(buyer_commands.announce, BUYER, task.id)
    assert task.interested == 2
    task = trading.play(owners[1:], task)
    sold = {allocation.owner: allocation.budget for allocation in trading.allocations(task.id)}
    known = equilibrium([1.1, 1.2], reward=10.0)
    assert [sold[owner.name] for owner in owners[1:]] == pytest.approx(known.dense(), rel=1e-6)
    assert owners[0].name not in sold
    assert_right(trading, task, owners)


def test_a_reward_of_reported_values_leaves_out_the_withdrawn_one(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    rule = {"reward": "best-reported", "max_reward": 10.0}
    task = interested(trading, owners, **rule)
    step_back(trading, owners[0], task)
    trading.fund(R, reference="second")
    task = trading.do(buyer_commands.announce, BUYER, task.id)
    other = interested(trading, owners[1:], **rule)
    other = trading.do(buyer_commands.announce, BUYER, other.id)
    assert (task.reward, task.total_budget) == (other.reward, other.total_budget)
    assert_right(trading, task, owners)


def test_a_plan_that_was_withdrawn_counts_as_silence_and_nobody_waits_for_it(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners, report=True)
    for owner in owners:
        trading.plan(owner, task)
    step_back(trading, owners[0], task, by_token=True)
    participation = trading.participation(owners[0], task.id)
    assert participation["plan"] is None
    assert participation["interest"]["value"] == 1.0  # the log vouches for it
    assert trading.advance() == 1  # the two who are left have answered
    seen = trading.events(task.id)[-1].body
    assert (seen["replies"], seen["positive"], seen["out"]) == (2, 2, 1)
    assert seen["offer"]["interested"] == 3
    task = trading.play(owners[1:], trading.task(task.id))
    assert task.state is State.SETTLED
    assert {allocation.owner for allocation in trading.allocations(task.id)} == {
        o.name for o in owners[1:]
    }
    assert sum(allocation.payment for allocation in trading.allocations(task.id)) == R
    assert_right(trading, task, owners)


def test_a_withdrawal_between_two_ticks_ends_with_the_others_equilibrium(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2, 1.3)
    task = trading.announced(owners)
    for owner in owners:
        trading.plan(owner, task)
    assert trading.advance() == 1
    task = trading.task(task.id)
    assert (task.state, task.tick) == (State.ANNOUNCED, 1)
    step_back(trading, owners[3], task)
    (reply,) = trading.participation(owners[3], task.id)["replies"]  # the log vouches for its hash
    assert (reply["budget"], reply["salt"]) == (None, "")
    task = trading.play(owners[:3], task)
    known = equilibrium([1.0, 1.1, 1.2], reward=10.0)
    sold = [allocation.budget for allocation in trading.allocations(task.id)]
    assert sold == pytest.approx(known.dense(), rel=1e-6)
    assert_right(trading, task, owners)


@pytest.mark.parametrize("state", ["open", "announced"])
def test_who_has_withdrawn_does_not_come_back(trading, state) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = interested(trading, owners)
    if state == "open":
        step_back(trading, owners[0], task)
        with pytest.raises(LeftTask, match="you have left this task"):
            register(trading, owners[0], task)
    task = trading.do(buyer_commands.announce, BUYER, task.id)
    if state == "announced":
        step_back(trading, owners[0], task)
    with pytest.raises(LeftTask, match="you have left this task"):
        trading.plan(owners[0], task, 1.0)
    assert trading.participation(owners[0], task.id)["plan"] is None


def test_withdrawing_again_changes_nothing(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    first = step_back(trading, owners[0], task)
    trading.time_ms += 1000
    assert step_back(trading, owners[0], task, by_token=True) == first
    task = trading.play(owners[1:], task)
    assert task.state is State.SETTLED
    assert step_back(trading, owners[0], task) == first  # it still holds


def test_nobody_withdraws_from_what_is_settled(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.settled(owners)
    for owner in owners:
        with pytest.raises(Conflict, match="leave needs a task that is open or announced"):
            step_back(trading, owner, task)
    trading.decide(owners[0], task.id, accept=False)
    assert {allocation.owner for allocation in trading.allocations(task.id)} == {
        o.name for o in owners
    }
    assert_right(trading, task, owners)


def test_a_withdrawal_after_the_deadline_still_comes_before_the_settlement(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    for owner in owners:
        trading.plan(owner, task, 0.5)
    trading.time_ms = task.deadline_ms
    step_back(trading, owners[0], task)
    trading.advance()
    # The others have all of the ticks and the time again.
    task = trading.play(owners[1:], trading.task(task.id), lambda owner, task: 0.5)
    assert task.state is State.SETTLED
    assert {allocation.owner for allocation in trading.allocations(task.id)} == {
        o.name for o in owners[1:]
    }
    assert_right(trading, task, owners)


def test_too_few_who_are_left_in_an_open_task_are_not_announced_to(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = interested(trading, owners)
    step_back(trading, owners[0], task)
    with pytest.raises(Conflict, match="needs 2 participants, and 1 are interested"):
        trading.do(buyer_commands.announce, BUYER, task.id)
    trading.time_ms = task.deadline_ms
    trading.advance()
    assert trading.task(task.id).state is State.CANCELLED
    assert trading.balance(BUYER.party) == R


@pytest.mark.parametrize("least", [2, 3])
def test_an_announced_task_with_too_few_left_ends_at_once_and_is_refunded(trading, least) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners, report=True, min_participants=least)
    for owner in owners:
        trading.plan(owner, task, 0.5)
    for owner in owners[: 4 - least]:
        assert trading.balance(escrow(task.id)) == R
        step_back(trading, owner, task)
    assert trading.advance() == 1
    task = trading.task(task.id)
    assert task.state is State.CANCELLED
    last = trading.events(task.id)[-1].body
    assert f"needs {least} participants, and {least - 1} have planned" in last["reason"]
    assert trading.balance(BUYER.party) == R
    assert trading.balance(escrow(task.id)) == 0
    assert_right(trading, task, owners)


def test_everybody_may_leave(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    for owner in owners:
        step_back(trading, owner, task)
    assert trading.advance() == 1
    assert trading.task(task.id).state is State.CANCELLED
    assert_right(trading, task, owners)


def test_only_an_owner_who_is_interested_withdraws_and_only_itself(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners[:2])
    with pytest.raises(NotFound, match="registered no interest"):
        step_back(trading, owners[2], task)
    for who in (BUYER, OPERATOR, AUDITOR, replace(owners[0].caller, scopes=frozenset())):
        with pytest.raises(NotAllowed):
            trading.do(owner_commands.leave_task, who, task.id)
    assert all(trading.participation(owner, task.id)["exit"] is None for owner in owners)
    draft = trading.do(buyer_commands.create, BUYER, task.card)
    with pytest.raises(NotFound, match="there is no task"):
        step_back(trading, owners[0], draft)


@pytest.mark.parametrize("state", ["open", "announced"])
def test_the_log_says_nothing_of_a_withdrawal(trading, state) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = interested(trading, owners)
    if state == "announced":
        task = trading.do(buyer_commands.announce, BUYER, task.id)
    before = trading.events(task.id)
    step_back(trading, owners[0], task)
    assert trading.events(task.id) == before
    assert trading.task(task.id) == replace(task, asked=2 if state == "announced" else 0)
    task = trading.do(buyer_commands.announce, BUYER, task.id) if state == "open" else task
    trading.play(owners[1:], task)
    assert not any(owners[0].name in str(event.body) for event in trading.events(task.id))


def test_what_was_told_is_deleted_or_can_be_erased_at_the_end(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners, report=True)
    step_back(trading, owners[0], task)
    trading.play(owners[1:], task)
    trading.do(buyer_commands.cancel, BUYER, task.id)
    trading.do(owner_commands.erase, owners[0].caller, task.id)
    assert trading.participation(owners[0], task.id)["interest"]["value"] is None
    assert_right(trading, trading.task(task.id), owners)


def test_a_what_if_counts_withdrawn_values_no_more(trading) -> None:
    owners = trading.owners(*[1.0 + i / 10 for i in range(5)])
    task = interested(trading, owners)
    asked = {"rewards": [10.0]}
    assert trading.shown(what_if.of_task, BUYER, task.id, **asked)["basis"] == "reported"
    step_back(trading, owners[4], task)
    assert trading.shown(what_if.of_task, BUYER, task.id, **asked)["basis"] == "assumed"


def test_an_owner_sees_that_a_market_ignored_its_withdrawal(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    step_back(trading, owners[0], task)
    task = trading.play(owners[1:], task)
    checks = {check.name: check for check in trading.verified(task.id, owner=owners[0])}
    assert checks["own allocation"].passed
    assert "no allocation of yours" in checks["own allocation"].detail
    records = trading.records(task.id, viewer=owners[1])
    records["own"]["exit"] = {"reason": "left", "tick": 0, "at_ms": 5}
    checks = {check.name: check for check in verify_task(**records)}
    assert checks["own allocation"].passed is False
    assert "has an allocation of yours" in checks["own allocation"].detail


# -- at the same moment ----------------------------------------------------------------------------


def plan_in_flight(trading, owner, task):
    """Withdraw while the owner's plan is not stored yet; return what is left of it."""
    options = {"tick": task.tick, "budget": 0.5, "previous": task.offer}
    with trading.store.begin() as tx:
        owner_commands.submit_plan(trading.market, tx, owner.caller, task.id, **options)
        thread = threading.Thread(target=step_back, args=(trading, owner, task))
        thread.start()
        thread.join(0.4)  # it has to wait
    thread.join()
    return trading.participation(owner, task.id)["plan"]


def test_a_plan_in_flight_goes_with_the_withdrawal(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    assert plan_in_flight(trading, owners[0], task) is None
    assert trading.participation(owners[0], task.id)["exit"] is not None


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)  # SQLite's writers are alone
def test_a_withdrawal_that_does_not_wait_would_be_seen(trading, monkeypatch) -> None:
    locked = SqlTransaction.task
    monkeypatch.setattr(
        SqlTransaction, "task", lambda self, task, *, lock="none": locked(self, task, lock="share")
    )
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    assert plan_in_flight(trading, owners[0], task) is not None


def test_a_withdrawal_and_a_settlement_at_once_have_an_order(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    for owner in owners:
        trading.plan(owner, task, 0.5)
    found = []

    def late() -> None:
        try:
            step_back(trading, owners[0], task)
        except Conflict as error:
            found.append(str(error))

    trading.time_ms = task.deadline_ms
    with trading.store.begin() as tx:
        price_discovery.close_tick(trading.market, tx, task.id)
        thread = threading.Thread(target=late)
        thread.start()
        thread.join(0.3)
    thread.join()
    assert found == ["leave needs a task that is open or announced; it is settled"]
    assert len(trading.allocations(task.id)) == 3
    assert_right(trading, task, owners)


def test_what_was_answered_to_earlier_writes_is_forgotten(trading) -> None:
    from fedbourse.market.records import Response

    owners = trading.owners(1.0, 1.1)
    task = interested(trading, owners)
    with trading.store.begin() as tx:
        for number, party in enumerate([owners[0].name, owners[1].name]):
            assert tx.claim(party, f"key-{number}", "f", expires_ms=1) is None
            said = Response("f", 200, f'{{"task":"{task.id}","value":1.0}}')
            tx.keep_response(party, f"key-{number}", said)
    step_back(trading, owners[0], task)
    with trading.store.begin() as tx:
        assert tx.claim(owners[0].name, "key-0", "f", expires_ms=1) is None
        assert tx.claim(owners[1].name, "key-1", "f", expires_ms=1) is not None
