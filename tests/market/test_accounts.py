"""Money in and out: counted once, and handed over at least once with one id."""

import pytest

from fedbourse.errors import InvalidInput, InvalidTransfer, NotAllowed, NotFound
from fedbourse.ledger import OUTSIDE
from fedbourse.market import accounts
from fedbourse.market.service import escrow
from market.trading import AUDITOR, BUYER, OPERATOR, Trading, caller


class Bank:
    """A payment adapter that can fail."""

    def __init__(self, notes: dict[str, tuple[str, int]]) -> None:
        self.notes = notes
        self.paid: list = []
        self.broken = False

    def received(self, reference):
        if reference not in self.notes:
            raise NotFound(f"no money came in with the reference {reference}")
        return self.notes[reference]

    def pay(self, payout) -> None:
        if self.broken:
            raise OSError("the line is dead")
        self.paid.append(payout)


@pytest.fixture
def trading(store) -> Trading:
    return Trading(store)


@pytest.fixture
def bank() -> Bank:
    return Bank({"one": (BUYER.party, 500), "two": ("owner:ann", 7), "odd": ("outside", 9)})


def test_a_deposit_counts_once(trading, bank) -> None:
    for _ in range(3):
        found = trading.do(accounts.deposit, BUYER, bank, reference="one")
        assert found == (BUYER.party, 500)
    assert trading.balance(BUYER.party) == 500
    assert trading.balance(OUTSIDE) == -500


def test_the_operator_may_credit_for_others_and_nobody_else(trading, bank) -> None:
    for who in (caller("buyer:other"), AUDITOR, caller("owner:ann", "0" * 16)):
        with pytest.raises(NotAllowed):
            trading.do(accounts.deposit, who, bank, reference="one")
    assert trading.balance(BUYER.party) == 0
    trading.do(accounts.deposit, OPERATOR, bank, reference="one")
    assert trading.balance(BUYER.party) == 500


def test_a_reference_with_another_amount_later_is_refused(trading, bank) -> None:
    trading.do(accounts.deposit, BUYER, bank, reference="one")
    bank.notes["one"] = (BUYER.party, 501)
    with pytest.raises(InvalidTransfer, match="posted before with other content"):
        trading.do(accounts.deposit, BUYER, bank, reference="one")
    assert trading.balance(BUYER.party) == 500


@pytest.mark.parametrize("reference", ["", " one", "a/b", "x" * 101, "../one", None, 5, "é"])
def test_a_reference_that_is_none_is_refused(trading, bank, reference) -> None:
    with pytest.raises(InvalidInput, match="a reference has up to 100"):
        trading.do(accounts.deposit, BUYER, bank, reference=reference)


def test_money_comes_in_for_parties_only(trading, bank) -> None:
    with pytest.raises(InvalidInput, match="a party is"):
        trading.do(accounts.deposit, OPERATOR, bank, reference="odd")
    with pytest.raises(NotFound):
        trading.do(accounts.deposit, OPERATOR, bank, reference="unknown")


def take(trading, who, amount, *, account=None, destination="DE00"):
    return trading.do(
        accounts.withdraw,
        who,
        account=account or who.party,
        amount_micro=amount,
        destination=destination,
    )


def test_a_withdrawal_leaves_the_books_and_is_handed_over_once(trading, bank) -> None:
    trading.fund(500)
    payout = take(trading, BUYER, 200)
    assert trading.balance(BUYER.party) == 300
    assert accounts.hand_over(trading.market, trading.store, bank) == 1
    assert accounts.hand_over(trading.market, trading.store, bank) == 0
    assert bank.paid == [payout]


def test_a_payout_that_failed_is_tried_again(trading, bank) -> None:
    trading.fund(500)
    payout = take(trading, BUYER, 200)
    bank.broken = True
    with pytest.raises(OSError, match="dead"):
        accounts.hand_over(trading.market, trading.store, bank)
    assert trading.balance(BUYER.party) == 300
    bank.broken = False
    assert accounts.hand_over(trading.market, trading.store, bank) == 1
    assert [each.id for each in bank.paid] == [payout.id]


@pytest.mark.parametrize("amount", [0, -1, 1.5, True, "1", None, 2**53, 10**400])
def test_what_is_no_amount_is_refused(trading, amount) -> None:
    trading.fund(500)
    with pytest.raises(InvalidInput, match="amount_micro must be"):
        take(trading, BUYER, amount)
    assert trading.balance(BUYER.party) == 500


def test_nobody_takes_out_more_than_it_has(trading) -> None:
    trading.fund(500)
    with pytest.raises(InvalidTransfer, match="holds 500 micro-credits"):
        take(trading, BUYER, 501)
    take(trading, BUYER, 500)
    with pytest.raises(InvalidTransfer, match="holds 0 micro-credits"):
        take(trading, BUYER, 1)
    with trading.store.read() as unit:
        assert len(unit.unsent_payouts(limit=9)) == 1


@pytest.mark.parametrize("who", [OPERATOR, AUDITOR, caller("owner:ann")], ids=str)
def test_nobody_takes_money_out_of_anothers_account(trading, who) -> None:
    trading.fund(500)
    with pytest.raises(NotAllowed):
        take(trading, who, 1, account=BUYER.party)


@pytest.mark.parametrize("account", [OUTSIDE, escrow("0" * 24), "market", ""])
def test_only_parties_have_money_to_take_out(trading, account) -> None:
    with pytest.raises(InvalidInput, match="a party is"):
        trading.do(accounts.withdraw, OPERATOR, account=account, amount_micro=1, destination="DE00")


@pytest.mark.parametrize("destination", ["", "  ", "x" * 201, None, 5])
def test_money_goes_somewhere(trading, destination) -> None:
    trading.fund(500)
    with pytest.raises(InvalidInput, match="destination must say"):
        take(trading, BUYER, 1, destination=destination)


def test_an_account_is_seen_by_its_party_the_operator_and_auditors() -> None:
    for who in (BUYER, OPERATOR, AUDITOR):
        accounts.may_see(who, BUYER.party)
    for who in (caller("buyer:other"), caller("owner:ann")):
        with pytest.raises(NotAllowed):
            accounts.may_see(who, BUYER.party)
