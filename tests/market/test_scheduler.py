"""Deadlines act by themselves."""

from dataclasses import replace

import pytest

from fedbourse.errors import Conflict
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.commands import scheduler
from fedbourse.market.commands import training as training_commands
from fedbourse.market.records import State
from fedbourse.market.service import FUND, escrow
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.trading import BUYER, OPERATOR, Trading

R = 10_000_000


@pytest.fixture
def trading(store) -> Trading:
    made = Trading(store)
    made.fund(R)
    return made


def reason(trading, task) -> str:
    last = trading.events(task.id)[-1]
    assert last.kind == "cancelled"
    assert last.body["by"] == "market"
    return last.body["reason"]


def is_refunded(trading, task) -> bool:
    return trading.balance(escrow(task.id)) == 0 and trading.balance(BUYER.party) == R


@pytest.mark.parametrize("interested", [0, 1, 2])
def test_interest_over_announces_if_there_are_enough(trading, interested) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.opened()
    for owner in owners[:interested]:
        trading.do(
            owner_commands.register_interest,
            owner.caller,
            task.id,
            value=None,
            previous=task.card.digest,
        )
    assert trading.wait(24 * 3600 - 0.001) == 0
    assert trading.wait(0.001) == 1
    task = trading.task(task.id)
    if interested == 2:
        assert task.state is State.ANNOUNCED
        assert trading.balance(escrow(task.id)) == R
    else:
        assert task.state is State.CANCELLED
        assert f"needs 2 participants, and {interested} are interested" in reason(trading, task)


def test_a_draft_has_no_deadline(trading) -> None:
    from fedbourse.testing.trading import card

    task = trading.do(buyer_commands.create, BUYER, card())
    assert trading.wait(10 * 366 * 24 * 3600) == 0
    assert trading.task(task.id).state is State.DRAFT


@pytest.mark.parametrize("planned", [0, 1, 2, 3])
def test_plans_overdue_settle_with_those_received_or_cancel(trading, planned) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    for owner in owners[:planned]:
        trading.plan(owner, task, 0.5)
    trading.wait(3600)
    # Whoever is left has all of the time again once somebody has missed a tick.
    task = trading.play(owners[:planned], trading.task(task.id), lambda owner, task: 0.5)
    if planned >= 2:
        assert task.state is State.SETTLED
        assert len(trading.allocations(task.id)) == planned
        assert sum(allocation.payment for allocation in trading.allocations(task.id)) == R
    else:
        assert task.state is State.CANCELLED
        assert f"and {planned} have planned" in reason(trading, task)
        assert is_refunded(trading, task)


