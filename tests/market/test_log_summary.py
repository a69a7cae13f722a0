"""What a task's log says in numbers is what happened."""

import pytest

from fedbourse.market import log_summary
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.commands import owner as owner_commands
from fedbourse.market.log_summary import LogSummary, out_words, summary_of
from fedbourse.market.records import State
from fedbourse.tasks.card import Deadlines
from fedbourse.testing.trading import BUYER, Trading, card
from web.fixtures import replied


@pytest.fixture
def funded(store):
    """A market whose buyer has money."""
    trading = Trading(store)
    trading.fund(100_000_000)
    return trading


def of(trading, task):
    return trading.see(summary_of, task.id)


def test_a_draft_has_nothing_to_say(funded) -> None:
    assert of(funded, funded.do(buyer_commands.create, BUYER, card())) == LogSummary()


def test_money_is_that_of_the_books(funded) -> None:
    task = funded.in_training(funded.owners(1.0, 1.1, 1.2), reward="best", max_reward=20.0)
    seen = of(funded, task)
    assert seen.reserved_micro == 20_000_000
    assert seen.reserved_micro - seen.released_micro == task.reward
    assert seen.fund == funded.market.fund
    assert (seen.signed, seen.ended_ms) == (3, None)
    funded.wait(task.card.deadlines.round_s)  # nobody delivers
    funded.do(buyer_commands.cancel, BUYER, task.id, reason="enough")
    seen = of(funded, task)
    assert (seen.reason, seen.ended_ms) == ("enough", funded.time_ms)
    assert seen.fund_micro == funded.balance("fund") > 0
    assert seen.fund_micro + seen.refunded_micro == task.reward


def test_exits_are_counted_by_their_reason(funded) -> None:
    owners = funded.owners(1.0, 1.05, 1.1, 1.15, 1.2)
    task = funded.announced(owners)
    funded.do(owner_commands.leave_task, owners[4].caller, task.id)
    for owner in owners[:3]:
        funded.plan(owner, task)
    funded.wait(task.card.deadlines.tick_s)  # the fourth missed it
    task = replied(funded, owners[:3], task.id)
    assert of(funded, task).out_counts == {"left": 1, "missed": 1, "struck_out": 0}
    for owner in owners[:3]:
        funded.decide(owner, task.id, accept=owner is not owners[2])
    funded.advance()
    seen = of(funded, task)
    assert (seen.restarts, seen.out) == (1, 3)
    assert (seen.settlement is None) == (funded.task(task.id).state is State.ANNOUNCED)
    task = replied(funded, owners[:2], task.id)
    seen = of(funded, task)
    assert seen.out_counts == {"left": 1, "missed": 1, "struck_out": 1}
    assert (seen.settlement.tick, seen.settlement.owners) == (task.settled_tick, 2)
    assert out_words(seen.out_counts) == "1 left, 1 missed a tick, 1 declined or did not sign"
    assert out_words(dict.fromkeys(seen.out_counts, 0)) == "nobody"


def test_a_settlement_says_whether_it_converged(funded) -> None:
    task = funded.settled(funded.owners(1.0, 1.1))
    assert "converged; no owner could gain more than" in of(funded, task).settlement.words
    owners = funded.owners(1.0, 1.1)
    task = funded.announced(owners, deadlines=Deadlines(tick_s=60, plans_s=30))
    for owner in owners:
        funded.plan(owner, task, 0.3 * task.total_budget)
    funded.wait(30)
    seen = of(funded, task)
    assert "by rule: the total had not converged; no owner" in seen.settlement.words
    assert "while the others keep theirs" in seen.settlement.words


def test_rounds_are_left_aside_however_many_events_there_are(funded, monkeypatch) -> None:
    task = funded.completed(funded.owners(1.0, 1.1), rounds=7)
    whole = of(funded, task)
    monkeypatch.setattr(log_summary, "_AT_ONCE", 1)
    assert of(funded, task) == whole
    assert whole.ended_ms is not None
