"""Money is whole, moves between two accounts, and is neither made nor lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbourse.errors import InvalidTransfer
from fedbourse.ledger import OUTSIDE, Book, Transfer

ACCOUNTS = ["buyer", "escrow", "owner:1", "owner:2", OUTSIDE]
moves = st.lists(
    st.tuples(st.sampled_from(ACCOUNTS), st.sampled_from(ACCOUNTS), st.integers(1, 100)),
    max_size=40,
)


@given(moves)
def test_nothing_is_made_or_lost_or_overdrawn(moves) -> None:
    book = Book()
    for k, (source, target, amount) in enumerate(moves):
        before = book.balances, book.transfers
        try:
            book.post(Transfer(str(k), source, target, amount))
        except InvalidTransfer:
            # What a look-up made is no balance.
            assert {n: b for n, b in book.balances.items() if b} == {
                n: b for n, b in before[0].items() if b
            }
            assert book.transfers == before[1]
        assert sum(book.balances.values()) == 0
        assert all(held >= 0 for name, held in book.balances.items() if name != OUTSIDE)
    assert Book(book.transfers).balances == {
        name: held for name, held in book.balances.items() if held or name in _named(book)
    }


def _named(book: Book) -> set[str]:
    return {name for t in book.transfers for name in (t.debit, t.credit)}


def test_a_transfer_that_is_posted_twice_has_one_effect() -> None:
    book = Book()
    line = Transfer("a", OUTSIDE, "buyer", 5)
    book.post(line)
    book.post(line)
    assert book.balance("buyer") == 5
    assert book.transfers == (line,)
    with pytest.raises(InvalidTransfer, match="'a' was posted before with other content"):
        book.post(Transfer("a", OUTSIDE, "buyer", 6))


def test_an_overdraft_is_refused_with_the_balance() -> None:
    book = Book([Transfer("a", OUTSIDE, "buyer", 5)])
    with pytest.raises(
        InvalidTransfer, match=r"'buyer' holds 0\.000005 credits, less than the 0\.000006"
    ):
        book.post(Transfer("b", "buyer", "escrow", 6))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"amount": 0}, "above 0; found 0"),
        ({"amount": -1}, "above 0; found -1"),
        ({"amount": 1.0}, "whole number of micro-credits above 0; found 1.0"),
        ({"amount": True}, "found True"),
        ({"id": ""}, "id must be a name"),
        ({"credit": "buyer"}, "needs two accounts; found 'buyer' twice"),
        ({"debit": None}, "debit must be a name; found None"),
    ],
)
def test_what_is_no_transfer_is_refused(wrong, sentence) -> None:
    good = {"id": "a", "debit": "buyer", "credit": "escrow", "amount": 1}
    with pytest.raises(InvalidTransfer, match=sentence):
        Transfer(**(good | wrong))
