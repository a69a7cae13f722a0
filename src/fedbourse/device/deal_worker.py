"""One deal from interest to its end: plan, sign or decline, send updates, collect receipts.

It can be killed at any moment and started again (``live_deal``).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.device.deal import TASK_ENDED
from fedbourse.device.live_deal import LEFT_TASK, LiveDeal
from fedbourse.device.round_responder import RoundResponder
from fedbourse.device.signing import decide
from fedbourse.device.tick_replies import Announcement, contradiction_of, reply_to
from fedbourse.errors import (
    Conflict,
    InvalidInput,
    InvalidNumber,
    LeftTask,
    ProtocolError,
    Refused,
    TooManyRequests,
    Unreachable,
)
from fedbourse.learning.update_check import fits_float32
from fedbourse.protocol.bounds import LOOKS_BURST, LOOKS_PER_S, Pace
from fedbourse.protocol.messages import earned
from fedbourse.units import MICRO_CREDITS_PER_CREDIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedbourse.device.deal import Deal
    from fedbourse.device.live_deal import Owner
    from fedbourse.device.market_client import MarketClient

Until = Literal["signed", "ended"]
_WAIT_S = 25.0
_PAUSE_MAX_S = 30.0


class Statement(Enum):
    """What a device says to a market before training."""

    INTEREST = "interest"
    REPLY = "reply"
    DECISION = "decision"


@dataclass(frozen=True)
class Progress:
    """The last statement that the market received from this process; at first, none."""

    statement: Statement | None = None
    offer: str | None = None
    """The offer that a reply was about."""
    events: int | None = None
    """How many events the task had at the decision on terms."""

    def due(self, task: dict[str, Any]) -> Statement | None:
        """Return the statement that is due at this state of the task; None where none is."""
        match task["state"]:
            case "open" if self.statement is not Statement.INTEREST:
                return Statement.INTEREST
            case "announced":  # each announcement is checked; only a new one is replied to
                return Statement.REPLY
            case "settled" if self.events != task["events"]:
                # It may be settled anew at once, without a tick in between.
                return Statement.DECISION
            case "training" if self.statement is not Statement.DECISION:
                return Statement.DECISION
        return None


class DealWorker:
    """Follows one deal at one market."""

    def __init__(self, deal: Deal, client: MarketClient, owner: Owner) -> None:
        self._live, self._client, self._owner = LiveDeal(deal, client, owner), client, owner
        self._progress = Progress()
        self._responder: RoundResponder | None = None
        self._pace = Pace(LOOKS_PER_S, LOOKS_BURST)
        self.waits = False
        """Whether it does nothing but wait for the market: if ``stop`` is set, it stays so."""

    @property
    def deal(self) -> Deal:
        """The deal as it stands."""
        return self._live.deal

    def until(self, goal: Until) -> Deal:
        """Follow the deal until its terms are decided on, or until the task has ended."""
        version: int | None = None
        failures = conflicts = 0
        while not self._owner.stop.is_set() and not self._reached(goal):
            self._pause(self._pace.pause_s())
            try:
                if failures:  # whoever responds now may be somebody else
                    self._client.check_market()
                with self._waiting():
                    task = self._client.task(
                        self.deal.task, seen=version, wait_s=0.0 if version is None else _WAIT_S
                    )
                if self._owner.stop.is_set():
                    break
                self._live.accept(task)
                version = task["events"]
                self._step(task, goal)
                failures = conflicts = 0
            except Conflict as error:
                conflicts += 1
                self._live.tell("moved", sentence=str(error))
                version = None
                self._pause(backoff_s(0.05, conflicts - 1))
            except (ProtocolError, Unreachable, TooManyRequests) as error:
                failures += 1
                self._live.tell("unreachable", sentence=str(error))
                version = None
                self._pause(backoff_s(0.25, failures))
            except Refused as refusal:
                # A market that contradicts itself is not talked to any more.
                self._live.refused(None, refusal)
                raise
        return self.deal

    def _reached(self, goal: Until) -> bool:
        live = self.deal.state in ("joined", "signed")
        if live and self.deal.name in self._owner.left:
            self._live.come_to_nothing(LEFT_TASK)
        state = self.deal.state
        return state in ("declined", "ended") or (goal == "signed" and state == "signed")

    def _step(self, task: dict[str, Any], goal: Until) -> None:
        """Make the statement that is due; where that fails, nothing counts as received."""
        if task["state"] in TASK_ENDED:
            self._end(task["state"])
            return
        due = self._progress.due(task)
        if due is not None:
            before, self._progress = self._progress, Progress()
            match due:
                case Statement.INTEREST:
                    self._register()
                    self._progress = Progress(due)
                case Statement.REPLY:
                    offer = self._reply(task, before.offer)
                    self._progress = Progress(due, offer=offer)
                case Statement.DECISION:
                    if decide(self._live, task):
                        self._progress = Progress(due, events=task["events"])
        if task["state"] == "training" and self.deal.state == "signed" and goal == "ended":
            self._train()

    def _register(self) -> None:
        """Register interest again: the device may have ended before it could."""
        value = self._owner.settings.value if self.deal.strategy.report_value else None
        try:
            self._client.register(self.deal, value)
        except LeftTask:
            self._live.end_by_exit()

    def _reply(self, task: dict[str, Any], last_offer: str | None) -> str:
        """Reply to the announced total, once each; a zero stands for every larger one.

        ``last_offer`` was replied to last. Return the offer that is replied to now.
        """
        if self.deal.state == "signed":
            self._live.reopen()
        deal, offer = self.deal, Announcement.of(task, self.deal)
        if offer.offer == last_offer:
            return offer.offer
        reply = reply_to(offer, deal, value=self._owner.bid_value, can_draw=self._can_draw)
        if reply is None:
            return offer.offer
        if reply not in deal.replies:
            contradiction = contradiction_of(reply, deal)
            if contradiction is not None:
                self._leave(f"left the task, since replies would contradict: {contradiction}")
                return reply.offer
            # Before it leaves: terms are only signed for a budget that was replied.
            self._live.change(replies=(*deal.replies, reply))
        try:
            self._client.plan(deal, tick=reply.tick, budget=reply.budget, offer=reply.offer)
        except InvalidInput as error:  # the market accepts no such reply, so nothing is sold
            self._leave(f"the market refused the reply: {error}")
        except LeftTask:
            self._live.end_by_exit()
        else:
            self._live.tell(
                "planned",
                tick=reply.tick,
                total_budget=reply.total_budget,
                budget=reply.budget,
                reward=reply.reward_micro / MICRO_CREDITS_PER_CREDIT,
            )
        return reply.offer

    def _leave(self, outcome: str) -> None:
        """Leave the task before it is settled: no reply counts any more."""
        self._client.leave_task(self.deal.task)
        self._live.come_to_nothing(outcome)

    def _can_draw(self, budget: float) -> bool:
        """Say whether the device can draw noise for a budget: it replies with no other."""
        terms = self.deal.card.privacy_terms(task=self.deal.name, budget=budget)
        try:
            self._owner.noise([terms])
        except InvalidNumber:
            return False
        return self._owner.settings.update_format != "float32" or fits_float32(terms)

    def _train(self) -> None:
        """Send an update for each round request, until there are no more."""
        after, refusals = -1, 0
        responder = self._own_responder()
        while not self._owner.stop.is_set():
            self._pause(self._pace.pause_s())
            with self._waiting():
                request = self._client.request(self.deal, after=after, wait_s=_WAIT_S)
            if request is None or self._owner.stop.is_set():
                return  # the next look at the task says whether it is still in training
            if 0 <= request.round <= after:
                raise Conflict(f"the market requests round {request.round} after round {after}")
            try:
                receipt = responder.update(request)
                refusals = 0
                if receipt is not None:
                    self._live.tell(
                        "delivered",
                        round=request.round,
                        delivered=receipt["receipt"]["delivered"],
                        rounds=self.deal.card.rounds,
                        earned_micro=receipt["receipt"]["earned_micro"],
                        spent=float(self._live.reservations.spent),
                    )
            except Refused as refusal:
                self._live.refused(request.round, refusal)
                self._pause(backoff_s(0.01, refusals))
                refusals += 1
            except (Conflict, InvalidInput) as error:
                self._live.tell("unpaid", round=request.round, sentence=str(error))
            after = max(after, request.round)

    def _own_responder(self) -> RoundResponder:
        """Return the responder for these terms, which keeps the records once they were read."""
        if self._responder is None or self._responder.deal.terms != self.deal.terms:
            self._responder = RoundResponder(self.deal, self._client, self._owner)
        return self._responder

    def _end(self, state: str) -> None:
        if self.deal.state == "signed":
            try:
                self._own_responder().unpaid()
                if self.deal.card.evidence is not None:
                    self._keep_final()
            except Refused as refusal:
                self._owner.deals.refused(self.deal, None, refusal)
        self._live.reservations.free()
        self._live.change(state="ended", outcome=state)
        self._live.tell("ended", outcome=state)

    def _keep_final(self) -> None:
        """Store what the market says, signed, of the pay that evidence held."""
        allocation = self._live.participation()["allocation"] or {}
        names = ("state", "earned_micro", "held_micro")
        final = {name: allocation.get(name) for name in names}
        self._live.change(final=final)
        if final["state"] == "dismissed":
            sentence = "the market asked for no more updates, and did not pay what was held"
            self._live.tell("dismissed", sentence=sentence, **final)
            return
        paid, _ = self._owner.deals.unpaid(self.deal)
        due = earned(self.deal.payment, delivered=paid, rounds=self.deal.card.rounds)
        if final["held_micro"] or (final["earned_micro"] or 0) < due:
            raise Refused(
                "held",
                f"the task has ended, and the market says that {final['earned_micro']} "
                f"micro-credits are earned and {final['held_micro']} of them held; {due} are due",
            )
        self._live.tell("released", **final)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.waits = True
        try:
            yield
        finally:
            self.waits = False

    def _pause(self, seconds: float) -> None:
        if seconds:
            self._owner.stop.wait(seconds)


def backoff_s(first_s: float, times: int) -> float:
    """Return how long to wait after something has failed so many times in a row."""
    return min(_PAUSE_MAX_S, first_s * 2.0 ** min(times, 60))
