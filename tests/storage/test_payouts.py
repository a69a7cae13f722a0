"""Pay-outs as records: their states are only added, and the queue finds those that are due."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from fedbourse.errors import Conflict, NotFound
from fedbourse.ledger import OUTSIDE, Transfer
from fedbourse.market.commands.payouts import (
    NEXT,
    OPEN,
    PAYOUTS,
    WAITING,
    Payout,
    PayoutState,
    PayoutStep,
)
from fedbourse.storage import SqlStore
from storage.records import ANN, BOB
from storage.test_books import raw

LARGEST = 2**53 - 1
FIRST = Payout("p1", ANN, 5, "IBAN \u00e9", 2)
SECOND = Payout("p2", BOB, LARGEST, "", 3, due_ms=7)


def request(tx, payout: Payout, *, credit: str = PAYOUTS) -> None:
    tx.add_payout(payout)
    tx.add_payout_step(PayoutStep(payout.id, 0, payout.state, payout.at_ms))
    into = Transfer(f"in/{payout.id}", OUTSIDE, payout.party, payout.amount)
    out = Transfer(f"withdrawal/{payout.id}", payout.party, credit, payout.amount)
    tx.post([into], at_ms=1)
    tx.post([out], at_ms=1)


def test_payouts_wait_until_they_are_due_and_have_left_the_books(store: SqlStore) -> None:
    with store.begin() as tx:
        request(tx, SECOND)
        tx.add_payout(FIRST)
        assert tx.due_payouts(now_ms=6, limit=9) == []  # what has not left is not paid
        assert tx.due_payouts(now_ms=7, limit=9) == [SECOND]
        request(tx, replace(FIRST, id="p0"))
        assert [each.id for each in tx.due_payouts(now_ms=9, limit=9)] == ["p0", "p2"]
        assert [each.id for each in tx.due_payouts(now_ms=9, limit=1)] == ["p0"]
        with pytest.raises(Conflict), tx.savepoint():
            tx.add_payout(FIRST)
        with pytest.raises(NotFound, match="there is no pay-out 'p9'"):
            tx.save_payout(replace(FIRST, id="p9"))
        with pytest.raises(NotFound, match="there is no pay-out 'p9'"):
            tx.payout("p9", lock="change")


def test_each_state_is_kept_and_counted(store: SqlStore) -> None:
    with store.begin() as tx:
        for number, state in enumerate(PayoutState):
            request(tx, replace(FIRST, id=f"p{number}", amount=10**number))
            moved = replace(tx.payout(f"p{number}"), state=state, note="é", trying=True)
            tx.save_payout(moved)
            assert tx.payout(moved.id) == moved
    states = list(PayoutState)
    with store.read() as tx:
        due = tx.due_payouts(now_ms=9, limit=9)
        assert [each.state for each in due] == [state for state in states if state in WAITING]
        queue = tx.open_payouts(limit=9)
        assert [each.state for each in queue] == [state for state in states if state in OPEN]
        assert [each.id for each in tx.open_payouts(after=queue[0].id, limit=1)] == [queue[1].id]
        assert tx.leaving(ANN) == sum(10**n for n, state in enumerate(states) if state in OPEN)
        assert tx.leaving(BOB) == 0
        newest = [f"p{number}" for number in reversed(range(len(states)))]
        assert [each.id for each in tx.payouts(ANN, limit=9)] == newest
        assert [each.id for each in tx.payouts(ANN, before="p3", limit=2)] == ["p2", "p1"]
        assert (tx.count_payouts(ANN, after="p"), tx.count_payouts(ANN, after="p2")) == (5, 2)
    assert set(NEXT) == set(PayoutState)


def test_an_attempt_that_did_not_end_is_due_at_a_start(store: SqlStore) -> None:
    with store.begin() as tx:
        request(tx, replace(FIRST, trying=True, due_ms=99))
        request(tx, replace(SECOND, due_ms=99))
        tx.hurry_payouts(now_ms=7)
        assert [each.id for each in tx.due_payouts(now_ms=7, limit=9)] == ["p1"]


def test_what_was_said_of_a_payout_is_never_changed(store: SqlStore, kind: str) -> None:
    with store.begin() as tx:
        request(tx, FIRST)
        tx.save_payout(replace(FIRST, state=PayoutState.SENT))
    statements = [
        "UPDATE payouts SET amount = 6",
        "UPDATE payouts SET destination = 'mine'",
        "UPDATE payouts SET party = 'owner:bob'",
        "DELETE FROM payouts",
        "UPDATE payout_steps SET state = 'returned'",
        "DELETE FROM payout_steps",
    ]
    if kind == "sqlite":
        for table in ("payouts", "payout_steps"):
            statements.append(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")
    else:
        statements += ["TRUNCATE payout_steps", "TRUNCATE payouts CASCADE"]
    for statement in statements:
        with pytest.raises(Conflict, match="never changed"):
            raw(store, statement)
    with store.begin() as tx, pytest.raises(Conflict), tx.savepoint():
        tx.add_payout_step(PayoutStep("p1", 0, PayoutState.SENT, 3))
    with store.read() as tx:
        assert tx.payout_steps("p1") == [PayoutStep("p1", 0, PayoutState.REQUESTED, 2)]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)  # PostgreSQL plans by what it counted
def test_the_queue_is_found_by_its_index(store: SqlStore) -> None:
    with store.read() as tx:
        plan = tx._connection.execute(
            text(
                "EXPLAIN QUERY PLAN SELECT * FROM payouts WHERE state IN ('requested', 'failed')"
                " AND due_ms <= 9 ORDER BY id LIMIT 9"
            )
        ).all()
    assert "ix_payouts_waiting" in str(plan)
