"""What was fetched of a task, and how one thing in it is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from fedbourse.errors import FedbourseError
from fedbourse.market import log
from fedbourse.market.records import TRAINED
from fedbourse.market.unearned import shared_bonuses, undelivered_pay
from fedbourse.protocol.messages import allocation_document, earned
from fedbourse.tasks.card import TaskCard
from fedbourse.units import amount_text

Document = Mapping[str, Any]
Given = TypeVar("Given")


@dataclass(frozen=True)
class Check:
    """One thing that was recomputed."""

    name: str
    passed: bool | None
    """None where it could not be checked; ``detail`` says why."""
    detail: str


class Differs(Exception):
    """Two numbers that should be one."""


class Unseen(Exception):
    """What a check needs is not among the records that the caller may see."""


@dataclass(frozen=True)
class TaskRecords:
    """All that was fetched of one task."""

    task: Document
    card_document: Document
    events: list[Document]
    owners: list[Document] | None
    own: Document | None
    entries: list[Document] | None
    escrow_micro: int | None
    updates: Mapping[int, list[Document]] | None
    """Owner and hash of each update, by round."""
    evidence: Document | None = None
    """The reference file, what was found of devices, and the rounds that were kept."""

    @cached_property
    def card(self) -> TaskCard:
        """Return the card."""
        return TaskCard.of(self.card_document)

    def event(self, kind: str) -> Document:
        """Return the body of the last event of a kind."""
        for event in reversed(self.events):
            if event["kind"] == kind:
                body: Document = event["body"]
                return body
        raise Unseen(f"the log has no event {kind!r}")

    @cached_property
    def offers(self) -> list[Document]:
        """Return the bodies of all events that announced a total."""
        return [e["body"] for e in self.events if e["kind"] in ("announced", "ticked")]

    @cached_property
    def closings(self) -> dict[int, Document]:
        """Return the bodies of the events that closed ticks, by tick."""
        bodies = (e["body"] for e in self.events if "closed_tick" in e["body"])
        return {body["closed_tick"]: body for body in bodies}

    @property
    def struck(self) -> bool:
        """Say whether decliners were struck out after the last tick closed."""
        last = [e for e in self.events if e["kind"] == "restarted" or "closed_tick" in e["body"]]
        return bool(last) and last[-1]["kind"] == "restarted"

    @property
    def totals(self) -> list[float]:
        """Return every total that was announced, by tick."""
        return [body["offer"]["total_budget"] for body in self.offers]

    def everybody(self, part: str) -> list[Document]:
        """Return interests or allocations of all owners, by name."""
        return [owner[part] for owner in self.all_owners if owner[part] is not None]

    @property
    def all_owners(self) -> list[Document]:
        """Return every owner's records."""
        if self.owners is None:
            raise Unseen("it takes an auditor's token to see every owner")
        return self.owners

    @property
    def signed(self) -> list[Document]:
        """Return the allocations whose terms were signed."""
        return [each for each in self.everybody("allocation") if each["state"] in TRAINED]

    @property
    def round_updates(self) -> Mapping[int, list[Document]]:
        """Return the updates of each round."""
        if self.updates is None:
            raise Unseen("who delivered which round is for auditors to see")
        return self.updates

    @property
    def settled(self) -> Document:
        """Return the body of the event that settled the task, unless it was settled in vain."""
        kinds = [e["kind"] for e in self.events if e["kind"] in ("settled", "restarted")]
        if kinds[-1:] == ["restarted"]:
            raise Unseen("the price was discovered again, and the task was not settled since")
        return self.event("settled")

    def replies(self, tick: int) -> list[Document]:
        """Return all replies to a tick, by owner."""
        return [reply for _, reply in self._replies.get(tick, [])]

    def replies_in(self, tick: int, *, at: int, struck: bool) -> list[Document]:
        """Return the replies to a tick of owners who were in when the tick ``at`` closed.

        Or, ``struck``, once those were struck out who declined the settlement that it led to.
        """
        return [
            reply
            for owner, reply in self._replies.get(tick, [])
            if not is_out(owner, at, struck=struck)
        ]

    @cached_property
    def _replies(self) -> dict[int, list[tuple[Document, Document]]]:
        """Return all replies with their owners, by tick."""
        by_tick: dict[int, list[tuple[Document, Document]]] = {}
        for owner in self.all_owners:
            for reply in owner["replies"]:
                by_tick.setdefault(reply["tick"], []).append((owner, reply))
        return by_tick

    @property
    def plans(self) -> list[Document]:
        """Return the replies that became plans: to the tick settled at, of those still in."""
        return self.replies_in(self.settled["tick"], at=len(self.totals) - 1, struck=True)

    def money(self) -> list[Document]:
        """Return all transfers from and to the escrow account."""
        if self.entries is None:
            raise Unseen("the transfers of escrow are for auditors and the operator to see")
        return self.entries


