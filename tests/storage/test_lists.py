"""Lists that pages show: searched, ordered, paged and summed up by the database."""

from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from fedbourse.ledger import Transfer
from fedbourse.market.records import ClosedRound, Round, State
from fedbourse.storage import SqlStore
from fedbourse.storage.count_cache import MANY, CountCache
from fedbourse.tasks.card import Assumptions
from storage.records import ACME, ANN, BOB, CARD, TASK, a_line, a_task, an_interest, with_task

OTHER = "buyer:other"
OPENED = {"last_sequence": 5}
BEST = {"reward": "best", "max_reward": 9.0, "assumptions": Assumptions(accuracy_value=20.0)}


def listed(tx, *, words=(), order="newest", skip=0, limit=99, **which):
    tasks = tx.search_tasks(words=words, order=order, skip=skip, limit=limit, **which)
    assert tx.count_tasks(words=words, **which) >= len(tasks)
    return [int(task.id) for task in tasks]


@pytest.fixture
def full(store: SqlStore) -> SqlStore:
    """Tasks 1 to 6: of two buyers, in several states, with rewards and deadlines."""
    made = [
        (ACME, State.OPEN, {"goal": "Is it LATE?", "reward": 3.0}, {"deadline_ms": 50}),
        (ACME, State.DRAFT, {"goal": "100% sure", "reward": 9.0}, {}),
        (OTHER, State.DRAFT, {"goal": "under_score", **BEST}, {}),
        (OTHER, State.COMPLETED, {"goal": "late again", "reward": 5.0}, {"reward": 7_000_000}),
        (OTHER, State.CANCELLED, {"goal": "late draft"}, {"last_sequence": 1}),
        (ACME, State.TRAINING, {"data": "Größe"}, {"deadline_ms": 20}),
    ]
    with store.begin() as tx:
        for number, (buyer, state, card, items) in enumerate(made, start=1):
            task = replace(a_task(f"{number:024d}", buyer=buyer, state=state), **OPENED | items)
            tx.add_task(replace(task, card=replace(CARD, **card)))
    return store


def test_tasks_are_found_by_all_their_words(full: SqlStore) -> None:
    with full.read() as tx:
        assert listed(tx) == [6, 5, 4, 3, 2, 1]
        assert listed(tx, words=["late"]) == [6, 5, 4, 1]
        assert listed(tx, words=["late", "acme"]) == [6, 1]
        assert listed(tx, words=["größe".casefold()]) == [6]
        # What a database takes for a pattern is a character like others.
        assert listed(tx, words=["100%"]) == listed(tx, words=["%"]) == [2]
        assert listed(tx, words=["under_"]) == [3]
        assert listed(tx, words=["r_s"]) == [3]
        assert listed(tx, words=["'; DROP TABLE tasks"]) == []


def test_tasks_never_opened_are_their_buyers(full: SqlStore) -> None:
    with full.read() as tx:
        assert listed(tx, seen_by="") == [6, 4, 1]
        assert listed(tx, seen_by=ACME) == [6, 4, 2, 1]
        assert listed(tx, seen_by=OTHER) == [6, 5, 4, 3, 1]
        assert tx.count_tasks(seen_by=ACME) == 4
        newest = tx.tasks(seen_by=ACME, before=f"{6:024d}", limit=2)
        assert [int(task.id) for task in newest] == [4, 2]


def test_tasks_are_put_in_order_and_paged_by_the_database(full: SqlStore) -> None:
    with full.read() as tx:
        # Fixed or promised; what is still to be computed comes last.
        assert listed(tx, order="reward") == [2, 4, 1, 6, 5, 3]
        assert listed(tx, order="deadline") == [6, 1, 5, 4, 3, 2]
        for order in ("newest", "reward", "deadline"):
            paged = [listed(tx, order=order, skip=2 * page, limit=2) for page in range(4)]
            assert list(chain(*paged)) == listed(tx, order=order)
        assert listed(tx, states=[State.OPEN, State.TRAINING]) == [6, 1]


def test_interests_are_counted_for_several_tasks_at_once(full: SqlStore) -> None:
    first, last = f"{1:024d}", f"{6:024d}"
    with full.begin() as tx:
        for owner in (ANN, BOB):
            tx.put_interest(an_interest(owner, task=first))
        assert tx.counts_of_interests([first, last]) == {first: 2}
        assert tx.counts_of_interests([]) == {}


