"""What a device remembers of its deals outlives it, and damage is said in a sentence."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from fedbourse.device import BiddingStrategy, Deal, KnownMarket, SpendStore
from fedbourse.device.deal import SentReply
from fedbourse.device.deals import Deals
from fedbourse.device.ledger import ledger_of
from fedbourse.errors import InvalidFile, NotFound, Refused
from fedbourse.privacy.filter import Filter, RoundRequest
from fedbourse.protocol.keys import SigningKey, key_id
from fedbourse.testing.device.malicious_market import CARD, OWNER, TASK

KEY = SigningKey.generate().public
DEAL = Deal(
    market=KEY,
    task=TASK,
    owner=OWNER,
    buyer="buyer:b",
    card_document=CARD.document,
    strategy=BiddingStrategy(most=0.5, report_value=True),
    cap=0.5,
    replies=(SentReply("0" * 64, 3, 1.0, 10**6, 0.25),),
)
TERMS = {"tick": 3, "budget": 0.25, "payment_micro": 9, "previous": "1" * 64}
SIGNED = replace(
    DEAL, state="signed", terms={"terms": TERMS, "market_signature": "m", "signature": "s"}
)
MARKET = KnownMarket(key=KEY, server="http://127.0.0.1:1", device="d", owner=OWNER)
RECEIPT = {"receipt": {"round": 0, "earned_micro": 5, "held_micro": 0}, "market_signature": "s"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "spend.db"


@pytest.fixture
def deals(file: Path):
    store = SpendStore(file)
    yield Deals(store, now_ms=lambda: 7)
    store.close()


def delivered(deals: Deals, *rounds: int) -> Filter:
    """Send updates of the deal, as a device would."""
    guard = Filter(deals._store, lifetime_cap=9.0)
    terms = SIGNED.agreed
    guard.agree(terms)
    for round in rounds:
        guard.update(RoundRequest(SIGNED.account, terms.digest, round, "m"), lambda: b"a", cost=0.0)
    return guard


def test_what_is_stored_is_read_again(deals: Deals, file: Path) -> None:
    deals.put_market(MARKET)
    deals.put(SIGNED)
    other = SpendStore(file, read_only=True)
    again = Deals(other)
    assert again.markets() == [MARKET]
    assert again.deals() == [SIGNED]
    assert again.deal(DEAL.name) == SIGNED
    assert again.deal("another") is None
    other.close()


def test_a_change_replaces_and_keeps_the_order(deals: Deals) -> None:
    second = replace(DEAL, task="f" * 24)
    deals.put(DEAL)
    deals.put(second)
    changed = deals.change(DEAL, state="declined", outcome="too little pay")
    assert deals.deals() == [changed, second]


def test_an_account_is_named_after_market_task_and_terms() -> None:
    other = replace(DEAL, market=SigningKey.generate().public)
    assert DEAL.name == f"{key_id(KEY)}/{TASK}" != other.name
    assert SIGNED.account == SIGNED.account_of(TERMS) == SIGNED.agreed.task
    for item in TERMS:
        assert SIGNED.account_of(TERMS | {item: 0}) != SIGNED.account
    assert DEAL.owns(SIGNED.account)
    assert not other.owns(SIGNED.account)
    assert not replace(DEAL, task=f"{TASK}@0").owns(SIGNED.account)
    assert not DEAL.owns(replace(SIGNED, task=f"{TASK}@0").account)


def test_without_terms_nothing_is_agreed() -> None:
    assert DEAL.payment == 0
    with pytest.raises(NotFound, match="no terms"):
        _ = DEAL.agreed


def test_the_first_receipt_counts(deals: Deals) -> None:
    delivered(deals, 0, 1)
    deals.keep_receipt(SIGNED, 0, RECEIPT)
    deals.keep_receipt(SIGNED, 0, {"receipt": {"round": 0, "earned_micro": 9, "held_micro": 0}})
    first, second = deals.delivered(SIGNED)
    assert (first.round, first.receipt) == (0, RECEIPT)
    assert (second.round, second.receipt) == (1, None)
    deals.keep_receipt(SIGNED, 5, RECEIPT)  # an update that never left has none
    assert len(deals.delivered(SIGNED)) == 2


def test_the_ledger_adds_up(deals: Deals) -> None:
    deals.put(SIGNED)
    guard = delivered(deals, 0, 1)
    deals.keep_receipt(SIGNED, 0, RECEIPT)
    (entry,) = ledger_of(deals, guard).entries
    assert (entry.budget, entry.delivered, entry.receipts, entry.earned_micro) == (0.25, 2, 1, 5)
    assert entry.spent + entry.reserved == guard.accounts()[0].committed
    guard.close(SIGNED.account)
    (entry,) = ledger_of(deals, guard).entries
    assert entry.reserved == 0
    assert entry.spent == guard.accounts()[0].spent


@pytest.mark.parametrize(
    ("final", "earned", "held", "forfeited"),
    [
        (None, 9, 4, 0),
        ({"state": "signed", "earned_micro": 9, "held_micro": 0}, 9, 0, 0),
        ({"state": "dismissed", "earned_micro": 5, "held_micro": 0}, 5, 0, 4),
    ],
)
def test_what_is_held_released_and_forfeited_adds_up(
    deals: Deals, final, earned, held, forfeited
) -> None:
    guard = delivered(deals, 0, 1)
    deals.put(replace(SIGNED, final=final))
    receipts = [{"round": 0, "earned_micro": 5, "held_micro": 5},
                {"round": 1, "earned_micro": 9, "held_micro": 4}]  # fmt: skip
    for receipt in receipts:
        signed = {"receipt": receipt, "market_signature": "s"}
        deals.keep_receipt(SIGNED, int(receipt["round"]), signed)
    for ledger in (ledger_of(deals, guard), ledger_of(deals, guard).entries[0]):
        assert (ledger.earned_micro, ledger.held_micro) == (earned, held)
        assert (ledger.released_micro, ledger.forfeited_micro) == (earned - held, forfeited)


def test_the_ledger_shows_what_is_reserved_for_terms_that_are_not_signed_yet(deals: Deals) -> None:
    guard = delivered(deals)
    deals.put(DEAL)  # as after a kill between the two
    ledger = ledger_of(deals, guard)
    (entry,) = ledger.entries
    assert (entry.budget, entry.spent) == (0.0, 0)
    assert entry.reserved == ledger.reserved == guard.accounts()[0].committed
    assert not ledger.elsewhere


def test_terms_that_were_given_up_are_in_the_ledger_once(deals: Deals) -> None:
    guard = delivered(deals)
    again = replace(SIGNED, terms={**(SIGNED.terms or {}), "terms": TERMS | {"budget": 0.2}})
    guard.close(SIGNED.account)
    guard.agree(again.agreed)
    deals.put(again)
    ledger = ledger_of(deals, guard)
    (entry,) = ledger.entries
    assert (entry.budget, entry.spent, entry.delivered) == (0.2, 0, 0)
    assert float(ledger.reserved) == pytest.approx(0.2)
    assert not ledger.elsewhere


def test_a_refusal_is_kept_once_and_not_without_end(deals: Deals) -> None:
    for _ in range(3):
        deals.refused(DEAL, 4, Refused("unpaid", "no receipt"))
        deals.refused(DEAL, None, Refused("price", "too little"))
    assert [(each.round, each.reason) for each in deals.refusals()] == [
        (4, "unpaid"),
        (None, "price"),
    ]
    for round in [*range(500), 2**80, -(2**80)]:
        deals.refused(DEAL, round, Refused("beyond-rounds", "outside"))
    assert len(deals.refusals()) == 100
    deals.refused(replace(DEAL, task="f" * 24), 0, Refused("price", "too little"))
    assert len(deals.refusals()) == 101  # another deal's are not crowded out


@pytest.mark.parametrize("reason", ["", "x" * 10_000, "\u202e\n"])
def test_a_strangers_reason_is_kept_as_it_is(reason: str, deals: Deals) -> None:
    deals.refused(DEAL, 2**80, Refused(reason, reason))
    assert deals.refusals()[0].reason == reason


DAMAGE = {
    "deal cut": ("deal", "UPDATE deal SET document = substr(document, 1, 40)"),
    "deal a list": ("deal", "UPDATE deal SET document = '[]'"),
    "deal of an unknown state": (
        "deal", "UPDATE deal SET document = replace(document, '\"joined\"', '\"sold\"')"),
    "deal without strategy": (
        "deal", "UPDATE deal SET document = json_remove(document, '$.strategy')"),
    "deal with a bad card": (
        "deal", "UPDATE deal SET document = json_set(document, '$.card_document.clip', -1)"),
    "deal with bad replies": (
        "deal", "UPDATE deal SET document = json_set(document, '$.replies', 7)"),
    "deal with half a reply": (
        "deal", "UPDATE deal SET document = json_remove(document, '$.replies[0].tick')"),
    "deal with a cap of text": (
        "deal", "UPDATE deal SET document = json_set(document, '$.cap', 'much')"),
    "deal with bad terms": ("deal", "UPDATE deal SET document = json_set(document, '$.terms', 7)"),
    "deal of a bad key": ("deal", "UPDATE deal SET document = json_set(document, '$.market', 'k')"),
    "market cut": ("market", "UPDATE market SET document = '{\"key\"'"),
    "market with an item more": (
        "market", "UPDATE market SET document = json_set(document, '$.token', 't')"),
    "market nested": ("market", "UPDATE market SET document = '" + "[" * 5000 + "'"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_row_gets_a_sentence(name: str, file: Path) -> None:
    what, statement = DAMAGE[name]
    store = SpendStore(file)
    Deals(store).put_market(MARKET)
    Deals(store).put(DEAL)
    store.close()
    connection = sqlite3.connect(file)
    connection.execute(statement)
    connection.commit()
    connection.close()
    store = SpendStore(file)
    with pytest.raises(InvalidFile, match=f"a {what} cannot be read"):
        getattr(Deals(store), f"{what}s")()
    store.close()


@pytest.mark.parametrize("receipt", ["", "[]", "{}", '{"receipt": {"round": 0}}', "{" * 9])
def test_a_damaged_receipt_gets_a_sentence(receipt: str, deals: Deals) -> None:
    delivered(deals, 0)
    with deals._store.statements() as run:
        run.execute("UPDATE delivered SET receipt = ?", (receipt,))
    with pytest.raises(InvalidFile, match="a receipt cannot be read"):
        deals.delivered(SIGNED)


def test_updates_and_receipts_are_never_forgotten(deals: Deals) -> None:
    delivered(deals, 0)
    deals.keep_receipt(SIGNED, 0, RECEIPT)
    for statement in ("DELETE FROM delivered", "UPDATE delivered SET receipt = NULL",
                      "UPDATE delivered SET hash = 'x'", "DELETE FROM account"):  # fmt: skip
        with pytest.raises(InvalidFile), deals._store.statements() as run:
            run.execute(statement)
    assert json.dumps(deals.delivered(SIGNED)[0].receipt) == json.dumps(RECEIPT)