def run(name: str, check: Callable[[Given], str], records: Given) -> Check:
    """Carry out one check; whatever is wrong with the records becomes its result."""
    try:
        return Check(name, True, check(records))
    except Unseen as unseen:
        return Check(name, None, str(unseen))
    except Differs as differs:
        return Check(name, False, str(differs))
    except (
        FedbourseError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ) as e:
        return Check(name, False, f"the records cannot be read: {type(e).__name__} {e}")


def same(what: str, recorded: object, recomputed: object) -> None:
    """Refuse two things that should be one."""
    if recorded != recomputed:
        raise Differs(f"{what}: the records say {recorded}, recomputed is {recomputed}")


def same_amount(what: str, recorded: object, recomputed: int) -> None:
    """Refuse two amounts of money that should be one."""
    if recorded != recomputed:
        same(what, amount_text(recorded), amount_text(recomputed))


def settled_reward(records: TaskRecords) -> int:
    """Return what was settled, if it is what was announced."""
    settled: int = records.settled["reward_micro"]
    same_amount("the reward that was settled", settled, records.offers[-1]["offer"]["reward_micro"])
    return settled


def closed_rounds(records: TaskRecords) -> int:
    """Return how many rounds were closed."""
    return sum(event["kind"] == "round" for event in records.events)


def absent_pay(records: TaskRecords) -> int:
    """Return what the closed rounds would have brought those who did not deliver them."""
    closed = closed_rounds(records)
    early = {update["owner"] for update in records.round_updates.get(closed, [])}
    return undelivered_pay(
        {each["owner"]: each["payment_micro"] for each in records.signed},
        {each["owner"]: each["delivered"] - (each["owner"] in early) for each in records.signed},
        closed_rounds=closed,
        rounds=records.card.rounds,
    )


def _bonuses(records: TaskRecords) -> dict[str, int]:
    """Return what owners got of others' rounds, where a task that ended shared them."""
    if records.card.unearned != "share" or not records.events[-1]["body"].get("shared_micro"):
        return {}
    rounds = [records.round_updates[number] for number in range(closed_rounds(records))]
    return shared_bonuses(
        {each["owner"]: each["payment_micro"] for each in records.everybody("allocation")},
        [[update["owner"] for update in updates] for updates in rounds],
        rounds=records.card.rounds,
        most=absent_pay(records),
    )


def own_part(records: TaskRecords, part: str) -> Document:
    """Return a part of what the market keeps of an owner."""
    document: Document | None = (records.own or {}).get(part)
    if document is None:
        raise Unseen("you have no allocation in this task")
    return document


def allocation_of(allocation: Document) -> dict[str, Any]:
    """Return an allocation as its salted hash covers it."""
    return allocation_document(
        owner=allocation["owner"],
        budget=allocation["budget"],
        payment_micro=allocation["payment_micro"],
    )


def check_leaf(record: Document, message: object, what: str) -> bool:
    """Check a salted hash; say whether what it covers was erased."""
    if not record["salt"]:
        return True
    same(f"the hash of {what}", record["leaf"], log.leaf(record["salt"], message))
    return False


def erased_too(count: int) -> str:
    """Say how many of the things counted were erased."""
    return f" ({count} of them erased, hashes only)" if count else ""


def is_out(owner: Document, tick: int, *, struck: bool = False) -> bool:
    """Say whether an owner is out when a tick closes, or once its decliners are struck out."""
    exit: Document | None = owner["exit"]
    if exit is None:
        return False
    at_once: bool = struck or exit["reason"] in ("left", "missed")
    return exit["tick"] < tick or (exit["tick"] == tick and at_once)


def budgets_of(replies: list[Document]) -> list[float]:
    """Return the budgets of replies, if none was erased."""
    budgets = [each["budget"] for each in replies]
    if None in budgets:
        raise Unseen(f"{budgets.count(None)} owners had their budgets erased")
    return budgets


def due(records: TaskRecords, allocation: Document, *, shared: bool = True) -> int:
    """Return what an allocation must have earned, with its part of others' rounds or without."""
    if allocation["state"] not in TRAINED or not any(
        e["kind"] == "training" for e in records.events
    ):
        return 0
    if records.card.vesting == "upfront":
        payment: int = allocation["payment_micro"]
        return payment
    delivered = allocation["delivered"]
    if allocation["state"] == "dismissed" and not allocation["held_micro"]:
        delivered = _released(records, allocation["owner"])
    own = earned(allocation["payment_micro"], delivered=delivered, rounds=records.card.rounds)
    return own + _bonuses(records).get(allocation["owner"], 0) if shared else own


def _released(records: TaskRecords, owner: str) -> int:
    """Return how many updates a dismissed owner delivered before the block that it lost."""
    if records.evidence is None or records.card.evidence is None:
        raise Unseen("what a dismissed owner is paid is recomputed by auditors")
    blocks = {
        each["block"]
        for each in records.evidence["findings"]
        if each["owner"] == owner and each["dismissed_round"] is not None
    }
    first = max(blocks) * records.card.evidence.block_rounds(records.card.rounds)
    rounds = [records.round_updates.get(number, []) for number in range(first)]
    return sum(update["owner"] == owner for updates in rounds for update in updates)
