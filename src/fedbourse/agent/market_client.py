"""A market as a device sees it: every document is checked before anybody acts on it."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from fedbourse.errors import FedbourseError, NotSignedIn, Refused
from fedbourse.units import amount_text
from fedbourse.wire import bounds
from fedbourse.wire.canonical import canonical, digest
from fedbourse.wire.card import TaskCard
from fedbourse.wire.connection import Connection
from fedbourse.wire.keys import verified
from fedbourse.wire.messages import (
    answer_message,
    earned,
    least_pay,
    participation_message,
    query_message,
    task_state_message,
    terms_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedbourse.agent.deals import Deal, Market
    from fedbourse.wire.keys import SigningKey

_TASK_ID = re.compile("[0-9a-f]{24}")


@dataclass(frozen=True)
class Query:
    """What the market asks in a round."""

    round: int
    model: bytes
    hash: str
    """The hash of the query message, which the answer refers to."""
    deadline_ms: int
    ends: float
    """When the round ends, by this process's own clock (``time.monotonic``)."""


class MarketClient:
    """One device's line to one market."""

    def __init__(
        self,
        market: Market,
        key: SigningKey,
        *,
        on_rotation: Callable[[Market], object] = lambda market: None,
    ) -> None:
        """Pin the market's key; nothing is sent yet. ``on_rotation`` hears of a key after it."""
        self.market = market
        self._key, self._on_rotation = key, on_rotation
        self._line = Connection(
            market.server,
            key=key,
            ca_file=market.ca_file,
            document_bytes_max=bounds.DEVICE_DOCUMENT_BYTES_MAX,
        )
        # What everybody may see is asked without a signature: it would cost the market a write.
        self._public = Connection(
            market.server,
            market_key=market.signing_key,
            ca_file=market.ca_file,
            document_bytes_max=bounds.DEVICE_DOCUMENT_BYTES_MAX,
        )

    def close(self) -> None:
        """Close the sockets."""
        self._line.close()
        self._public.close()

    def check_market(self) -> None:
        """Refuse a market that shows another key, but one that the pinned one vouches for."""
        facts = self._public.check_market()
        if self._public.market_key != self.market.signing_key:
            self.market = self.market.after(facts["rotations"])
            self._on_rotation(self.market)

    def tasks(self, state: str | None, *, at_most: int = bounds.TASKS_MAX) -> list[dict[str, Any]]:
        """Return published tasks, the newest first, and no more than ``at_most`` of them."""
        limit = min(at_most, bounds.TASKS_A_PAGE)
        listed = self._public.pages(
            "/v1/tasks",
            "tasks",
            {"state": state, "limit": limit},
            cursor="before",
            allowance=bounds.tasks_list(),
        )
        return [_task(each) for each in islice(listed, at_most)]

    def task(self, task: str, *, seen: int | None = None, wait_s: float = 0.0) -> dict[str, Any]:
        """Return a task as it stands; with ``seen``, once it has more than so many events.

        All that a device acts on is signed by the market: state, tick, P, R and the offer.
        """
        asked = {} if seen is None else {"seen": seen, "wait": wait_s}
        shown = _task(self._public.get(f"/v1/tasks/{task}", asked, wait_s=wait_s))
        message = task_state_message(
            task=task,
            card=shown["card"],
            state=shown["state"],
            sequence=shown["events"] - 1,
            last_hash=shown["last_hash"],
            tick=shown["tick"],
            total_budget=shown["total_budget"],
            reward_micro=shown["reward_micro"],
            offer=shown["offer"],
        )
        self._check_signed(
            f"the state {shown['state']!a:.20} of the task", message, shown["state_signature"]
        )
        return shown

    def card(self, task: str) -> tuple[str, TaskCard]:
        """Return who buys, and the card, if it has the hash that the task says."""
        shown = self.task(task)
        document = self._public.get(f"/v1/tasks/{task}/card", at_most=bounds.CARD_BYTES_MAX)
        published = _document("card", document, _CARD)
        card = TaskCard.of(published["card"])
        if not card.digest == published["digest"] == shown["card"]:
            raise Refused("card", f"the card of task {task} has not the hash that the market shows")
        if 8 * card.dimension > bounds.MODEL_BYTES_MAX:
            raise Refused(
                "card",
                f"the model of task {task} has {card.dimension} parameters; a device reads at most "
                f"{bounds.MODEL_BYTES_MAX // 8}",
            )
        return str(shown["buyer"]), card

    def register(self, deal: Deal, value: float | None) -> None:
        """Register interest, and report a value or none."""
        body = {"value": value, "previous": deal.card.digest}
        self._line.put(f"/v1/tasks/{deal.task}/interest", body)

    def plan(self, deal: Deal, *, tick: int, budget: float, offer: str) -> None:
        """Answer an offer with a budget."""
        body = {"tick": tick, "budget": budget, "previous": offer}
        self._line.put(f"/v1/tasks/{deal.task}/plan", body)

    def withdraw(self, task: str) -> None:
        """Withdraw from a task, for good."""
        self._line.delete(f"/v1/tasks/{task}/interest")

    def mine(self, task: str) -> dict[str, Any]:
        """Return all that the market keeps of this owner in a task.

        All that a device acts on is signed by the market: the line's state, the terms, the exit.
        """
        found = _document("record of this owner", self._line.get(f"/v1/tasks/{task}/mine"), _MINE)
        if found["line"] is not None:
            _document("line of this owner", found["line"], _LINE)
        if found["receipt"] is not None:
            _document("receipt", found["receipt"], _RECEIPT)
        line, offered, gone = found["line"], found["terms"], found["exit"]
        message = participation_message(
            task=task,
            owner=self.market.owner,
            sequence=found["sequence"],
            line=None if line is None else line["state"],
            terms=None if offered is None else digest(offered.get("terms")),
            exit=None if gone is None else gone.get("reason"),
        )
        self._check_signed("the record of this owner", message, found["signature"])
        return found

    def discovery_log(self, task: str) -> list[dict[str, Any]]:
        """Return the events of a task's log up to the one that began training."""
        events: list[dict[str, Any]] = []
        listed = self._public.pages(
            f"/v1/tasks/{task}/events",
            "events",
            {"after": -1, "limit": bounds.EVENTS_A_PAGE},
            allowance=bounds.discovery_log(),
        )
        for each in listed:
            events.append(_document("event", each, _EVENT))
            if each["kind"] == "training":
                break
        return events

    def checked_terms(self, deal: Deal, offered: Mapping[str, Any]) -> dict[str, Any]:
        """Return the terms if the market signed them, and they are what card and plan lead to."""
        terms: dict[str, Any] = _document("terms", offered, _OFFERED)["terms"]
        self._check_signed("the terms", terms, offered["market_signature"])
        reply = next((each for each in deal.replies if each.tick == terms.get("tick")), None)
        if reply is None or not reply.budget:
            raise Refused(
                "changed-terms",
                f"the terms are of tick {terms.get('tick')!r:.30}, at which nothing was sold",
            )
        expected = terms_message(
            deal.card,
            task=deal.task,
            owner=deal.owner,
            tick=reply.tick,
            total_budget=reply.total_budget,
            budget=reply.budget,
            payment_micro=_count("payment_micro", terms.get("payment_micro")),
            line=str(terms.get("previous")),
        )
        if canonical(terms) != canonical(expected):  # true is not 1 in what is signed
            raise Refused("changed-terms", f"the terms say {_other(terms, expected)}")
        least = least_pay(
            budget=reply.budget, total_budget=reply.total_budget, reward_micro=reply.reward_micro
        )
        if terms["payment_micro"] < least:
            raise Refused(
                "price",
                f"the pay is {amount_text(terms['payment_micro'])}; at the price that was "
                f"announced at tick {reply.tick} it is at least {amount_text(least)}",
            )
        if digest(terms) != offered["digest"]:
            raise Refused("changed-terms", "the terms have not the hash that the market shows")
        return terms

    def sign(self, deal: Deal, terms: dict[str, Any], market_signature: str) -> dict[str, Any]:
        """Sign terms; return them with both signatures. Nothing is sent yet."""
        return {
            "terms": terms,
            "market_signature": market_signature,
            "signature": self._key.sign(canonical(terms)),
        }

    def decide(
        self, task: str, *, accept: bool, terms_digest: str, signature: str | None = None
    ) -> None:
        """Send the signature, or decline."""
        body = {"accept": accept, "digest": terms_digest, "signature": signature}
        self._line.post(f"/v1/tasks/{task}/terms", body)

    def query(self, deal: Deal, *, after: int, wait_s: float) -> Query | None:
        """Return the next question, once there is one; None where none came in time.

        The market's signature covers all of it but the time left, which only says when a device
        need not begin any more.
        """
        found = self._line.fetch(
            f"/v1/tasks/{deal.task}/query",
            {"after": after, "wait": wait_s},
            at_most=8 * deal.card.dimension + 1,
            wait_s=wait_s,
        )
        if found.status == 204:
            return None
        try:
            number = int(found.headers["fedbourse-round"])
            deadline_ms = int(found.headers["fedbourse-deadline"])
            ends = time.monotonic() + int(found.headers["fedbourse-left-ms"]) / 1000
            previous, said, signature = (
                found.headers[f"fedbourse-{name}"] for name in ("previous", "query", "signature")
            )
        except (KeyError, ValueError, OverflowError):
            raise Refused(
                "query", "the market's question has no round, hash, deadline or signature"
            ) from None
        message = query_message(
            task=deal.task,
            card=deal.card.digest,
            round=number,
            model_hash=hashlib.sha256(found.content).hexdigest(),
            deadline_ms=deadline_ms,
            previous=previous,
        )
        if digest(message) != said:
            raise Refused("query", f"the question of round {number} has not the hash that it shows")
        self._check_signed(f"the question of round {number}", message, signature)
        return Query(number, found.content, said, deadline_ms, ends)

    def _check_signed(self, what: str, message: object, signature: str) -> None:
        """Refuse what the market did not sign with its pinned key: anybody may have made it up."""
        for _ in range(2):
            key = self.market.signing_key
            if verified(key, canonical(message), signature):
                return
            self._look_for_rotation()
            if self.market.signing_key == key:
                break
        raise Refused(
            "unsigned",
            f"{what} that {self.market.server} sends is not signed with {key}, the market's key",
        )

    def _look_for_rotation(self) -> None:
        """Follow the market to another key, if it has one: it may have been restarted with it."""
        try:
            self.check_market()
        except NotSignedIn as error:
            raise Refused("unsigned", str(error)) from None

    def answer(
        self, deal: Deal, query: Query, vector: bytes, *, answered: tuple[int, int]
    ) -> dict[str, Any]:
        """Send an answer and return its receipt, if it says what this answer has earned.

        ``answered`` is how many answers the market may have counted, at least and at most.
        """
        path = f"/v1/tasks/{deal.task}/rounds/{query.round}/answer"
        signed: dict[str, Any] = self._line.put_bytes(path, vector)
        self.check_receipt(
            deal,
            signed,
            round=query.round,
            answered=answered,
            vector_hash=hashlib.sha256(vector).hexdigest(),
            query=query.hash,
        )
        return signed

    def check_receipt(
        self,
        deal: Deal,
        signed: Mapping[str, Any],
        *,
        round: int,
        answered: tuple[int, int],
        vector_hash: str,
        query: str,
    ) -> None:
        """Refuse a receipt that is unsigned, for another answer, or for less than was earned.

        ``answered`` is how many answers the market may have counted, at least and at most.
        """
        message = answer_message(
            task=deal.task, round=round, owner=deal.owner, vector_hash=vector_hash, query=query
        )
        try:
            receipt = signed["receipt"]
            # One that was stored before the market changed its key counts as it was signed.
            if not self.market.signed(receipt, signed["market_signature"]):
                self._look_for_rotation()
            if not self.market.signed(receipt, signed["market_signature"]):
                raise NotSignedIn(f"the receipt of round {round} is not signed by the market")
            said = _count("answered", receipt["answered"])
            least, most = answered
            due = (
                deal.payment
                if deal.card.vesting == "upfront"
                else earned(deal.payment, answered=said, rounds=deal.card.rounds)
            )
            expected = {
                "kind": "receipt",
                "task": deal.task,
                "owner": deal.owner,
                "round": round,
                "answered": min(max(said, least), most),
                "earned_micro": due,
                "previous": digest(message),
            }
        except (KeyError, TypeError, FedbourseError) as error:
            raise Refused("receipt", f"the receipt of round {round} is none: {error}") from None
        if receipt != expected:
            raise Refused(
                "receipt", f"the receipt of round {round} says {_other(receipt, expected)}"
            )


