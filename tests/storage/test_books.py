"""The ledger's laws, kept by the database itself."""

import random
from functools import partial

import pytest
from sqlalchemy import text

from fedbourse.errors import Conflict, InvalidInput, InvalidTransfer
from fedbourse.ledger import Book, Transfer
from fedbourse.storage import SqlStore
from storage.records import ACME, ANN, BOB, TASK, check_books, deposit, some_events, with_task

LARGEST = 2**63 - 1
INSERT = "INSERT INTO transfers (id, debit, credit, amount, memo, at_ms) VALUES "


def raw(store: SqlStore, statement: str) -> None:
    with store.begin() as tx:
        tx._connection.execute(text(statement))


@pytest.mark.parametrize("table", ["transfers", "events"])
def test_what_is_written_is_never_changed(store: SqlStore, kind: str, table: str) -> None:
    with_task(store)
    deposit(store, ACME, 5)
    with store.begin() as tx:
        tx.append_event(some_events(1)[0])
    column = "amount" if table == "transfers" else "at_ms"
    statements = [f"UPDATE {table} SET {column} = 9", f"DELETE FROM {table}"]
    if kind == "sqlite":
        statements.append(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")
    else:
        statements += [f"TRUNCATE {table} CASCADE", "TRUNCATE transfers, tasks CASCADE"]
    for statement in statements:
        with pytest.raises(Conflict, match="never changed"):
            raw(store, statement)
    assert check_books(store) == {ACME: 5, "outside": -5}
    with store.read() as tx:
        assert tx.events(TASK, limit=9) == some_events(1)


def test_the_database_itself_moves_money_and_refuses_overdraft(store: SqlStore) -> None:
    raw(store, INSERT + "('1', 'outside', 'a', 5, '', 1), ('2', 'a', 'b', 2, '', 1)")
    assert check_books(store) == {"a": 3, "b": 2, "outside": -5}
    for wrong in (
        "('3', 'a', 'b', 4, '', 1)",
        "('3', 'a', 'b', 0, '', 1)",
        "('3', 'a', 'b', -1, '', 1)",
        "('3', 'a', 'a', 1, '', 1)",
        "('3', 'new', 'a', 1, '', 1)",
    ):
        with pytest.raises(InvalidTransfer):
            raw(store, INSERT + wrong)
    with pytest.raises(Conflict):
        raw(store, INSERT + "('1', 'outside', 'a', 5, '', 1)")
    with pytest.raises(InvalidInput):
        raw(store, INSERT + f"('4', 'outside', 'a', {LARGEST}, '', 1)")
    assert check_books(store) == {"a": 3, "b": 2, "outside": -5}


def test_posting_twice_has_one_effect(store: SqlStore) -> None:
    transfers = [Transfer("d", "outside", ACME, 10, "in"), Transfer("e", ACME, ANN, 4)]
    for _ in range(2):
        with store.begin() as tx:
            tx.post([*transfers, transfers[1]], at_ms=1)
            tx.post(transfers[1:], at_ms=2)
            tx.post([], at_ms=3)
    assert check_books(store) == {ACME: 6, ANN: 4, "outside": -10}
    with store.read() as tx:
        entries = tx.entries(limit=9)
    assert [(e.id, e.debit, e.credit, e.amount, e.memo, e.at_ms) for e in entries] == [
        ("d", "outside", ACME, 10, "in", 1),
        ("e", ACME, ANN, 4, "", 1),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        [Transfer("x", ACME, BOB, 1), Transfer("deposit buyer:acme", "outside", ACME, 11)],
        [Transfer("x", ACME, BOB, 1), Transfer("x", ACME, BOB, 2)],
        [Transfer("x", ACME, BOB, 1), Transfer("x", ACME, BOB, 1, "other memo")],
    ],
)
def test_another_content_under_a_used_id_is_refused(store: SqlStore, wrong) -> None:
    deposit(store, ACME, 10)
    with store.begin() as tx:
        with pytest.raises(InvalidTransfer, match="was posted before with other content"):
            tx.post(wrong, at_ms=1)
        tx.post([Transfer("y", ACME, ANN, 3)], at_ms=1)
    held = check_books(store)
    assert (held[ACME], held[ANN], held.get(BOB, 0)) == (7, 3, 0)


