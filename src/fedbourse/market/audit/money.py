"""The money of one task, and of the whole market."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from fedbourse.errors import InvalidTransfer
from fedbourse.ledger import OUTSIDE, Book, Transfer
from fedbourse.market.audit.records import (
    Check,
    Differs,
    TaskRecords,
    Unseen,
    absent_pay,
    closed_rounds,
    due,
    same_amount,
    settled_reward,
)
from fedbourse.market.lifecycle import ENDED
from fedbourse.market.records import State
from fedbourse.market.service import FUND
from fedbourse.market.unearned import unspent_pay
from fedbourse.protocol.messages import earned
from fedbourse.units import MicroCredits, amount_text, credits_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedbourse.market.audit.records import Document


def check_vesting(records: TaskRecords) -> str:
    """Every owner was paid what it earned, and nobody else anything."""
    paid: defaultdict[str, int] = defaultdict(int)
    escrow = f"escrow:{records.task['task']}"
    for entry in records.money():
        if entry["debit"] == escrow and entry["credit"] not in (records.task["buyer"], FUND):
            paid[entry["credit"]] += entry["amount"]
    for allocation in records.everybody("allocation"):
        owed = due(records, allocation) - allocation["held_micro"]
        same_amount(f"what {allocation['owner']} was paid", paid.pop(allocation["owner"], 0), owed)
    if paid:
        raise Differs(f"escrow paid {', '.join(paid)}, who signed nothing")
    return "every owner was paid for the rounds that it delivered, and nobody else"


def check_escrow(records: TaskRecords) -> str:
    """What escrow held is what it gave, returned and still has."""
    escrow, buyer = f"escrow:{records.task['task']}", records.task["buyer"]
    entries = records.money()
    if not entries:
        raise Unseen("no money was ever held")
    reserved = sum(entry["amount"] for entry in entries if entry["credit"] == escrow)
    out = sum(entry["amount"] for entry in entries if entry["debit"] == escrow)
    back = sum(e["amount"] for e in entries if (e["debit"], e["credit"]) == (escrow, buyer))
    fund = sum(e["amount"] for e in entries if (e["debit"], e["credit"]) == (escrow, FUND))
    same_amount("what opening reserved", reserved, records.event("opened")["reserved_micro"])
    released = 0
    if any(event["kind"] == "announced" for event in records.events):
        announced = records.event("announced")
        released = announced["released_micro"]
        same_amount("what escrow held", reserved - released, announced["offer"]["reward_micro"])
    if reserved < out:
        raise Differs(f"escrow held {amount_text(reserved)} and gave {amount_text(out)}")
    if records.escrow_micro is not None:
        same_amount("what is in escrow", records.escrow_micro, reserved - out)
    if State(records.task["state"]) in ENDED:
        same_amount("what escrow gave in the end", out, reserved)
        ended = records.events[-1]["body"]
        same_amount("what went back to the buyer", back - released, ended["refunded_micro"])
        same_amount("what went to the fund", fund, ended["fund_micro"])
        _check_rule(records, ended)
    return (
        f"reserved {credits_text(reserved)} = earned {credits_text(out - back - fund)} + returned "
        f"{credits_text(back)} + to the fund {credits_text(fund)} + still there "
        f"{credits_text(reserved - out)}, in credits"
    )


def _check_rule(records: TaskRecords, ended: Document) -> None:
    """What was not earned went where the card says."""
    if records.card.unearned == "refund" or records.card.vesting == "upfront":
        same_amount("what went to the fund", ended["fund_micro"], 0)
        return
    if records.owners is None:
        return
    absent = absent_pay(records) + _forfeited(records) + _unspent(records)
    same_amount("what was not earned", ended["fund_micro"] + ended["shared_micro"], absent)


def _unspent(records: TaskRecords) -> int:
    """Return what the fund gets of the part of the reward that a clock did not spend."""
    closed = closed_rounds(records)
    if not closed:
        return 0
    spent = sum(each["payment_micro"] for each in records.signed)
    return unspent_pay(records.card, settled_reward(records) - spent, closed_rounds=closed)


def _forfeited(records: TaskRecords) -> int:
    """Return what dismissed owners delivered and were not paid for."""
    rounds = records.card.rounds
    return sum(
        earned(each["payment_micro"], delivered=each["delivered"], rounds=rounds)
        - due(records, each)
        for each in records.signed
        if each["state"] == "dismissed"
    )


def verify_books(
    *,
    entries: Iterable[Document],
    accounts: Iterable[Document],
    meanwhile: Iterable[Document] = (),
) -> list[Check]:
    """Recompute every balance of the market from its transfers, one after the other.

    ``meanwhile`` are transfers that were posted while the accounts were read: each account must
    hold what it held at some moment of that time.
    """
    book, wrong = Book(), []
    held: dict[str, set[int]] = defaultdict(set)
    moved = 0
    for late, some in ((False, entries), (True, meanwhile)):
        for entry in sorted(some, key=lambda entry: int(entry["sequence"])):
            moved += late
            amount = MicroCredits(entry["amount"])
            touched = (entry["debit"], entry["credit"])
            try:
                if late:
                    for name in touched:
                        held[name].add(book.balances.get(name, 0))
                book.post(Transfer(entry["id"], *touched, amount))
            except InvalidTransfer as error:
                wrong.append(f"transfer {entry['sequence']}: {error}")
    stored = {account["party"]: account["balance_micro"] for account in accounts}
    differ = []
    for name in sorted(stored.keys() | {name for name, left in book.balances.items() if left}):
        now = book.balances.get(name, 0)
        if stored.get(name, 0) not in held[name] | {now}:
            holds = amount_text(stored.get(name, 0))
            differ.append(f"{name} holds {holds}, recomputed is {amount_text(now)}")
    inside = sum(left for name, left in stored.items() if name != OUTSIDE)
    outside = -stored.get(OUTSIDE, 0)
    detail = f"{amount_text(inside)} are held, {amount_text(outside)} came in from outside"
    if moved:
        detail = f"{moved} transfers were posted while accounts were read; verify again later"
    return [
        _check_of(
            "transfers", wrong, f"{len(book.transfers)} transfers, none overdraws an account"
        ),
        _check_of("balances", differ, f"{len(stored)} balances follow from the transfers"),
        Check("conservation", None if moved else inside == outside, detail),
    ]


def _check_of(name: str, wrong: list[str], right: str) -> Check:
    return Check(name, not wrong, "; ".join(wrong[:3]) if wrong else right)
