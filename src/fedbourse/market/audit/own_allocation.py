"""An owner's own allocation: its hash, place under the root, payment and earnings."""

from __future__ import annotations

from fractions import Fraction

from fedbourse.market import log, merkle
from fedbourse.market.audit.records import (
    Differs,
    TaskRecords,
    Unseen,
    allocation_of,
    due,
    own_part,
    same,
    same_amount,
    settled_reward,
)
from fedbourse.market.lot_clock import accepted_tick, lot_price
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits, amount_text


def check_own_allocation(records: TaskRecords) -> str:
    """The owner's allocation leads to the root in the log; one who is out of the task has none."""
    own = records.own or {}
    if own.get("exit") is not None:
        if own["allocation"] is not None:
            raise Differs("you are out of this task, and the settlement has an allocation of yours")
        return "you are out of this task, and the settlement has no allocation of yours"
    allocation, proof = own_part(records, "allocation"), own_part(records, "proof")
    if allocation["budget"] is not None:
        same(
            "the hash of your allocation",
            allocation["leaf"],
            log.leaf(allocation["salt"], allocation_of(allocation)),
        )
    settled = records.settled
    same("the root over allocations", proof["root"], settled["allocations_root"])
    if not merkle.proves(
        proof["path"],
        leaf=allocation["leaf"],
        position=allocation["position"],
        leaves=settled["allocations"],
        root=settled["allocations_root"],
    ):
        raise Differs("the path from your allocation does not lead to the root in the log")
    place = f"number {allocation['position']} of {settled['allocations']}"
    return f"your allocation is {place} under the root"


def check_own_payment(records: TaskRecords) -> str:
    """The owner's payment is R r/P where pay is in proportion to budgets; else its lot's price."""
    allocation, settled = own_part(records, "allocation"), records.settled
    if allocation["budget"] is None:
        raise Unseen("your budget was erased")
    if records.card.sells_lots:
        tick = accepted_tick(
            records.card,
            records.totals,
            reward=MicroCredits(settled_reward(records)),
            payment=allocation["payment_micro"],
            tick=settled["tick"],
        )
        price = lot_price(
            records.card,
            reward=MicroCredits(settled_reward(records)),
            total_budget=records.totals[tick],
        )
        same_amount("your payment", allocation["payment_micro"], price)
        return f"{amount_text(price)} is the price of a lot that you accepted at tick {tick}"
    if records.card.compensation != "proportional":
        raise Unseen("under this compensation it takes all budgets; auditors recompute it")
    share = Fraction(allocation["budget"]) / Fraction(settled["total_budget"])
    reward = settled_reward(records)
    exact = reward * share
    slack = 1 + Fraction(2) ** -50 * reward  # the total is a rounded sum
    if abs(allocation["payment_micro"] - exact) > slack:
        raise Differs(
            f"R r/P is {float(exact) / MICRO_CREDITS_PER_CREDIT:.9f} credits; your payment is "
            f"{amount_text(allocation['payment_micro'])}"
        )
    return f"{amount_text(allocation['payment_micro'])} is R r/P to the last millionth"


def check_own_earnings(records: TaskRecords) -> str:
    """The owner has earned what its delivered rounds bring, or more where rounds are shared."""
    allocation = own_part(records, "allocation")
    least = due(records, allocation, shared=False)
    if records.card.unearned != "share":
        same_amount("what you have earned", allocation["earned_micro"], least)
    elif allocation["earned_micro"] < least:
        raise Differs(
            f"you have earned {amount_text(allocation['earned_micro'])}; your rounds bring "
            f"{amount_text(least)}"
        )
    receipt = records.own["receipt"] if records.own else None
    if receipt is not None:
        same_amount("your last receipt", receipt["receipt"]["earned_micro"], least)
        same(
            "updates in your last receipt", receipt["receipt"]["delivered"], allocation["delivered"]
        )
    return (
        f"{amount_text(allocation['earned_micro'])} for {allocation['delivered']} delivered rounds"
    )
