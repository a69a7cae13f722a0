"""The log, the life cycle, the reward and the totals: what everybody can recompute."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.encoding.canonical import digest
from fedbourse.game.price_discovery import TickSum
from fedbourse.market import log
from fedbourse.market.audit.records import (
    Differs,
    TaskRecords,
    Unseen,
    budgets_of,
    same,
    same_amount,
)
from fedbourse.market.lifecycle import LIFE
from fedbourse.market.lot_clock import ClockOffers, LotDiscovery, LotTick, stayed
from fedbourse.market.offers import choose_reward, first_total, value_stream
from fedbourse.market.ports import AT_ONCE
from fedbourse.market.price_discovery import discovery_after
from fedbourse.market.records import State
from fedbourse.market.settlement import shares_at
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, amount_text

if TYPE_CHECKING:
    from fedbourse.game import Stream
    from fedbourse.game.columns import FloatArray
    from fedbourse.game.price_discovery import PriceDiscovery
    from fedbourse.market.audit.records import Document


def check_card(records: TaskRecords) -> str:
    """The card has the hash that the log begins with."""
    same("the card's hash", records.task["card"], digest(dict(records.card_document)))
    same("the card's hash in the log", records.event("created")["card"], records.task["card"])
    return f"the card has the hash {str(records.task['card'])[:12]}..."


def check_chain(records: TaskRecords) -> str:
    """Every event holds the hash of the one before."""
    previous = records.task["card"]
    for number, document in enumerate(records.events):
        event = log.Event(**document)
        same("an event's place", event.sequence, number)
        same("an event's task", event.task, records.task["task"])
        same(f"what event {number} follows", event.previous, previous)
        if not log.is_intact(event):
            raise Differs(f"event {number} ({event.kind}) is not what its hash says")
        previous = event.hash
    same("the number of events", records.task["events"], len(records.events))
    same("the end of the log", records.task["last_hash"], previous)
    return f"{len(records.events)} events, each holding the hash of the one before"


def check_life(records: TaskRecords) -> str:
    """Every change of state is one that the table allows."""
    moves = {(state, rule.next) for (state, _), rule in LIFE.items()}
    states = [State(event["body"]["state"]) for event in records.events]
    same("the first state", states[0].value, "draft")
    for before, now in itertools.pairwise(states):
        if before is not now and (before, now) not in moves:
            raise Differs(f"nothing leads from {before.value} to {now.value}")
    same("the state", records.task["state"], states[-1].value)
    return f"every step from draft to {states[-1].value} is one that the table allows"


def check_reward(records: TaskRecords) -> str:
    """R follows from the card."""
    announced = records.event("announced")
    offer, reports, reported = announced["offer"], 0, None
    if records.card.reward == "best-reported":
        reports, reported = _reported(records)
    reward, _method = choose_reward(
        records.card, interested=offer["interested"], reports=reports, reported=reported
    )
    same_amount("the reward", offer["reward_micro"], reward)
    return f"R is {amount_text(reward)}, {offer['method']}"


def check_totals(records: TaskRecords) -> str:
    """P moved by the rule, from one offer to the next."""
    first = records.event("announced")
    credits = first["offer"]["reward_micro"] / MICRO_CREDITS_PER_CREDIT
    interested = first["offer"]["interested"]
    reports, reported = _reported(records) if first["reported"] == interested else (0, None)
    total = first_total(
        records.card, reward=credits, interested=interested, reports=reports, reported=reported
    )
    same("the total announced at tick 0", records.totals[0], total)
    previous = digest(dict(records.card_document))
    for tick, body in enumerate(records.offers):
        offer = body["offer"]
        same("a tick's number", offer["tick"], tick)
        for item in ("reward_micro", "interested"):
            same(f"{item} at tick {tick}", offer[item], first["offer"][item])
        same(f"what offer {tick} follows", offer["previous"], previous)
        same(f"the hash of offer {tick}", body["hash"], digest(offer))
        previous = body["hash"]
    for tick in range(len(records.offers)):
        _check_move(records, tick)
    return f"P moved over {len(records.offers)} announcements by the rule, from {total:.6g}"


def _check_move(records: TaskRecords, tick: int) -> None:
    """What followed a tick is what its replies, and those before it, lead to."""
    closing = records.closings.get(tick)
    if closing is not None and "converged" in closing:
        discovery = discovery_at(records, tick)
        same(f"whether P converged at tick {tick}", closing["converged"], discovery.converged)
    if tick + 1 < len(records.offers):
        # An announcement that did not close the tick before came after decliners were struck out.
        struck = closing is None or "offer" not in closing
        discovery = discovery_at(records, tick, struck=struck)
        total = records.totals[tick + 1]
        same(f"the total announced at tick {tick + 1}", total, discovery.total_budget)


def discovery_at(
    records: TaskRecords, tick: int, *, struck: bool = False
) -> PriceDiscovery | LotDiscovery:
    """Return how discovery stands when a tick closes; or once its decliners are struck out."""
    if not records.card.sells_lots:
        return discovery_after(sums_at(records, tick, struck=struck))
    first = records.offers[0]
    offers = ClockOffers(
        records.card, first["offer"]["reward_micro"], first["offer"]["interested"], first["hash"]
    )
    ticks = []
    for each, total in enumerate(records.totals[: tick + 1]):
        replies = records.replies_in(each, at=tick, struck=struck)
        owners = [reply["owner"] for reply in replies]
        ticks.append(LotTick(total, stayed(zip(owners, budgets_of(replies), strict=True))))
    return LotDiscovery(offers, ticks)


def sums_at(records: TaskRecords, tick: int, *, struck: bool = False) -> list[TickSum]:
    """Return what each tick sums to when this one closes; or once its decliners are struck out.

    While nobody is out of the task these are the sums that the log published as ticks closed.
    """
    if not struck and not records.closings[tick]["out"]:
        return [
            TickSum(records.totals[each], body["positive"], body["share_sum"])
            for each, body in sorted(records.closings.items())
            if each <= tick
        ]
    return [
        TickSum(
            total, *shares_at(total, [_column(records.replies_in(each, at=tick, struck=struck))])
        )
        for each, total in enumerate(records.totals[: tick + 1])
    ]


def _column(replies: list[Document]) -> FloatArray:
    return np.array(budgets_of(replies), dtype=np.float64)


def _reported(records: TaskRecords) -> tuple[int, Stream]:
    """Return how many values were reported, and all of them as the market read them."""
    interests = records.everybody("interest")
    if not all(interest["salt"] for interest in interests):
        raise Unseen("some owners had their values erased")
    values = [interest["value"] for interest in interests]
    chunks = range(0, len(values), AT_ONCE)
    return len(values) - values.count(None), value_stream(
        lambda: ((tuple(values[start : start + AT_ONCE]),) for start in chunks)
    )
