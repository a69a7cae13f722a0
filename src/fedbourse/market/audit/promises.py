"""What owners said, and what they were promised for it."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import TYPE_CHECKING

from fedbourse.game.activity import Reply, contradiction
from fedbourse.game.columns import per_owner
from fedbourse.game.mechanisms import market_settlement
from fedbourse.market import merkle
from fedbourse.market.audit.history import discovery_at
from fedbourse.market.audit.records import (
    Differs,
    TaskRecords,
    Unseen,
    allocation_of,
    budgets_of,
    check_leaf,
    erased_too,
    is_out,
    same,
    same_amount,
    settled_reward,
)
from fedbourse.market.lot_clock import LotDiscovery
from fedbourse.market.settlement import shares_at
from fedbourse.protocol.messages import interest_message, plan_message
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits, amount_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbourse.market.audit.records import Document


def check_interests(records: TaskRecords) -> str:
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
    root = merkle.root([interest["leaf"] for interest in interests])
    same("the root over interests", records.event("announced")["interests"], root)
    return f"{len(interests)} interests lead to the root in the log" + erased_too(erased)


def _check_each_update(records: TaskRecords, rounds: list[Document]) -> None:
    """Recompute each round's root, and how many rounds each owner delivered."""
    updates = records.updates or {}
    delivered: Counter[str] = Counter()
    for body in rounds:
        root = merkle.root([update["hash"] for update in updates[body["round"]]])
        same(f"the root over the updates of round {body['round']}", body["updates_root"], root)
    for round_updates in updates.values():
        delivered.update(update["owner"] for update in round_updates)
    for allocation in records.everybody("allocation"):
        counted = delivered.pop(allocation["owner"], 0)
        same(f"the rounds that {allocation['owner']} delivered", allocation["delivered"], counted)
    if delivered:
        raise Differs(f"{', '.join(delivered)} delivered without an allocation")


def check_replies(records: TaskRecords) -> str:
    """What owners replied to each tick leads to the root that its closing put into the log."""
    erased = count = 0
    offers = {body["offer"]["tick"]: body["hash"] for body in records.offers}
    for tick, body in sorted(records.closings.items()):
        replies = records.replies(tick)
        for reply in replies:
            message = plan_message(
                task=reply["task"],
                owner=reply["owner"],
                tick=tick,
                budget=reply["budget"],
                offer=offers[tick],
            )
            erased += check_leaf(reply, message, f"the reply of {reply['owner']} to tick {tick}")
        same(f"the replies to tick {tick}", body["replies"], len(replies))
        root = merkle.root([reply["leaf"] for reply in replies])
        same(f"the root over replies to tick {tick}", body["replies_root"], root)
        count += len(replies)
    _check_exits(records)
    return f"{count} replies to {len(records.closings)} ticks lead to the log" + erased_too(erased)


def _check_exits(records: TaskRecords) -> None:
    """Whoever is in when a tick closes replied to it, or to a smaller total with a zero."""
    closings = sorted(records.closings.items())
    left_out: Counter[int] = Counter()
    for owner in records.owners or ():
        budgets = {reply["tick"]: reply["budget"] for reply in owner["replies"]}
        zero_from = math.inf
        for tick, _ in closings:
            total = records.totals[tick]
            if is_out(owner, tick):
                left_out[tick] += 1
            elif tick in budgets:
                # What was erased may have been a zero.
                zero_from = zero_from if budgets[tick] else min(zero_from, total)
            elif total < zero_from:
                raise Differs(f"{owner['owner']} did not reply to tick {tick}, and is still in")
    for tick, body in closings:
        same(f"how many are out at tick {tick}", body["out"], left_out[tick])


def check_sums(records: TaskRecords) -> str:
    """The replies to each tick sum to what its closing published, where none was erased."""
    checked = 0
    for tick, body in sorted(records.closings.items()):
        replies = records.replies(tick)
        if any(reply["budget"] is None for reply in replies):
            continue
        budgets = budgets_of(replies)
        positive, share_sum = shares_at(
            records.totals[tick], [per_owner("replies", budgets, len(budgets))]
        )
        same(f"the replies above 0 to tick {tick}", body["positive"], positive)
        same(f"the sum of shares at tick {tick}", body["share_sum"], share_sum)
        checked += 1
    if not checked:
        raise Unseen("every tick has replies that were erased")
    return f"the replies to {checked} of {len(records.closings)} ticks sum to what was published"


def check_activity(records: TaskRecords) -> str:
    """No owner's replies contradict each other."""
    reward = records.event("announced")["offer"]["reward_micro"] / MICRO_CREDITS_PER_CREDIT
    for owner in records.all_owners:
        earlier: list[Reply] = []
        for each in owner["replies"]:
            if each["budget"] is None:
                continue
            reply = Reply(each["tick"], records.totals[each["tick"]], each["budget"])
            reason = contradiction(
                reply,
                earlier,
                reward=reward,
                floor=records.card.min_budget,
                linear=records.card.cost == "linear",
            )
            if reason is not None:
                raise Differs(f"{owner['owner']}: {reason}")
            earlier.append(reply)
    return "every owner's replies are those of one owner with a convex cost"


