"""Lists that pages show: searched, ordered, paged and summed up by the database."""

from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedbourse.ledger import Transfer
from fedbourse.market.task import ClosedRound, Round, State
from fedbourse.storage import SqlStore
from fedbourse.wire.card import Assumptions
from storage.records import ACME, ANN, BOB, CARD, TASK, a_task, an_interest, with_task

OTHER = "buyer:other"
OPENED = {"last_sequence": 5}
BEST = {"reward": "best", "max_reward": 9.0, "assumptions": Assumptions(weight=20.0)}


def listed(unit, *, words=(), order="newest", skip=0, limit=99, **which):
    found = unit.search_tasks(words=words, order=order, skip=skip, limit=limit, **which)
    assert unit.count_tasks(words=words, **which) >= len(found)
    return [int(task.id) for task in found]


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
    with store.begin() as unit:
        for number, (buyer, state, card, items) in enumerate(made, start=1):
            task = replace(a_task(f"{number:024d}", buyer=buyer, state=state), **OPENED | items)
            unit.add_task(replace(task, card=replace(CARD, **card)))
    return store


def test_tasks_are_found_by_all_their_words(full: SqlStore) -> None:
    with full.read() as unit:
        assert listed(unit) == [6, 5, 4, 3, 2, 1]
        assert listed(unit, words=["late"]) == [6, 5, 4, 1]
        assert listed(unit, words=["late", "acme"]) == [6, 1]
        assert listed(unit, words=["größe".casefold()]) == [6]
        # What a database takes for a pattern is a character like others.
        assert listed(unit, words=["100%"]) == listed(unit, words=["%"]) == [2]
        assert listed(unit, words=["under_"]) == [3]
        assert listed(unit, words=["r_s"]) == [3]
        assert listed(unit, words=["'; DROP TABLE tasks"]) == []


def test_tasks_never_opened_are_their_buyers(full: SqlStore) -> None:
    with full.read() as unit:
        assert listed(unit, seen_by="") == [6, 4, 1]
        assert listed(unit, seen_by=ACME) == [6, 4, 2, 1]
        assert listed(unit, seen_by=OTHER) == [6, 5, 4, 3, 1]
        assert unit.count_tasks(seen_by=ACME) == 4
        newest = unit.tasks(seen_by=ACME, before=f"{6:024d}", limit=2)
        assert [int(task.id) for task in newest] == [4, 2]


def test_tasks_are_put_in_order_and_paged_by_the_database(full: SqlStore) -> None:
    with full.read() as unit:
        # Fixed or promised; what is still to be computed comes last.
        assert listed(unit, order="reward") == [2, 4, 1, 6, 5, 3]
        assert listed(unit, order="deadline") == [6, 1, 5, 4, 3, 2]
        for order in ("newest", "reward", "deadline"):
            paged = [listed(unit, order=order, skip=2 * page, limit=2) for page in range(4)]
            assert list(chain(*paged)) == listed(unit, order=order)
        assert listed(unit, states=[State.OPEN, State.TRAINING]) == [6, 1]


def test_interests_are_counted_for_several_tasks_at_once(full: SqlStore) -> None:
    first, last = f"{1:024d}", f"{6:024d}"
    with full.begin() as unit:
        for owner in (ANN, BOB):
            unit.put_interest(an_interest(owner, task=first))
        assert unit.counts_of_interests([first, last]) == {first: 2}
        assert unit.counts_of_interests([]) == {}


def test_rounds_that_are_closed_are_listed_with_their_answers(store: SqlStore) -> None:
    with_task(store)
    with store.begin() as unit:
        for number in range(4):
            unit.add_round(Round(TASK, number, b"m", "h", "q", "p", 1, 2, signature="s"))
        for number in range(3):
            unit.close_round(TASK, number, at_ms=9, answers=10 + number)
        found = [ClosedRound(number, 10 + number) for number in range(3)]
        assert unit.closed_rounds(TASK) == found
        assert unit.closed_rounds(TASK, last=2) == found[1:]


@given(moves=st.lists(st.integers(-9, 9).filter(bool), max_size=25), rows=st.integers(1, 5))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_statement_read_backwards_is_the_one_read_forwards(store, moves, rows) -> None:
    account = f"owner:{len(moves)}{rows}{abs(hash(tuple(moves)))}"
    posted = [Transfer(f"{account}/first", "outside", account, 1000, "")]
    for number, move in enumerate(moves):
        route = ("escrow:1", account) if move > 0 else (account, "fund")
        posted.append(Transfer(f"{account}/{number}", *route, abs(move), ""))
    with store.begin() as unit:
        unit.post([Transfer(f"{account}/escrow", "outside", "escrow:1", 1000, "")], at_ms=1)
        for transfer in posted:
            unit.post([transfer], at_ms=1)
    with store.read() as unit:
        forwards = unit.entries(account=account, limit=999)
        moved = [e.amount if e.target == account else -e.amount for e in forwards]
        seen, skip = [], 0
        while page := unit.last_entries(account, skip=skip, limit=rows)[0]:
            later = unit.last_entries(account, skip=skip, limit=rows)[1]
            assert later == sum(moved[len(moved) - skip :])
            seen += page
            skip += rows
        assert seen[::-1] == forwards
        assert unit.earned(account) == sum(move for move in moves if move > 0)
        assert unit.balances_of([account, "owner:nobody"]) == {account: unit.balance(account)}
        assert unit.last_transfer() == unit.entries(limit=99_999)[-1].sequence
