"""Money in and out: counted once, and handed over at least once with one id."""

import pytest

from fedbourse.errors import InvalidInput, InvalidTransfer, NotAllowed, NotFound
from fedbourse.ledger import OUTSIDE
from fedbourse.market import accounts, buying, views
from fedbourse.market.service import escrow
from fedbourse.market.task_money import visible_escrow
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


@pytest.mark.parametrize("bad", ["\0", "\x1b", "\udc00"])
def test_a_destination_holds_nothing_that_clients_cannot_read(trading, bad) -> None:
    trading.fund(500)
    with pytest.raises(InvalidInput, match="destination must hold no control characters"):
        take(trading, BUYER, 200, destination=f"DE{bad}00")
    assert trading.balance(BUYER.party) == 500


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


def shown(trading, who, task) -> dict[str, int]:
    """What somebody is told of a task's escrow, by each way there is; they must agree."""
    with trading.store.read() as unit:
        held = views.visible_balance(unit, who, escrow(task.id))
        assert held == visible_escrow(unit, who, unit.task(task.id))
        money = views.report(unit, who, task.id)["money_micro"]
    assert money["escrow"] == held
    assert money["held"] == sum(money[name] for name in money if name != "held")
    return money


def test_a_buyer_in_training_sees_the_pay_of_rounds_to_come(trading) -> None:
    """Asked before and after each answer, or each round, escrow would tell each owner's pay."""
    trading.fund(10**8)
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners, rounds=3)
    everybody, account = len(trading.lines(task.id)), escrow(task.id)
    assert everybody == 3
    for answering in (owners, owners[:2], owners):  # the clock stands still meanwhile
        before = task.reward - task.reward * task.round // 3
        assert shown(trading, BUYER, task)["escrow"] == before
        for owner in answering:
            last = trading.balance(account)
            trading.answer(owner, task)
            assert trading.balance(account) < last
            assert shown(trading, BUYER, task)["escrow"] == before
            for who in (OPERATOR, AUDITOR):
                assert shown(trading, who, task)["escrow"] == trading.balance(account)
        trading.wait(0 if len(answering) == everybody else task.card.deadlines.round_s)
        assert trading.task(task.id).round == task.round + 1
        task = trading.task(task.id)
    assert task.state == "completed"
    assert shown(trading, BUYER, task)["escrow"] == trading.balance(account) == 0


def test_a_buyer_who_cancels_sees_what_came_back(trading) -> None:
    trading.fund(10**8)
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners)
    trading.answer(owners[0], task)
    left = trading.balance(escrow(task.id))
    assert left < shown(trading, BUYER, task)["escrow"] == 10**7
    task = trading.do(buying.cancel, BUYER, task.id)
    money = shown(trading, BUYER, task)
    assert (money["escrow"], money["refunded"], money["earned"]) == (0, left, 10**7 - left)


def test_escrow_that_was_paid_upfront_is_shown_as_it_is(trading) -> None:
    trading.fund(10**8)
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners, vesting="upfront")
    for owner in owners:
        trading.answer(owner, task)
        assert shown(trading, BUYER, task)["escrow"] == trading.balance(escrow(task.id)) == 0


def test_escrow_is_shown_to_nobody_else(trading) -> None:
    trading.fund(10**8)
    task = trading.in_training(trading.owners(1.0, 1.1))
    for who in (caller("buyer:other"), caller("owner:000000")):
        for account in (escrow(task.id), BUYER.party):
            with pytest.raises(NotAllowed), trading.store.read() as unit:
                views.visible_balance(unit, who, account)