def check_settlement(records: TaskRecords) -> str:
    """The task was settled at the lowest total whose replies sum to at most it.

    Under the clock: where the reward first paid for all lots on offer.
    """
    settled = records.settled
    last = len(records.totals) - 1
    discovery = discovery_at(records, last, struck=records.struck)
    if isinstance(discovery, LotDiscovery):
        same("whether the clock had stopped", settled["converged"], discovery.converged)
        same("the tick settled at", settled["tick"], discovery.tick)
        same("the total settled at", settled["announced_total"], records.totals[discovery.tick])
        return f"the clock stopped after tick {settled['tick']}"
    tick = discovery.qualifying
    if tick is None:
        raise Differs("no tick qualifies for a settlement")
    same("the tick settled at", settled["tick"], discovery.ticks.index(tick))
    same("the total settled at", settled["announced_total"], tick.total_budget)
    same("whether P converged", settled["converged"], discovery.converged)
    how = "where P converged" if settled["converged"] else "by rule, without convergence"
    return f"settled at tick {settled['tick']}, a total of {tick.total_budget:.6g}, {how}"


def _lots(records: TaskRecords) -> Mapping[str, int] | None:
    """Return what the clock pays each seller; None under other mechanisms."""
    if not records.card.sells_lots:
        return None
    discovery = discovery_at(records, len(records.totals) - 1, struck=True)
    return discovery.payments if isinstance(discovery, LotDiscovery) else None


def check_plans(records: TaskRecords) -> str:
    """The plans lead to the root in the log."""
    plans, settled, lots = records.plans, records.settled, _lots(records)
    if lots is not None:
        plans = [plan for plan in plans if plan["owner"] in lots]
    erased = sum(plan["budget"] is None for plan in plans)
    counted = [plan["leaf"] for plan in plans if plan["budget"] != 0]
    if len(counted) == settled["plans"]:  # an erased plan of 0 looks like any other
        same("the root over plans", settled["plans_root"], merkle.root(counted))
    elif not erased:
        same("the number of plans", settled["plans"], len(counted))
    return f"{settled['plans']} plans above 0 lead to the root in the log" + erased_too(erased)


def check_payments(records: TaskRecords) -> str:
    """Payments follow from the plans and sum to R; under the clock, to what its lots cost."""
    lots = _lots(records)
    if lots is not None:
        return _check_lots(records, lots)
    plans = records.plans
    budgets = budgets_of(plans)
    reward = settled_reward(records)
    sold = per_owner("plans", budgets, len(budgets))
    pay = market_settlement(records.card.compensation)(lambda: [sold], MicroCredits(reward))
    due = {plan["owner"]: each for plan, each in zip(plans, pay(sold), strict=True)}
    payments = {each["owner"]: each["payment_micro"] for each in records.everybody("allocation")}
    for owner, payment in due.items():
        same_amount(f"the payment of {owner}", payments.get(owner, 0), payment)
    same("who was chosen", sorted(payments), sorted(owner for owner, pay in due.items() if pay))
    same_amount("the sum of payments", sum(payments.values()), reward)
    return f"{len(payments)} payments follow from the plans and sum to R exactly"


def _check_lots(records: TaskRecords, lots: Mapping[str, int]) -> str:
    """The clock's lots are paid as its ticks say, and cost R at most."""
    payments = {each["owner"]: each["payment_micro"] for each in records.everybody("allocation")}
    same("who was chosen", sorted(payments), sorted(lots))
    for owner, payment in lots.items():
        same_amount(f"the payment of {owner}", payments[owner], payment)
    total, reward = sum(lots.values()), settled_reward(records)
    if total > reward:
        raise Differs(f"the lots cost {amount_text(total)}, more than R, {amount_text(reward)}")
    return f"{len(lots)} lots at the prices that their owners accepted cost {amount_text(total)}"


def check_allocations(records: TaskRecords) -> str:
    """The allocations of the settlement lead to the root in the log."""
    settled, allocations, erased = records.settled, records.everybody("allocation"), 0
    for allocation in allocations:
        erased += check_leaf(
            allocation, allocation_of(allocation), f"the allocation of {allocation['owner']}"
        )
    same("the number of allocations", settled["allocations"], len(allocations))
    root = merkle.root([allocation["leaf"] for allocation in allocations])
    same("the root over allocations", settled["allocations_root"], root)
    total = sum(allocation["payment_micro"] for allocation in allocations)
    if not records.card.sells_lots:
        same_amount("the sum of payments", total, settled_reward(records))
    return f"{len(allocations)} allocations lead to the root in the log" + erased_too(erased)


def check_terms(records: TaskRecords) -> str:
    """All who were chosen signed, and the log vouches for their signatures."""
    started, reward = records.event("training"), settled_reward(records)
    signed = records.signed
    same("how many signed", started["signed"], len(signed))
    hashes = [hashlib.sha256(str(each["signature"]).encode()).hexdigest() for each in signed]
    same("the root over signatures", started["signatures_root"], merkle.root(hashes))
    if records.card.sells_lots:
        return f"{len(signed)} owners signed for their lots"
    same_amount("the pay that was signed for", sum(e["payment_micro"] for e in signed), reward)
    return f"{len(signed)} owners signed for all of the reward"


def check_updates(records: TaskRecords) -> str:
    """Rounds follow each other, with the updates that owners sent."""
    rounds = [e["body"] for e in records.events if e["kind"] == "round"]
    same("the rounds", [body["round"] for body in rounds], list(range(len(rounds))))
    if records.updates is not None:
        _check_each_update(records, rounds)
    delivered = sum(allocation["delivered"] for allocation in records.everybody("allocation"))
    closed = sum(body["updates"] for body in rounds)
    # While a round is open its updates are counted with their owners only.
    if records.task["state"] == "completed" and delivered != closed:
        raise Differs(f"owners have {delivered} updates, the rounds closed with {closed}")
    return f"{len(rounds)} rounds closed with {closed} updates"
