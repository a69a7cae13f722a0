"""A task recomputed from its records: the log, what owners said, the settlement, and the money.

Works on the plain documents that the market publishes, so that anybody can run it on a machine of
its own: an auditor on everything, an owner on its own line and the totals, a stranger on the log.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from fedbourse.errors import FedbourseError
from fedbourse.game.discovery import Discovery
from fedbourse.market import log
from fedbourse.market.lifecycle import ENDED, LIFE
from fedbourse.market.offers import choose_reward, first_total
from fedbourse.market.settlement import COMPENSATIONS, earned, shares_at
from fedbourse.market.task import State
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, MicroCredits
from fedbourse.wire.canonical import digest
from fedbourse.wire.card import TaskCard
from fedbourse.wire.messages import interest_message, line_document, plan_message

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Check:
    """One thing that was recomputed."""

    name: str
    passed: bool | None
    """None where it could not be checked; ``detail`` says why."""
    detail: str


class _Differs(Exception):
    """Two numbers that should be one."""


class _Unseen(Exception):
    """What a check needs is not among the records that the caller may see."""


@dataclass(frozen=True)
class _Records:
    """All that was fetched of one task."""

    task: Document
    card_document: Document
    events: list[Document]
    owners: list[Document] | None
    own: Document | None
    entries: list[Document] | None

    @cached_property
    def card(self) -> TaskCard:
        return TaskCard.of(self.card_document)

    def event(self, kind: str) -> Document:
        """Return the body of the first event of a kind."""
        for event in self.events:
            if event["kind"] == kind:
                body: Document = event["body"]
                return body
        raise _Unseen(f"the task was never {kind}")

    @cached_property
    def offers(self) -> list[Document]:
        """Return the bodies of all events that announced a total."""
        return [e["body"] for e in self.events if e["kind"] in ("announced", "ticked")]

    def everybody(self, part: str) -> list[Document]:
        """Return interests, plans or lines of all owners, by name."""
        if self.owners is None:
            raise _Unseen("it takes an auditor's token to see every owner")
        return [owner[part] for owner in self.owners if owner[part] is not None]

    def money(self) -> list[Document]:
        """Return all transfers from and to the escrow account."""
        if self.entries is None:
            raise _Unseen("the escrow account is its buyer's, the operator's and auditors' to see")
        return self.entries


def verify_task(
    *,
    task: Document,
    card: Document,
    events: list[Document],
    owners: list[Document] | None = None,
    own: Document | None = None,
    entries: list[Document] | None = None,
) -> list[Check]:
    """Recompute everything that these documents allow, and say what differs.

    ``owners`` is what ``views.everybody`` gives, ``own`` what ``views.mine`` gives, with the
    ``proof`` of ``views.proof``; ``entries`` are the transfers of the escrow account.
    """
    records = _Records(task, card, events, owners, own, entries)
    checks = [_run(name, check, records) for name, check in _CHECKS.items()]
    if own is not None:
        checks += [_run(name, check, records) for name, check in _OWN_CHECKS.items()]
    return checks


def _run(name: str, check: Callable[[_Records], str], records: _Records) -> Check:
    try:
        return Check(name, True, check(records))
    except _Unseen as unseen:
        return Check(name, None, str(unseen))
    except _Differs as differs:
        return Check(name, False, str(differs))
    except (FedbourseError, KeyError, TypeError, ValueError, AttributeError) as error:
        return Check(name, False, f"the records cannot be read: {type(error).__name__} {error}")


def _same(what: str, found: object, recomputed: object) -> None:
    if found != recomputed:
        raise _Differs(f"{what}: the records say {found}, recomputed is {recomputed}")


# -- the log ---------------------------------------------------------------------------------------


def _card(records: _Records) -> str:
    _same("the card's hash", records.task["card"], digest(dict(records.card_document)))
    _same("the card's hash in the log", records.event("created")["card"], records.task["card"])
    return f"the card has the hash {str(records.task['card'])[:12]}..."


def _chain(records: _Records) -> str:
    previous = records.task["card"]
    for number, document in enumerate(records.events):
        event = log.Event(**document)
        _same("an event's place", event.sequence, number)
        _same("an event's task", event.task, records.task["task"])
        _same(f"what event {number} follows", event.previous, previous)
        if not log.is_intact(event):
            raise _Differs(f"event {number} ({event.kind}) is not what its hash says")
        previous = event.hash
    _same("the number of events", records.task["events"], len(records.events))
    _same("the end of the log", records.task["last_hash"], previous)
    return f"{len(records.events)} events, each holding the hash of the one before"


def _life(records: _Records) -> str:
    moves = {(state, rule.next) for (state, _), rule in LIFE.items()}
    states = [State(event["body"]["state"]) for event in records.events]
    _same("the first state", states[0].value, "draft")
    for before, now in itertools.pairwise(states):
        if before is not now and (before, now) not in moves:
            raise _Differs(f"nothing leads from {before.value} to {now.value}")
    _same("the state", records.task["state"], states[-1].value)
    return f"every step from draft to {states[-1].value} is one that the table allows"


# -- reward and totals -----------------------------------------------------------------------------


def _reward(records: _Records) -> str:
    announced = records.event("announced")
    offer = announced["offer"]
    reported = None
    if records.card.reward == "best-reported":
        reported = _values(records)[1]
    reward, _method = choose_reward(records.card, interested=offer["interested"], reported=reported)
    _same("the reward", offer["reward_micro"], reward)
    return f"R is {reward} micro-credits, {offer['method']}"


def _totals(records: _Records) -> str:
    first = records.event("announced")
    credits = first["offer"]["reward_micro"] / MICRO_CREDITS_PER_CREDIT
    interested = first["offer"]["interested"]
    values = np.full(interested, np.nan)
    if first["reported"] == interested:
        values = _values(records)[0]
    total = first_total(records.card, values, reward=credits, interested=interested)
    market = Discovery.start(total_budget=total)
    previous = digest(dict(records.card_document))
    for tick, body in enumerate(records.offers):
        offer = body["offer"]
        if tick:
            market = market.move(positive=body["positive"], share_sum=body["share_sum"])
        _same("a tick's number", offer["tick"], tick)
        _same(f"the total announced at tick {tick}", offer["total_budget"], market.total_budget)
        _same(f"what offer {tick} follows", offer["previous"], previous)
        _same(f"the hash of offer {tick}", body["hash"], digest(offer))
        previous = body["hash"]
    return f"P moved over {len(records.offers)} announcements by the rule, from {total:.6g}"


def _values(records: _Records) -> tuple[Any, Any]:
    said = [interest["value"] for interest in records.everybody("interest")]
    values = np.array([np.nan if value is None else value for value in said], dtype=np.float64)
    return values, values[~np.isnan(values)]


# -- what owners said ------------------------------------------------------------------------------


def _interests(records: _Records) -> str:
    interests = records.everybody("interest")
    erased = 0
    for interest in interests:
        message = interest_message(
            task=interest["task"],
            owner=interest["owner"],
            value=interest["value"],
            card=records.task["card"],
        )
        erased += _leaf(interest, message, f"the interest of {interest['owner']}")
    root = log.root([interest["leaf"] for interest in interests])
    _same("the root over interests", records.event("announced")["interests"], root)
    return f"{len(interests)} interests lead to the root in the log" + _erased(erased)


def _plans(records: _Records) -> str:
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
        erased += _leaf(plan, message, f"the plan of {plan['owner']}")
    settled = records.event("settled")
    counted = [plan["leaf"] for plan in plans if plan["budget"] != 0]
    if len(counted) == settled["plans"]:  # an erased plan of 0 looks like any other
        _same("the root over plans", settled["plans_root"], log.root(counted))
    elif not erased:
        _same("the number of plans", settled["plans"], len(counted))
    return f"{settled['plans']} plans above 0 lead to the root in the log" + _erased(erased)


def _last_tick(records: _Records) -> str:
    budgets = _budgets(records, "plan")
    seen = records.event("last-tick")
    total = records.offers[-1]["offer"]["total_budget"]
    positive, share_sum = shares_at(total, budgets)
    _same("the plans above 0 at the last tick", seen["positive"], positive)
    _same("the sum of shares at the last tick", seen["share_sum"], share_sum)
    still = "stands still" if seen["stands_still"] else "was stopped by the deadline"
    return f"{positive} plans make {share_sum:.12g} of P, which {still}"


# -- settlement ------------------------------------------------------------------------------------


def _payments(records: _Records) -> str:
    budgets = _budgets(records, "plan")
    reward = records.event("settled")["reward_micro"]
    sold = [budget for budget in budgets if budget]
    pay = iter(COMPENSATIONS[records.card.compensation](sold, MicroCredits(reward)))
    plans = records.everybody("plan")
    due = {plan["owner"]: next(pay) for plan in plans if plan["budget"]}
    lines = {line["owner"]: line for line in records.everybody("line")}
    for owner, payment in due.items():
        found = lines[owner]["payment_micro"] if owner in lines else 0
        _same(f"the payment of {owner}", found, payment)
    _same("who was chosen", sorted(lines), sorted(owner for owner, pay in due.items() if pay))
    _same("the sum of payments", sum(line["payment_micro"] for line in lines.values()), reward)
    return f"{len(lines)} payments follow from the plans and sum to R exactly"


def _lines(records: _Records) -> str:
    lines, erased = records.everybody("line"), 0
    for line in lines:
        erased += _leaf(line, _line_of(line), f"the line of {line['owner']}")
    settled = records.event("settled")
    _same("the number of lines", settled["lines"], len(lines))
    root = log.root([line["leaf"] for line in lines])
    _same("the root over lines", settled["lines_root"], root)
    total = sum(line["payment_micro"] for line in lines)
    _same("the sum of payments", total, settled["reward_micro"])
    return f"{len(lines)} lines lead to the root in the log" + _erased(erased)


def _terms(records: _Records) -> str:
    started = records.event("training")
    signed = [line for line in records.everybody("line") if line["state"] == "signed"]
    _same("how many signed", started["signed"], len(signed))
    hashes = [hashlib.sha256(str(line["signature"]).encode()).hexdigest() for line in signed]
    _same("the root over signatures", started["signatures_root"], log.root(hashes))
    reward = records.event("settled")["reward_micro"]
    declined = reward - sum(line["payment_micro"] for line in signed)
    _same("the pay that was declined", started["declined_micro"], declined)
    return f"{len(signed)} owners signed; pay of {declined} micro-credits was declined"


def _answers(records: _Records) -> str:
    rounds = [e["body"] for e in records.events if e["kind"] == "round"]
    _same("the rounds", [body["round"] for body in rounds], list(range(len(rounds))))
    answered = sum(line["answered"] for line in records.everybody("line"))
    closed = sum(body["answers"] for body in rounds)
    # While a round is open its answers are counted with their owners only.
    if records.task["state"] == "completed" and answered != closed:
        raise _Differs(f"owners have {answered} answers, the rounds closed with {closed}")
    return f"{len(rounds)} rounds closed with {closed} answers"


# -- money -----------------------------------------------------------------------------------------


def _vesting(records: _Records) -> str:
    paid: defaultdict[str, int] = defaultdict(int)
    escrow = f"escrow:{records.task['task']}"
    for entry in records.money():
        if entry["source"] == escrow and entry["target"] != records.task["buyer"]:
            paid[entry["target"]] += entry["amount"]
    for line in records.everybody("line"):
        due = _due(records, line)
        _same(f"what {line['owner']} was paid", paid.pop(line["owner"], 0), due)
    if paid:
        raise _Differs(f"escrow paid {', '.join(paid)}, who signed nothing")
    return "every owner was paid for the rounds that it answered, and nobody else"


def _escrow(records: _Records) -> str:
    escrow, buyer = f"escrow:{records.task['task']}", records.task["buyer"]
    entries = records.money()
    if not entries:
        raise _Unseen("no money was ever held")
    held = sum(entry["amount"] for entry in entries if entry["target"] == escrow)
    out = sum(entry["amount"] for entry in entries if entry["source"] == escrow)
    back = sum(e["amount"] for e in entries if (e["source"], e["target"]) == (escrow, buyer))
    _same("what escrow held", held, records.event("announced")["offer"]["reward_micro"])
    if held < out:
        raise _Differs(f"escrow held {held} and gave {out}")
    if State(records.task["state"]) in ENDED:
        _same("what escrow gave in the end", out, held)
        told = records.events[-1]["body"]["refunded_micro"]
        for event in records.events:
            told += event["body"].get("declined_micro", 0)
        _same("what went back to the buyer", back, told)
    return f"held {held} = earned {out - back} + returned {back} + still there {held - out}"


# -- an owner's own line ---------------------------------------------------------------------------


def _own_line(records: _Records) -> str:
    line, proof = _own(records, "line"), _own(records, "proof")
    if line["budget"] is not None:
        _same("the hash of your line", line["leaf"], log.leaf(line["salt"], _line_of(line)))
    settled = records.event("settled")
    _same("the root over lines", proof["root"], settled["lines_root"])
    if not log.proves(
        proof["path"], leaf=line["leaf"], position=line["position"], root=settled["lines_root"]
    ):
        raise _Differs("the path from your line does not lead to the root in the log")
    return f"your line is number {line['position']} of {settled['lines']} under the root"


def _own_payment(records: _Records) -> str:
    line, settled = _own(records, "line"), records.event("settled")
    if line["budget"] is None:
        raise _Unseen("your budget was erased")
    share = Fraction(line["budget"]) / Fraction(settled["total_budget"])
    exact = settled["reward_micro"] * share
    slack = 1 + Fraction(2) ** -50 * settled["reward_micro"]  # the total is a rounded sum
    if abs(line["payment_micro"] - exact) > slack:
        raise _Differs(f"R r/P is {float(exact):.3f}; your payment is {line['payment_micro']}")
    return f"{line['payment_micro']} micro-credits is R r/P to the last one"


def _own_earnings(records: _Records) -> str:
    line = _own(records, "line")
    _same("what you have earned", line["earned_micro"], _due(records, line))
    receipt = records.own["receipt"] if records.own else None
    if receipt is not None:
        _same("your last receipt", receipt["receipt"]["earned_micro"], line["earned_micro"])
        _same("answers in your last receipt", receipt["receipt"]["answered"], line["answered"])
    return f"{line['earned_micro']} micro-credits for {line['answered']} answered rounds"


# -- what several checks need ----------------------------------------------------------------------


def _own(records: _Records, part: str) -> Document:
    found: Document | None = (records.own or {}).get(part)
    if found is None:
        raise _Unseen("you have no line in this task")
    return found


def _line_of(line: Document) -> dict[str, Any]:
    return line_document(
        owner=line["owner"], budget=line["budget"], payment_micro=line["payment_micro"]
    )


def _leaf(record: Document, message: object, what: str) -> bool:
    """Check a salted hash; say whether what it covers was erased."""
    if not record["salt"]:
        return True
    _same(f"the hash of {what}", record["leaf"], log.leaf(record["salt"], message))
    return False


def _erased(count: int) -> str:
    return f" ({count} of them erased, hashes only)" if count else ""


def _budgets(records: _Records, part: str) -> list[float]:
    budgets = [each["budget"] for each in records.everybody(part)]
    if None in budgets:
        raise _Unseen(f"{budgets.count(None)} owners had their budgets erased")
    return budgets


def _due(records: _Records, line: Document) -> int:
    if line["state"] != "signed" or not any(e["kind"] == "training" for e in records.events):
        return 0
    if records.card.payout == "upfront":
        payment: int = line["payment_micro"]
        return payment
    return earned(line["payment_micro"], answered=line["answered"], rounds=records.card.rounds)


_CHECKS: dict[str, Callable[[_Records], str]] = {
    "card": _card,
    "log": _chain,
    "life cycle": _life,
    "reward": _reward,
    "totals": _totals,
    "interests": _interests,
    "plans": _plans,
    "last tick": _last_tick,
    "payments": _payments,
    "lines": _lines,
    "terms": _terms,
    "answers": _answers,
    "vesting": _vesting,
    "escrow": _escrow,
}
_OWN_CHECKS: dict[str, Callable[[_Records], str]] = {
    "own line": _own_line,
    "own payment": _own_payment,
    "own earnings": _own_earnings,
}
