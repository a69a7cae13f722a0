"""A device's client of one market: every document is checked before anything acts on it."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from fedbourse.device.market_documents import (
    checked_document,
    difference,
    task_document,
    whole_count,
)
from fedbourse.encoding.canonical import canonical, digest
from fedbourse.errors import FedbourseError, Refused, Unauthenticated
from fedbourse.protocol import bounds
from fedbourse.protocol.connection import Connection
from fedbourse.protocol.keys import verified
from fedbourse.protocol.messages import (
    earned,
    participation_message,
    round_request_message,
    task_state_message,
    terms_message,
    update_message,
)
from fedbourse.tasks.card import TaskCard
from fedbourse.units import amount_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedbourse.device.deal import Deal, KnownMarket
    from fedbourse.protocol.keys import SigningKey


@dataclass(frozen=True)
class SignedRequest:
    """A round request that the market signed."""

    round: int
    model: bytes
    hash: str
    """The hash of its message, which the update refers to."""
    ends: float
    """When the round ends, by this process's own clock (``time.monotonic``)."""


class MarketClient:
    """One device's connections to one market."""

    def __init__(
        self,
        market: KnownMarket,
        key: SigningKey,
        *,
        on_rotation: Callable[[KnownMarket], object] = lambda market: None,
    ) -> None:
        self.market = market
        self._key, self._on_rotation = key, on_rotation
        connect = partial(
            Connection,
            market.server,
            ca_file=market.ca_file,
            document_bytes_max=bounds.DEVICE_DOCUMENT_BYTES_MAX,
        )
        self._signed = connect(key=key)
        # Public documents are requested unsigned: a signature would cost the market a write.
        self._public = connect(market_key=market.signing_key)

    def close(self) -> None:
        """Close the sockets."""
        self._signed.close()
        self._public.close()

    def check_market(self) -> None:
        """Refuse a market with another key than the pinned one and those that it rotated to."""
        facts = self._public.check_market()
        if self._public.market_key != self.market.signing_key:
            self.market = self.market.after(facts["rotations"])
            self._on_rotation(self.market)

    def tasks(self, state: str | None, *, at_most: int = bounds.TASKS_MAX) -> list[dict[str, Any]]:
        """Return published tasks, the newest first, and no more than ``at_most`` of them."""
        pages = self._public.pages(
            "/v1/tasks",
            "tasks",
            {"state": state, "limit": min(at_most, bounds.TASKS_A_PAGE)},
            cursor="before",
            allowance=bounds.tasks_list(),
        )
        return [task_document(task) for task in islice(pages, at_most)]

    def task(self, task: str, *, seen: int | None = None, wait_s: float = 0.0) -> dict[str, Any]:
        """Return a task as it stands; with ``seen``, once it has more than so many events.

        All that a device acts on is signed by the market: state, tick, P, R and the offer.
        """
        options = {} if seen is None else {"seen": seen, "wait": wait_s}
        state = task_document(self._public.get(f"/v1/tasks/{task}", options, wait_s=wait_s))
        signed = ("card", "state", "last_hash", "tick", "total_budget", "reward_micro", "offer")
        message = task_state_message(
            task=task, sequence=state["events"] - 1, **{name: state[name] for name in signed}
        )
        self._check_signed(
            f"the state {state['state']!a:.20} of the task", message, state["state_signature"]
        )
        return state

    def card(self, task: str) -> tuple[str, TaskCard]:
        """Return the buyer, and the card, if it has the hash in the task's state."""
        state = self.task(task)
        document = self._public.get(f"/v1/tasks/{task}/card", at_most=bounds.CARD_BYTES_MAX)
        published = checked_document("card", document)
        card = TaskCard.of(published["card"])
        if not card.digest == published["digest"] == state["card"]:
            raise Refused("card", f"the card of task {task} does not have the hash that it shows")
        if 8 * card.dimension > bounds.MODEL_BYTES_MAX:
            raise Refused(
                "card",
                f"the model of task {task} has {card.dimension} parameters; a device reads at most "
                f"{bounds.MODEL_BYTES_MAX // 8}",
            )
        return str(state["buyer"]), card

    def register(self, deal: Deal, value: float | None) -> None:
        """Register interest, and report a value if there is one."""
        body = {"value": value, "previous": deal.card.digest}
        self._signed.put(f"/v1/tasks/{deal.task}/interest", body)

    def plan(self, deal: Deal, *, tick: int, budget: float, offer: str) -> None:
        """Reply to an offer with a budget."""
        body = {"tick": tick, "budget": budget, "previous": offer}
        self._signed.put(f"/v1/tasks/{deal.task}/plan", body)

    def leave_task(self, task: str) -> None:
        """Leave a task, for good."""
        self._signed.delete(f"/v1/tasks/{task}/interest")

    def participation(self, task: str) -> dict[str, Any]:
        """Return the market's record of this owner in a task.

        All that a device acts on is signed by the market: the allocation's state, what it has
        earned and what of that is held, the terms, the exit.
        """
        record = checked_document(
            "record of this owner", self._signed.get(f"/v1/tasks/{task}/participation")
        )
        allocation, offer, exit = record["allocation"], record["terms"], record["exit"]
        if allocation is not None:
            checked_document("allocation of this owner", allocation)
        if record["receipt"] is not None:
            checked_document("receipt", record["receipt"])
        message = participation_message(
            task=task,
            owner=self.market.owner,
            sequence=record["sequence"],
            allocation=None if allocation is None else allocation["state"],
            terms=None if offer is None else digest(offer.get("terms")),
            exit=None if exit is None else exit.get("reason"),
            earned_micro=0 if allocation is None else allocation["earned_micro"],
            held_micro=0 if allocation is None else allocation["held_micro"],
        )
        self._check_signed("the record of this owner", message, record["signature"])
        return record

    def discovery_log(self, task: str) -> list[dict[str, Any]]:
        """Return the events of a task's log up to the one that began training."""
        events: list[dict[str, Any]] = []
        pages = self._public.pages(
            f"/v1/tasks/{task}/events",
            "events",
            {"after": -1, "limit": bounds.EVENTS_A_PAGE},
            allowance=bounds.discovery_log(),
        )
        for event in pages:
            events.append(checked_document("event", event))
            if event["kind"] == "training":
                break
        return events

    def checked_terms(self, deal: Deal, offer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the terms on offer if the market signed them, and card and plan lead to them."""
        terms: dict[str, Any] = checked_document("terms", offer)["terms"]
        self._check_signed("the terms", terms, offer["market_signature"])
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
            payment_micro=whole_count("payment_micro", terms.get("payment_micro")),
            allocation=str(terms.get("previous")),
        )
        if canonical(terms) != canonical(expected):  # true is not 1 in what is signed
            raise Refused("changed-terms", f"the terms say {difference(terms, expected)}")
        if terms["payment_micro"] < reply.min_pay:
            raise Refused(
                "price",
                f"the pay is {amount_text(terms['payment_micro'])}; at the price that was "
                f"announced at tick {reply.tick} it is at least {amount_text(reply.min_pay)}",
            )
        if digest(terms) != offer["digest"]:
            raise Refused("changed-terms", "the terms do not have the hash that the market shows")
        return terms

    def sign(self, terms: dict[str, Any], market_signature: str) -> dict[str, Any]:
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
        self._signed.post(f"/v1/tasks/{task}/terms", body)

    def request(self, deal: Deal, *, after: int, wait_s: float) -> SignedRequest | None:
        """Return the next round request, once there is one; None where none came in time.

        The market's signature covers all of it but the time left, which only says when a device
        need not begin any more.
        """
        response = self._signed.fetch(
            f"/v1/tasks/{deal.task}/round-request",
            {"after": after, "wait": wait_s},
            at_most=8 * deal.card.dimension + 1,
            wait_s=wait_s,
        )
        if response.status == 204:
            return None
        headers, model = response.headers, response.content
        try:
            number = int(headers["fedbourse-round"])
            deadline_ms = int(headers["fedbourse-deadline"])
            ends = time.monotonic() + int(headers["fedbourse-left-ms"]) / 1000
            previous, hash, signature = (
                headers[f"fedbourse-{name}"] for name in ("previous", "request", "signature")
            )
        except (KeyError, ValueError, OverflowError):
            raise Refused(
                "round-request", "the round request lacks a round, hash, deadline or signature"
            ) from None
        message = round_request_message(
            task=deal.task,
            card=deal.card.digest,
            round=number,
            model_hash=hashlib.sha256(model).hexdigest(),
            deadline_ms=deadline_ms,
            previous=previous,
        )
        if digest(message) != hash:
            raise Refused(
                "round-request", f"the request of round {number} does not have the hash it shows"
            )
        self._check_signed(f"the request of round {number}", message, signature)
        return SignedRequest(number, model, hash, ends)

    def _check_signed(self, what: str, message: object, signature: str) -> None:
        """Refuse what the market did not sign with its key: anybody may have forged it."""
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
        """Follow the market to a new key, if it has one: it may have been restarted with it."""
        try:
            self.check_market()
        except Unauthenticated as error:
            raise Refused("unsigned", str(error)) from None

    def update(
        self,
        deal: Deal,
        request: SignedRequest,
        vector: bytes,
        *,
        delivered: tuple[int, int],
        released: int,
    ) -> dict[str, Any]:
        """Send an update and return its receipt, if it says what this update has earned.

        ``delivered`` and ``released`` are as ``check_receipt`` has them.
        """
        path = f"/v1/tasks/{deal.task}/rounds/{request.round}/update"
        signed: dict[str, Any] = self._signed.put_bytes(path, vector)
        self.check_receipt(
            deal,
            signed,
            round=request.round,
            delivered=delivered,
            released=released,
            vector_hash=hashlib.sha256(vector).hexdigest(),
            request=request.hash,
        )
        return signed

    def check_receipt(
        self,
        deal: Deal,
        signed: Mapping[str, Any],
        *,
        round: int,
        delivered: tuple[int, int],
        released: int,
        vector_hash: str,
        request: str,
    ) -> None:
        """Refuse a receipt that is unsigned, for another update, or for less than was earned.

        ``delivered`` is how many updates the market may have counted, at least and at most, and
        ``released`` how many of them are paid for, whatever evidence holds (``Deal.released``).
        """
        message = update_message(
            task=deal.task, round=round, owner=deal.owner, vector_hash=vector_hash, request=request
        )
        try:
            receipt = signed["receipt"]
            # One that was stored before the market changed its key counts as it was signed.
            if not self.market.signed(receipt, signed["market_signature"]):
                self._look_for_rotation()
            if not self.market.signed(receipt, signed["market_signature"]):
                raise Unauthenticated(f"the receipt of round {round} is not signed by the market")
            count = whole_count("delivered", receipt["delivered"])
            least, most = delivered
            due = (
                deal.payment
                if deal.card.vesting == "upfront"
                else earned(deal.payment, delivered=count, rounds=deal.card.rounds)
            )
            held_max = due - earned(deal.payment, delivered=released, rounds=deal.card.rounds)
            held = whole_count("held_micro", receipt["held_micro"])
            expected = {
                "kind": "receipt",
                "task": deal.task,
                "owner": deal.owner,
                "round": round,
                "delivered": min(max(count, least), most),
                "earned_micro": due,
                "held_micro": min(held, held_max if deal.card.evidence else 0),
                "previous": digest(message),
            }
        except (KeyError, TypeError, FedbourseError) as error:
            raise Refused(
                "receipt", f"the receipt of round {round} is not valid: {error}"
            ) from None
        if receipt != expected:
            raise Refused(
                "receipt", f"the receipt of round {round} says {difference(receipt, expected)}"
            )