def enrolment(document: object) -> dict[str, Any]:
    """Return what a market answers to an enrolment, if it is that."""
    return _document("enrolment", document, _ENROLMENT)


_ENROLMENT = {"market_public_key": str, "device": str, "owner": str, "signature": str}
_TASK = {
    "task": str,
    "state": str,
    "buyer": str,
    "card": str,
    "events": int,
    "tick": int | None,
    "offer": str | None,
    "total_budget": object,
    "reward_micro": object,
    "interested": int | None,
    "last_hash": str,
    "state_signature": str,
}
_CARD = {"card": dict, "digest": str}
_MINE = {
    "replies": list,
    "exit": dict | None,
    "line": dict | None,
    "terms": dict | None,
    "receipt": dict | None,
    "sequence": int,
    "signature": str,
}
_EVENT = {"kind": str, "body": dict}
_LINE = {"state": str, "answered": int}
_OFFERED = {"terms": dict, "digest": str, "market_signature": str}
_RECEIPT = {"receipt": dict, "market_signature": str}


def _task(found: object) -> dict[str, Any]:
    """Return a task's document; its id goes into addresses and into the device's memory."""
    task = _document("task", found, _TASK)
    if not _TASK_ID.fullmatch(task["task"]):
        raise Refused("document", f"the market's task has the id {task['task']!r:.40}")
    return task


def _document(what: str, found: object, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document if it is an object with these items, so that nothing stumbles later."""
    if not isinstance(found, dict):
        raise Refused("document", f"the market's {what} is no object; found {found!r:.40}")
    for name, kind in items.items():
        if name not in found:
            raise Refused("document", f"the market's {what} has no {name}")
        wrong = isinstance(found[name], bool) and kind is not object
        if wrong or not isinstance(found[name], kind):
            raise Refused("document", f"the market's {what} has {name} {found[name]!r:.40}")
    return found


def _other(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return in words what differs first."""
    for name in expected:
        if name not in found or repr(found[name]) != repr(expected[name]):
            said = repr(found[name])[:40] if name in found else "nothing"
            return f"{name} {said}, and should say {expected[name]!r:.40}"
    strange = next(name for name in found if name not in expected)
    return f"{strange!r:.40}, which nobody asked about"


def _count(name: str, found: object) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise Refused("changed-terms", f"{name} must be a whole number; found {found!r:.40}")
    return found