def test_plans_of_zero_do_not_count_as_participants(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    for owner, budget in zip(owners, (0.0, 0.0, 1.0), strict=True):
        trading.plan(owner, task, budget)
    trading.wait(3600)
    assert trading.task(task.id).state is State.CANCELLED
    assert is_refunded(trading, task)


def test_a_tick_ends_when_all_have_replied_or_when_its_time_is_up(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    for owner in owners[:2]:
        trading.plan(owner, task)
    assert trading.wait(59.999) == 0
    trading.plan(owners[2], task)
    assert trading.advance() == 1
    task = trading.task(task.id)
    assert task.tick == 1
    assert trading.advance() == 0
    for owner in owners[:2]:
        trading.plan(owner, task)
    assert trading.wait(60) == 1
    assert trading.task(task.id).tick == 2


def test_nobody_plans_after_the_deadline_even_if_the_clock_is_late(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.announced(owners)
    trading.time_ms += 3_600_000
    with pytest.raises(Exception, match="the deadline for plan has passed"):
        trading.plan(owners[0], task, 0.5)


@pytest.mark.parametrize("signs", [0, 1, 2, 3])
def test_who_did_not_sign_in_time_is_struck_out(trading, signs) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.settled(owners)
    assert len(trading.allocations(task.id)) == 3
    for owner in owners[:signs]:
        trading.decide(owner, task.id)
    assert trading.wait(3599.999) == (1 if signs == 3 else 0)
    trading.wait(0.001)
    task = trading.task(task.id)
    if signs < 2:
        assert task.state is State.CANCELLED
        assert f"and {signs} are left to sell" in reason(trading, task)
        assert is_refunded(trading, task)
    elif signs == 2:
        assert task.state is State.ANNOUNCED
        assert trading.allocations(task.id) == []
        assert trading.participation(owners[2], task.id)["exit"]["reason"] == "unsigned"
        assert trading.balance(escrow(task.id)) == R
    else:
        assert task.state is State.TRAINING


def test_a_round_closes_with_those_who_came_and_a_void_one_leaves_the_model(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners, rounds=3)
    pay = {allocation.owner: allocation.payment for allocation in trading.allocations(task.id)}
    with trading.store.read() as tx:
        first = tx.round(task.id, 0).model_hash
    trading.update(owners[0], task)
    assert trading.wait(299.999) == 0
    assert trading.wait(0.001) == 1
    task = trading.task(task.id)
    void = trading.events(task.id)[-1].body
    assert (void["void"], void["updates"], void["model_hash"]) == (True, 1, first)
    assert trading.balance(owners[0].name) == pay[owners[0].name] // 3
    for owner in owners[:2]:
        trading.update(owner, task)
    trading.wait(300)
    task = trading.task(task.id)
    came = trading.events(task.id)[-1].body
    assert (came["void"], came["updates"]) == (False, 2)
    assert came["model_hash"] != first
    assert trading.balance(owners[0].name) == pay[owners[0].name] * 2 // 3
    assert trading.balance(owners[1].name) == pay[owners[1].name] // 3
    assert trading.balance(owners[2].name) == 0


@pytest.mark.slow
@pytest.mark.parametrize("unearned", ["fund", "refund", "share"])
def test_all_rounds_missed_pay_nobody_and_the_buyer_only_by_the_card(trading, unearned) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners, unearned=unearned)
    for _ in range(task.card.rounds):
        assert trading.wait(300) == 1
    assert trading.task(task.id).state is State.COMPLETED
    assert trading.balance(escrow(task.id)) == 0
    assert trading.balance(BUYER.party) == (R if unearned == "refund" else 0)
    assert trading.balance(FUND) == (0 if unearned == "refund" else R)
    assert all(check.passed for check in trading.verified(task.id))


def test_a_late_clock_goes_one_step_at_a_time(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.in_training(owners, rounds=2)
    assert trading.wait(10_000) == 1
    assert trading.task(task.id).round == 1
    assert trading.advance() == 0
    assert trading.task(task.id).deadline_ms == trading.time_ms + 300_000


def test_a_task_that_cannot_go_on_holds_up_no_other(trading, monkeypatch) -> None:
    trading.fund(R, reference="more")
    first, second = trading.opened(), trading.opened()
    stuck = min(first.id, second.id)
    usual = scheduler._MOVES[State.OPEN]

    def move(market, tx, task) -> None:
        if task.id == stuck:
            raise RuntimeError("a bug")
        usual(market, tx, task)

    monkeypatch.setitem(scheduler._MOVES, State.OPEN, move)
    with pytest.raises(RuntimeError, match="a bug"):
        trading.wait(24 * 3600)
    assert trading.task(stuck).state is State.OPEN
    assert trading.task(max(first.id, second.id)).state is State.CANCELLED


# -- time to review --------------------------------------------------------------------------------


REVIEW = Deadlines(review_s=600.0)


def test_the_buyer_has_time_to_review_once_everybody_has_signed(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.signed(owners, trading.settled(owners, deadlines=REVIEW))
    assert task.state is State.SETTLED
    assert task.review_ends_ms == task.deadline_ms == trading.time_ms + 600_000
    signed = trading.events(task.id)[-1]
    assert (signed.kind, signed.body["review_ends_ms"]) == ("signed", task.review_ends_ms)
    assert trading.wait(599.999) == 0
    assert trading.wait(0.001) == 1
    started = trading.task(task.id)
    assert (started.state, started.review_ends_ms) == (State.TRAINING, None)
    assert started.deadline_ms == trading.time_ms + 300_000
    assert [check for check in trading.verified(task.id) if check.passed is False] == []


def test_review_begins_with_the_last_signature_and_not_before(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.settled(owners, deadlines=REVIEW)
    trading.decide(owners[0], task.id)
    assert trading.wait(3599.999) == 0
    trading.decide(owners[1], task.id)
    assert trading.wait(0.001) == 1
    assert trading.task(task.id).review_ends_ms == trading.time_ms + 600_000


def test_the_buyer_may_start_at_once(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.signed(owners, trading.settled(owners, deadlines=REVIEW))
    assert trading.do(training_commands.start, BUYER, task.id).state is State.TRAINING
    assert trading.wait(299.999) == 0


@pytest.mark.parametrize("who", [BUYER, OPERATOR], ids=str)
def test_a_task_cancelled_while_it_is_reviewed_is_refunded_whole(trading, who) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.signed(owners, trading.settled(owners, deadlines=REVIEW))
    trading.do(buyer_commands.cancel, who, task.id)
    assert is_refunded(trading, task)
    ended = trading.task(task.id)
    assert (ended.state, ended.review_ends_ms, ended.deadline_ms) == (State.CANCELLED, None, None)
    assert [trading.balance(owner.name) for owner in owners] == [0, 0]
    assert trading.wait(10_000) == 0
    assert [check for check in trading.verified(task.id) if check.passed is False] == []


def test_nobody_changes_its_mind_while_the_buyer_reviews(trading) -> None:
    owners = trading.owners(1.0, 1.1)
    task = trading.signed(owners, trading.settled(owners, deadlines=REVIEW))
    for owner in owners:
        with pytest.raises(Conflict, match="has signed its terms already"):
            trading.decide(owner, task.id, accept=False)
        with pytest.raises(Conflict, match="leave needs a task that is open or announced"):
            trading.do(owner_commands.leave_task, owner.caller, task.id)


class Told:
    """Hears of what was committed, and looks whether it is on disk."""

    def __init__(self, trading):
        self.trading, self.due, self.events = trading, [], 0
        trading.market = replace(trading.market, on_due=self.on_due, on_event=self.on_event)

    def on_due(self, task):
        self.due.append(task)
        scheduler.advance_one(self.trading.market, self.trading.store, task)

    def on_event(self):
        self.events += 1


def test_commands_that_may_make_a_task_due_wake_the_clock_themselves(trading) -> None:
    """Nobody advances the market here but what the commands call."""
    told = Told(trading)
    owners = trading.owners(1.0, 1.1)
    task = trading.announced(owners)
    assert told.due == []
    while (task := trading.task(task.id)).state is State.ANNOUNCED:
        for owner in owners:
            trading.plan(owner, task)
    for owner in owners:
        trading.decide(owner, task.id)
    task = trading.task(task.id)
    assert task.state is State.TRAINING
    for owner in owners:
        trading.update(owner, task)
    assert trading.task(task.id).round == 1
    assert set(told.due) == {task.id}
    assert told.events == len(trading.events(task.id))


def test_who_withdraws_wakes_the_clock_and_who_is_refused_does_not(trading) -> None:
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.announced(owners)
    told = Told(trading)
    with pytest.raises(Conflict):
        trading.plan(owners[0], replace(task, tick=7), 1.0)
    assert (told.due, told.events) == ([], 0)
    for owner in owners[:2]:
        trading.plan(owner, task)
    assert trading.task(task.id).tick == 0
    trading.do(owner_commands.leave_task, owners[2].caller, task.id)
    assert trading.task(task.id).tick == 1
