"""An owner's own line: its hash, its place under the root, its payment, what it has earned."""

from __future__ import annotations

from fractions import Fraction

from fedbourse.market import log, merkle
from fedbourse.market.verify.records import (
    Differs,
    Records,
    Unseen,
    due,
    line_of,
    own_part,
    same,
    same_amount,
    settled_reward,
)
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, amount_text


def check_own_line(records: Records) -> str:
    """The owner's line leads to the root in the log; one who is out of the task has none."""
    own = records.own or {}
    if own.get("exit") is not None:
        if own["line"] is not None:
            raise Differs("you are out of this task, and the settlement has a line of yours")
        return "you are out of this task, and the settlement has no line of yours"
    line, proof = own_part(records, "line"), own_part(records, "proof")
    if line["budget"] is not None:
        same("the hash of your line", line["leaf"], log.leaf(line["salt"], line_of(line)))
    settled = records.settled
    same("the root over lines", proof["root"], settled["lines_root"])
    if not merkle.proves(
        proof["path"],
        leaf=line["leaf"],
        position=line["position"],
        leaves=settled["lines"],
        root=settled["lines_root"],
    ):
        raise Differs("the path from your line does not lead to the root in the log")
    return f"your line is number {line['position']} of {settled['lines']} under the root"


def check_own_payment(records: Records) -> str:
    """The owner's payment is R r/P."""
    line, settled = own_part(records, "line"), records.settled
    if line["budget"] is None:
        raise Unseen("your budget was erased")
    share = Fraction(line["budget"]) / Fraction(settled["total_budget"])
    reward = settled_reward(records)
    exact = reward * share
    slack = 1 + Fraction(2) ** -50 * reward  # the total is a rounded sum
    if abs(line["payment_micro"] - exact) > slack:
        raise Differs(
            f"R r/P is {float(exact) / MICRO_CREDITS_PER_CREDIT:.9f} credits; your payment is "
            f"{amount_text(line['payment_micro'])}"
        )
    return f"{amount_text(line['payment_micro'])} is R r/P to the last millionth"


def check_own_earnings(records: Records) -> str:
    """The owner has earned what its delivered rounds bring, or more where rounds are shared."""
    line = own_part(records, "line")
    least = due(records, line, shared=False)
    if records.card.unearned != "share":
        same_amount("what you have earned", line["earned_micro"], least)
    elif line["earned_micro"] < least:
        raise Differs(
            f"you have earned {amount_text(line['earned_micro'])}; your rounds bring "
            f"{amount_text(least)}"
        )
    receipt = records.own["receipt"] if records.own else None
    if receipt is not None:
        same_amount("your last receipt", receipt["receipt"]["earned_micro"], least)
        same("answers in your last receipt", receipt["receipt"]["answered"], line["answered"])
    return f"{amount_text(line['earned_micro'])} for {line['answered']} answered rounds"