def test_rounds_that_are_closed_are_listed_with_their_updates(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as tx:
        for number in range(4):
            tx.add_round(Round(TASK, number, b"m", "h", "q", "p", 1, 2, signature="s"))
        for number in range(3):
            tx.close_round(TASK, number, at_ms=9, updates=10 + number)
        rounds = [ClosedRound(number, 10 + number) for number in range(3)]
        assert tx.closed_rounds(TASK) == rounds
        assert tx.closed_rounds(TASK, last=2) == rounds[1:]


@given(moves=st.lists(st.integers(-9, 9).filter(bool), max_size=25), rows=st.integers(1, 5))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_statement_read_backwards_is_the_one_read_forwards(store, moves, rows) -> None:
    account = f"owner:{rows}:{moves}"
    posted = [Transfer(f"{account}/first", "outside", account, 1000, "")]
    for number, move in enumerate(moves):
        route = ("escrow:1", account) if move > 0 else (account, "fund")
        posted.append(Transfer(f"{account}/{number}", *route, abs(move), ""))
    with store.begin() as tx:
        tx.post([Transfer(f"{account}/escrow", "outside", "escrow:1", 1000, "")], at_ms=1)
        for transfer in posted:
            tx.post([transfer], at_ms=1)
    with store.read() as tx:
        forwards = tx.entries(account=account, limit=999)
        moved = [e.amount if e.credit == account else -e.amount for e in forwards]
        backwards, skip = [], 0
        while page := tx.last_entries(account, skip=skip, limit=rows)[0]:
            later = tx.last_entries(account, skip=skip, limit=rows)[1]
            assert later == sum(moved[len(moved) - skip :])
            backwards += page
            skip += rows
        assert backwards[::-1] == forwards
        count = len(forwards)
        assert tx.count_entries(account) == tx.count_entries(account, at_most=99) == count
        assert tx.count_entries(account, at_most=5) == min(5, count)
        assert tx.balances_of([account, "owner:nobody"]) == {account: tx.balance(account)}
        assert tx.last_transfer() == tx.entries(limit=99_999)[-1].sequence


def test_an_owners_earnings_are_those_of_all_its_lines(store: SqlStore) -> None:
    other = TASK[:-1] + "2"
    with_task(store)
    with store.begin() as tx:
        tx.add_task(a_task(other))
        for task in (TASK, other):
            for owner in (ANN, BOB):
                tx.put_interest(an_interest(owner, task=task))
        tx.add_allocations([a_line(ANN), a_line(BOB, position=1), a_line(ANN, task=other)])
        assert tx.earned(ANN) == 0
        tx.deliver(TASK, ANN, delivered=1, earned=3, held=0)
        tx.deliver(other, ANN, delivered=1, earned=2, held=0)
        tx.earn(other, ANN, 5)
        tx.deliver(TASK, BOB, delivered=1, earned=1, held=0)
        assert [tx.earned(owner) for owner in (ANN, BOB, "owner:zed")] == [10, 1, 0]
        tx.erase(TASK, ANN)
        assert tx.earned(ANN) == 10


def test_a_buyers_money_is_summed_up_over_all_its_tasks(full: SqlStore) -> None:
    moves = [(1, "escrow", 50), (1, "released", 5), (4, "escrow", 30), (4, "fund", 7)]
    moves += [(6, "escrow", 20), (3, "escrow", 9)]
    with full.begin() as tx:
        for number, end, amount in moves:
            account = f"escrow:{number:024d}"
            route = ("outside", account) if end == "escrow" else (account, "fund")
            tx.post([Transfer(f"{number:024d}/{end}", *route, amount, "")], at_ms=1)
    ends = ("escrow", "released", "fund", "refund")
    with full.read() as tx:
        amounts = {buyer: tx.moved_for(buyer, ends) for buyer in (ACME, OTHER, "buyer:none")}
        assert [list(each.values()) for each in amounts.values()] == [
            [70, 5, 0, 0],
            [39, 0, 7, 0],
            [0, 0, 0, 0],
        ]
        assert tx.held_for(ACME, [State.OPEN]) == 45
        assert tx.held_for(ACME, [State.OPEN, State.TRAINING]) == 65
        assert tx.held_for(OTHER, [State.COMPLETED]) == 23
        assert tx.held_for(OTHER, []) == 0


def test_a_count_of_many_owners_is_kept_for_a_while_that_grows_with_it(store: SqlStore) -> None:
    now_s = 0.0
    counts = CountCache(now_s=lambda: now_s)
    counts.keep({"few": MANY - 1, "many": MANY, "more": 100 * MANY})
    assert counts.of(["few", "many", "more", "none"]) == {"many": MANY, "more": 100 * MANY}
    now_s = 0.2
    assert counts.of(["few", "many", "more"]) == {"more": 100 * MANY}
    now_s = 11.0
    assert counts.of(["few", "many", "more"]) == {}
    for number in range(3000):
        counts.keep({f"{number}": MANY})
    assert len(counts.of([f"{number}" for number in range(3000)])) == 1024

    with_task(store)
    with store.begin() as tx:
        tx.put_interest(an_interest(ANN))
        assert tx.counts_of_interests([TASK, "none"]) == {TASK: 1}
        tx.put_interest(an_interest(BOB))
        assert tx.counts_of_interests([TASK]) == {TASK: 2}
        store._database.counts.keep({TASK: MANY})
        assert tx.counts_of_interests([TASK]) == {TASK: MANY}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_sqlite_finds_what_is_an_owners_by_an_index(store) -> None:
    asked = []
    with store.read() as tx:
        event.listen(
            tx._connection,
            "before_cursor_execute",
            lambda _, __, statement, values, *rest: asked.append((statement, values)),
        )
        tx.replies_of(TASK, ANN)
        tx.refused_updates(TASK, [ANN])
        tx.device_statistics(TASK, [ANN])
        plans = [
            tx._connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            for statement, values in list(asked)
        ]
    for plan in plans:
        assert "task=? AND owner=?" in plan[0].detail
