"""What owners said, and what they were promised for it."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from fedbourse.game.columns import per_owner
from fedbourse.market import log
from fedbourse.market.settlement import COMPENSATIONS, shares_at
from fedbourse.market.verify.records import (
    Differs,
    Records,
    budgets_of,
    check_leaf,
    erased_too,
    line_of,
    same,
    settled_reward,
)
from fedbourse.units import MicroCredits
from fedbourse.wire.messages import interest_message, plan_message

if TYPE_CHECKING:
    from fedbourse.market.verify.records import Document


def check_interests(records: Records) -> str:
    """What owners said when they registered leads to the root in the log."""
    interests = records.everybody("interest")
    erased = 0
    for interest in interests:
        message = interest_message(
            task=interest["task"],
            owner=interest["owner"],
            value=interest["value"],
            card=records.task["card"],
        )
        erased += check_leaf(interest, message, f"the interest of {interest['owner']}")
    root = log.root([interest["leaf"] for interest in interests])
    same("the root over interests", records.event("announced")["interests"], root)
    return f"{len(interests)} interests lead to the root in the log" + erased_too(erased)


def _check_each_answer(records: Records, rounds: list[Document]) -> None:
    """Recompute each round's root, and how many rounds each owner answered."""
    answers = records.answers or {}
    given: Counter[str] = Counter()
    for body in rounds:
        came = answers[body["round"]]
        root = log.root([answer["hash"] for answer in came])
        same(f"the root over the answers of round {body['round']}", body["answers_root"], root)
    for came in answers.values():
        given.update(answer["owner"] for answer in came)
    for line in records.everybody("line"):
        counted = given.pop(line["owner"], 0)
        same(f"the rounds that {line['owner']} answered", line["answered"], counted)
    if given:
        raise Differs(f"{', '.join(given)} answered without a line")


def check_plans(records: Records) -> str:
    """The last plans lead to the root in the log."""
    plans = records.everybody("plan")
    offers = {body["offer"]["tick"]: body["hash"] for body in records.offers}
    erased = 0
    for plan in plans:
        message = plan_message(
            task=plan["task"],
            owner=plan["owner"],
            tick=plan["tick"],
            budget=plan["budget"],
            offer=offers[plan["tick"]],
        )
        erased += check_leaf(plan, message, f"the plan of {plan['owner']}")
    settled = records.event("settled")
    counted = [plan["leaf"] for plan in plans if plan["budget"] != 0]
    if len(counted) == settled["plans"]:  # an erased plan of 0 looks like any other
        same("the root over plans", settled["plans_root"], log.root(counted))
    elif not erased:
        same("the number of plans", settled["plans"], len(counted))
    return f"{settled['plans']} plans above 0 lead to the root in the log" + erased_too(erased)


def check_last_tick(records: Records) -> str:
    """The plans sum to what the last tick saw."""
    budgets = budgets_of(records, "plan")
    seen = records.event("last-tick")
    total = records.offers[-1]["offer"]["total_budget"]
    positive, share_sum = shares_at(total, [per_owner("plans", budgets, len(budgets))])
    same("the plans above 0 at the last tick", seen["positive"], positive)
    same("the sum of shares at the last tick", seen["share_sum"], share_sum)
    still = "stands still" if seen["stands_still"] else "was stopped by the deadline"
    return f"{positive} plans make {share_sum:.12g} of P, which {still}"


def check_payments(records: Records) -> str:
    """Payments follow from the plans and sum to R."""
    budgets = budgets_of(records, "plan")
    reward = settled_reward(records)
    sold = per_owner("plans", budgets, len(budgets))
    pay = COMPENSATIONS[records.card.compensation](lambda: [sold], MicroCredits(reward))
    plans = records.everybody("plan")
    due = {plan["owner"]: each for plan, each in zip(plans, pay(sold), strict=True)}
    lines = {line["owner"]: line for line in records.everybody("line")}
    for owner, payment in due.items():
        found = lines[owner]["payment_micro"] if owner in lines else 0
        same(f"the payment of {owner}", found, payment)
    same("who was chosen", sorted(lines), sorted(owner for owner, pay in due.items() if pay))
    same("the sum of payments", sum(line["payment_micro"] for line in lines.values()), reward)
    return f"{len(lines)} payments follow from the plans and sum to R exactly"


def check_lines(records: Records) -> str:
    """The lines of the settlement lead to the root in the log."""
    lines, erased = records.everybody("line"), 0
    for line in lines:
        erased += check_leaf(line, line_of(line), f"the line of {line['owner']}")
    settled = records.event("settled")
    same("the number of lines", settled["lines"], len(lines))
    root = log.root([line["leaf"] for line in lines])
    same("the root over lines", settled["lines_root"], root)
    total = sum(line["payment_micro"] for line in lines)
    same("the sum of payments", total, settled_reward(records))
    return f"{len(lines)} lines lead to the root in the log" + erased_too(erased)


def check_terms(records: Records) -> str:
    """Those who signed are those whose signatures the log vouches for."""
    started = records.event("training")
    signed = [line for line in records.everybody("line") if line["state"] == "signed"]
    same("how many signed", started["signed"], len(signed))
    hashes = [hashlib.sha256(str(line["signature"]).encode()).hexdigest() for line in signed]
    same("the root over signatures", started["signatures_root"], log.root(hashes))
    declined = settled_reward(records) - sum(line["payment_micro"] for line in signed)
    same("the pay that was declined", started["declined_micro"], declined)
    return f"{len(signed)} owners signed; pay of {declined} micro-credits was declined"


def check_answers(records: Records) -> str:
    """Rounds follow each other, with the answers that owners gave."""
    rounds = [e["body"] for e in records.events if e["kind"] == "round"]
    same("the rounds", [body["round"] for body in rounds], list(range(len(rounds))))
    if records.answers is not None:
        _check_each_answer(records, rounds)
    answered = sum(line["answered"] for line in records.everybody("line"))
    closed = sum(body["answers"] for body in rounds)
    # While a round is open its answers are counted with their owners only.
    if records.task["state"] == "completed" and answered != closed:
        raise Differs(f"owners have {answered} answers, the rounds closed with {closed}")
    return f"{len(rounds)} rounds closed with {closed} answers"