def test_overdraft_is_refused_with_a_sentence_and_leaves_no_trace(store: SqlStore) -> None:
    deposit(store, ACME, 10)
    # In all it would do, but the first step does not: a book goes step by step.
    steps = [Transfer("a", ANN, BOB, 1), Transfer("b", ACME, ANN, 1)]
    sentence = r"account 'owner:ann' holds 0\.000000 credits, less than the 0\.000001 to move"
    with store.begin() as tx:
        with pytest.raises(InvalidTransfer, match=sentence):
            tx.post(steps, at_ms=1)
        with pytest.raises(InvalidTransfer, match=r"0\.000010 credits, less than the 0\.000011"):
            tx.post([Transfer("c", ACME, BOB, 11)], at_ms=1)
        tx.post(steps[::-1], at_ms=1)
    held = check_books(store)
    assert (held[ACME], held[BOB]) == (9, 1)


def test_an_account_holds_no_more_than_64_bits(store: SqlStore) -> None:
    deposit(store, ACME, LARGEST)
    for wrong in (Transfer("x", "outside", ACME, 1), Transfer("y", "outside", ANN, 2**63)):
        with pytest.raises(InvalidTransfer, match="more in an account"), store.begin() as tx:
            tx.post([wrong], at_ms=1)
    assert check_books(store)[ACME] == LARGEST


def test_a_store_does_what_a_book_does(store: SqlStore) -> None:
    rng = random.Random(2)
    book = Book()
    names = ["outside", *"abcde"]
    for number in range(150):
        source, target = rng.sample(names, 2)
        transfer = Transfer(f"t{number % 120}", source, target, rng.randint(1, 40))
        assert refusal(book.post, transfer) == refusal(partial(post_one, store), transfer)
    held = {name: balance for name, balance in check_books(store).items() if balance}
    assert held == {name: balance for name, balance in book.balances.items() if balance}
    with store.read() as tx:
        assert [entry.id for entry in tx.entries(limit=999)] == [t.id for t in book.transfers]


def refusal(post, transfer: Transfer) -> str:
    try:
        post(transfer)
    except InvalidTransfer as error:
        return str(error)
    return ""


def post_one(store: SqlStore, transfer: Transfer) -> None:
    with store.begin() as tx:
        tx.post([transfer], at_ms=1)


def test_many_transfers_are_posted_at_once(store: SqlStore) -> None:
    deposit(store, "escrow:t", 10**9)
    many = [Transfer(f"p{n}", "escrow:t", f"owner:{n % 900:04}", n + 1) for n in range(3000)]
    with store.begin() as tx:
        tx.post(many, at_ms=1)
    with store.begin() as tx:
        tx.post(many, at_ms=1)
    held = check_books(store)
    assert held["escrow:t"] == 10**9 - sum(t.amount for t in many)
    with store.read() as tx:
        assert [e.id for e in tx.entries(after=1, limit=9999)] == [t.id for t in many]


def test_entries_are_paged_by_account(store: SqlStore) -> None:
    deposit(store, ACME, 100)
    moves = [(ACME, ANN), (ACME, BOB), (ANN, BOB), (BOB, ANN), (ACME, ANN), (ANN, ACME)]
    with store.begin() as tx:
        tx.post([Transfer(f"m{n}", a, b, 1) for n, (a, b) in enumerate(moves)], at_ms=1)
        wanted = [entry for entry in tx.entries(limit=99) if ANN in (entry.debit, entry.credit)]
        assert tx.entries(account=ANN, limit=99) == wanted
        assert [entry.id for entry in wanted] == ["m0", "m2", "m3", "m4", "m5"]
        assert tx.entries(account=ANN, limit=2) == wanted[:2]
        assert tx.entries(account=ANN, after=wanted[1].sequence, limit=2) == wanted[2:4]
        assert tx.balances(limit=2) == [(ACME, 98), ("outside", -100)]
        assert tx.balances(after="outside", limit=9) == [(ANN, 1), (BOB, 1)]
        assert tx.balance("outside") == -100
