"""Money that comes in is counted once, and an account is its own party's to see."""

import pytest

from fedbourse.encoding.documents import plain
from fedbourse.errors import InvalidInput, InvalidTransfer, NotAllowed, NotFound
from fedbourse.ledger import OUTSIDE
from fedbourse.market.commands import accounts
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.market.service import escrow
from fedbourse.market.task_money import visible_escrow
from fedbourse.market.views import View
from fedbourse.testing.trading import AUDITOR, BUYER, OPERATOR, Trading, caller


class Bank:
    """A payment adapter."""

    def __init__(self, notes: dict[str, tuple[str, int]]) -> None:
        self.notes = notes

    def received(self, reference):
        if reference not in self.notes:
            raise NotFound(f"no money came in with the reference {reference}")
        return self.notes[reference]


@pytest.fixture
def trading(store) -> Trading:
    return Trading(store)


@pytest.fixture
def bank() -> Bank:
    return Bank({"one": (BUYER.party, 500), "two": ("owner:ann", 7), "odd": ("outside", 9)})


def claim(trading, who, bank, reference):
    return trading.do(accounts.deposit, who, accounts.look_up(who, bank, reference))


def test_a_deposit_counts_once_and_says_when_it_was_claimed(trading, bank) -> None:
    first_ms = trading.time_ms
    for again in (False, True, True):
        done = claim(trading, BUYER, bank, "one")
        assert (done.party, done.amount_micro) == (BUYER.party, 500)
        assert (done.claimed_before, done.claimed_ms) == (again, first_ms)
        trading.time_ms += 60_000
    assert trading.balance(BUYER.party) == 500
    assert trading.balance(OUTSIDE) == -500


def test_the_operator_may_credit_for_others_and_nobody_else(trading, bank) -> None:
    for who in (caller("buyer:other"), AUDITOR, caller("owner:ann", "0" * 16)):
        with pytest.raises(NotAllowed):
            claim(trading, who, bank, "one")
    assert trading.balance(BUYER.party) == 0
    claim(trading, OPERATOR, bank, "one")
    assert trading.balance(BUYER.party) == 500


def test_a_reference_with_another_amount_later_is_refused(trading, bank) -> None:
    claim(trading, BUYER, bank, "one")
    bank.notes["one"] = (BUYER.party, 501)
    with pytest.raises(InvalidTransfer, match="posted before with other content"):
        claim(trading, BUYER, bank, "one")
    assert trading.balance(BUYER.party) == 500


@pytest.mark.parametrize("reference", ["", " one", "a/b", "x" * 101, "../one", None, 5, "é"])
def test_a_reference_that_is_none_is_refused(trading, bank, reference) -> None:
    with pytest.raises(InvalidInput, match="a reference has up to 100"):
        claim(trading, BUYER, bank, reference)


def test_money_comes_in_for_parties_only(trading, bank) -> None:
    with pytest.raises(InvalidInput, match="a party is"):
        claim(trading, OPERATOR, bank, "odd")
    with pytest.raises(NotFound):
        claim(trading, OPERATOR, bank, "unknown")


def test_an_account_is_seen_by_its_party_the_operator_and_auditors() -> None:
    for who in (BUYER, OPERATOR, AUDITOR):
        accounts.may_see(who, BUYER.party)
    for who in (caller("buyer:other"), caller("owner:ann")):
        with pytest.raises(NotAllowed):
            accounts.may_see(who, BUYER.party)


def shown(trading, who, task) -> dict[str, int]:
    """What somebody is told of a task's escrow, by each way there is; they must agree."""
    with trading.store.read() as tx:
        held = View(trading.market, tx, who).balance(escrow(task.id))
        assert held == visible_escrow(tx, who, tx.task(task.id))
        money = plain(View(trading.market, tx, who).report(task.id))["money_micro"]
    assert money["escrow"] == held
    assert money["held"] == sum(money[name] for name in money if name != "held")
    return money


def test_a_buyer_in_training_sees_the_pay_of_rounds_to_come(trading) -> None:
    """Asked before and after each answer, or each round, escrow would tell each owner's pay."""
    trading.fund(10**8)
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners, rounds=3)
    everybody, account = len(trading.allocations(task.id)), escrow(task.id)
    assert everybody == 3
    for answering in (owners, owners[:2], owners):  # the clock pauses meanwhile
        before = task.reward - task.reward * task.round // 3
        assert shown(trading, BUYER, task)["escrow"] == before
        for owner in answering:
            last = trading.balance(account)
            trading.update(owner, task)
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
    trading.update(owners[0], task)
    left = trading.balance(escrow(task.id))
    assert left < shown(trading, BUYER, task)["escrow"] == 10**7
    task = trading.do(buyer_commands.cancel, BUYER, task.id)
    money = shown(trading, BUYER, task)
    assert (money["escrow"], money["refunded"], money["earned"]) == (0, left, 10**7 - left)


def test_escrow_that_was_paid_upfront_is_shown_as_it_is(trading) -> None:
    trading.fund(10**8)
    owners = trading.owners(1.0, 1.1, 1.2)
    task = trading.in_training(owners, vesting="upfront")
    for owner in owners:
        trading.update(owner, task)
        assert shown(trading, BUYER, task)["escrow"] == trading.balance(escrow(task.id)) == 0


def test_escrow_is_shown_to_nobody_else(trading) -> None:
    trading.fund(10**8)
    task = trading.in_training(trading.owners(1.0, 1.1))
    for who in (caller("buyer:other"), caller("owner:000000")):
        for account in (escrow(task.id), BUYER.party):
            with pytest.raises(NotAllowed), trading.store.read() as tx:
                View(trading.market, tx, who).balance(account)
