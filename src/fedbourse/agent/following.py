"""One deal, followed from interest to its end: plan, sign or decline, answer, collect receipts.

Everything that was promised or spent is on the disk before the market hears of it, so this can be
killed at any moment and started again.

Where another owner declines, the market discovers the price again: terms under which nothing was
spent are given up, and the device replies and signs once more (``reservations``).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.agent.answering import Answering
from fedbourse.agent.deals import TASK_ENDED
from fedbourse.agent.reservations import Reservations
from fedbourse.agent.tick_replies import Announcement, contradiction_of, reply_to
from fedbourse.errors import (
    Conflict,
    InvalidInput,
    InvalidNumber,
    NotFound,
    Refused,
    TooManyRequests,
    Unreachable,
    Withdrawn,
)
from fedbourse.learning.answer_check import fits_float32
from fedbourse.units import MICRO_CREDITS_PER_CREDIT
from fedbourse.wire.bounds import LOOKS_BURST, LOOKS_PER_S, Pace
from fedbourse.wire.canonical import digest
from fedbourse.wire.messages import privacy_terms

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from fedbourse.agent.deals import Deal, Deals
    from fedbourse.agent.folder import DeviceSettings
    from fedbourse.agent.market_client import MarketClient
    from fedbourse.agent.policy import Policy
    from fedbourse.learning.device_records import DeviceRecords
    from fedbourse.privacy.filter import Filter
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms

Until = Literal["signed", "ended"]
Event = dict[str, Any]
_WAIT_S = 25.0
_PAUSE_MAX_S = 30.0
WITHDRAWN = "the owner has withdrawn: nothing was sold"
"""The outcome of a deal from which its owner has stepped back."""
OUTCOMES = {
    "left": WITHDRAWN,
    "missed": "a tick was missed, which counts as zero from then on: nothing was sold",
    "declined": "the terms were declined: nothing was sold",
    "unsigned": "the terms were not signed in time: nothing was sold",
}
"""How a deal ends whose owner is out of the task, by the market's reason."""
_NOT_CHOSEN = "not chosen: no budget was sold"


@dataclass(frozen=True)
class Owner:
    """What a deal needs of the device that follows it."""

    settings: DeviceSettings
    policy: Policy
    deals: Deals
    guard: Filter
    records: Callable[[Deal], DeviceRecords]
    noise: Callable[[Sequence[Terms]], Noise]
    tell: Callable[[Event], None]
    stop: threading.Event
    withdrawn: set[str] = field(default_factory=set)
    """The names of deals from which the owner has withdrawn in this process."""

    @property
    def bid_value(self) -> float:
        """Return the value that replies follow: the owner's own, or its least price if higher."""
        return max(self.settings.value, self.settings.limits.least_price)


class Following:
    """Follows one deal at one market."""

    def __init__(self, deal: Deal, client: MarketClient, owner: Owner) -> None:
        """Take up a deal wherever it stands."""
        self.deal, self._client, self._owner = deal, client, owner
        self._planned: str | None = None
        self._registered = False
        self._confirmed: int | None = None
        """How many events the task had when the market last agreed on the terms."""
        self._answering: Answering | None = None
        self._pace = Pace(LOOKS_PER_S, LOOKS_BURST)
        self._reservations = Reservations(deal, owner.guard)
        self._history = deal.sequence, deal.last_hash
        """The last event of the task's log that was seen: its number and hash."""
        self.waits = False
        """Whether nothing is done but wait for the market: if ``stop`` is set, it stays so."""

    def until(self, goal: Until) -> Deal:
        """Follow the deal until its terms are decided on, or until the task has ended."""
        seen: int | None = None
        failures = conflicts = 0
        while not self._owner.stop.is_set() and not self._reached(goal):
            self._pause(self._pace.pause_s())
            try:
                if failures:  # whoever answers now may be somebody else
                    self._client.check_market()
                with self._waiting():
                    task = self._client.task(
                        self.deal.task, seen=seen, wait_s=0.0 if seen is None else _WAIT_S
                    )
                if self._owner.stop.is_set():
                    break
                self._check_history(task)
                seen = task["events"]
                self._step(task, goal)
                failures = conflicts = 0
            except Conflict as moved:
                conflicts += 1
                self._tell("moved", sentence=str(moved))
                seen = None
                self._pause(backoff_s(0.05, conflicts - 1))
            except (Unreachable, TooManyRequests) as error:
                failures += 1
                self._tell("unreachable", sentence=str(error))
                seen = None
                self._pause(backoff_s(0.25, failures))
            except Refused as refusal:
                # A market that shows what cannot be is not talked to any more.
                self._refused(None, refusal)
                raise
        return self.deal

    def _reached(self, goal: Until) -> bool:
        live = self.deal.state in ("joined", "signed")
        if live and self.deal.name in self._owner.withdrawn:
            self._declined(WITHDRAWN)
        state = self.deal.state
        return state in ("declined", "ended") or (goal == "signed" and state == "signed")

    def _check_history(self, task: dict[str, Any]) -> None:
        """Refuse another card, and a log that goes back or has another event in place of one."""
        if task["card"] != self.deal.card.digest:
            raise Refused(
                "card",
                f"the task has the card {task['card']!r:.70} now; it was joined with "
                f"{self.deal.card.digest}",
            )
        (sequence, last_hash), found = self._history, task["events"] - 1
        if found < sequence:
            raise Refused(
                "state",
                f"the market shows the task after event {found} of its log, and showed it after "
                f"event {sequence} before; a log only grows",
            )
        if found == sequence and task["last_hash"] != last_hash:
            raise Refused(
                "state",
                f"event {found} of the task's log has the hash {task['last_hash']!r:.70} now, and "
                f"had {last_hash} before",
            )
        self._history = found, task["last_hash"]

    def _change(self, **items: Any) -> None:
        """Remember the deal with some items changed, and how far the task was."""
        sequence, last_hash = self._history
        self.deal = self._owner.deals.change(
            self.deal, sequence=sequence, last_hash=last_hash, **items
        )

    def _step(self, task: dict[str, Any], goal: Until) -> None:
        state = task["state"]
        if state in TASK_ENDED:
            self._end(state)
        elif state == "open" and not self._registered:
            self._register()
        elif state == "announced":
            if self.deal.state == "signed":
                self._reopen()
            self._plan(task)
        elif state in ("settled", "training"):
            # A settled task may be settled anew at once, without a tick in between.
            if self._confirmed is None or (
                state == "settled" and self._confirmed != task["events"]
            ):
                self._decide(task)
            if state == "training" and self.deal.state == "signed" and goal == "ended":
                self._train()

    # open

    def _register(self) -> None:
        """Say again that the owner is interested: the device may have ended before it could."""
        value = self._owner.settings.value if self.deal.wish.report_value else None
        try:
            self._client.register(self.deal, value)
        except Withdrawn:
            self._out()
        self._registered = True

    # announced

    def _plan(self, task: dict[str, Any]) -> None:
        """Reply to the announced total, once each; a zero stands for every larger one."""
        deal, announced = self.deal, Announcement.of(task, self.deal)
        if announced.offer == self._planned:
            return
        reply = reply_to(announced, deal, value=self._owner.bid_value, can_draw=self._can_draw)
        if reply is None:
            self._planned = announced.offer
            return
        if reply not in deal.replies:
            contradiction = contradiction_of(reply, deal)
            if contradiction is not None:
                self._leave(f"left the task, since replies would contradict: {contradiction}")
                return
            # Before it leaves: terms are only signed for a budget that was replied.
            self._change(replies=(*deal.replies, reply))
        try:
            self._client.plan(deal, tick=reply.tick, budget=reply.budget, offer=reply.offer)
        except InvalidInput as error:  # the market accepts no such reply, so nothing is sold
            self._leave(f"the market refused the reply: {error}")
            return
        except Withdrawn:
            self._out()
            return
        self._planned = reply.offer
        self._tell(
            "planned",
            tick=reply.tick,
            total_budget=reply.total_budget,
            budget=reply.budget,
            reward=reply.reward_micro / MICRO_CREDITS_PER_CREDIT,
        )

    def _leave(self, outcome: str) -> None:
        """Leave the task before it is settled: no reply of the device counts any more."""
        self._client.withdraw(self.deal.task)
        self._declined(outcome)

    def _can_draw(self, budget: float) -> bool:
        """Say whether the device can answer at a budget: no other is replied with."""
        terms = privacy_terms(self.deal.card, task=self.deal.name, budget=budget)
        try:
            self._owner.noise([terms])
        except InvalidNumber:
            return False
        return self._owner.settings.answers != "float32" or fits_float32(terms)

    def _reopen(self) -> None:
        """Give up the terms that were signed: the market discovers the price again."""
        self._reservations.refuse_if_charged()
        self._change(state="joined", terms=None)
        self._reservations.free()
        self._confirmed = self._answering = None
        self._tell("reopened")

    # settled

    def _decide(self, task: dict[str, Any]) -> None:
        """Sign the terms, or decline them; say it again where the market has not heard."""
        deal, owner = self.deal, self._owner
        mine, settled = self._mine(), task["state"] == "settled"
        line, offered = mine["line"], mine["terms"]
        if line is None:
            if mine["exit"] is None and settled and mine["sequence"] >= task["events"]:
                return  # the lines of a settlement go where the price is discovered again
            reason = (mine["exit"] or {}).get("reason")
            self._declined(OUTCOMES.get(str(reason), _NOT_CHOSEN))
            return
        if line["state"] == "declined":
            self._declined("the market counts the terms as declined")
            return
        paid, unpaid = owner.deals.unpaid(deal)
        if line["answered"] > paid + len(unpaid):
            raise Refused(
                "forgotten",
                f"the market counts {line['answered']} answers, and this device remembers fewer: "
                "its folder is an old copy that has forgotten spend",
            )
        if deal.terms is not None and line["state"] == "signed":
            self._confirmed = task["events"]
            return
        try:
            terms = self._acceptable(offered)
            if deal.terms is not None and terms != deal.terms["terms"]:
                self._reopen()
                deal = self.deal
            self._reservations.reserve(deal.privacy(terms))
        except Refused as refusal:
            owner.deals.refused(deal, None, refusal)
            self._tell("declined", reason=refusal.reason, sentence=str(refusal))
            self._decline((offered or {}).get("terms"))
            self._declined(str(refusal))
            return
        signed = deal.terms or self._client.sign(deal, terms, offered["market_signature"])
        self._change(state="signed", terms=signed)
        try:
            self._client.decide(
                deal.task, accept=True, terms_digest=digest(terms), signature=signed["signature"]
            )
        except NotFound as error:  # settled anew meanwhile, without this owner
            raise Conflict(str(error)) from None
        self._confirmed = task["events"]
        self._tell("signed", budget=terms["budget"], payment_micro=terms["payment_micro"])

    def _mine(self) -> dict[str, Any]:
        """Return the market's record of this owner; refuse one of before."""
        mine = self._client.mine(self.deal.task)
        if mine["sequence"] < self._history[0]:
            raise Refused(
                "state",
                f"the market shows its record of this owner as of event {mine['sequence']}, and "
                f"showed the task after event {self._history[0]} before",
            )
        return mine

    def _acceptable(self, offered: dict[str, Any]) -> dict[str, Any]:
        """Return the terms on offer if they follow from a reply, and the owner's rules allow it."""
        deal, owner = self.deal, self._owner
        terms = self._client.checked_terms(deal, offered)
        owner.policy.check_terms(
            deal.card,
            buyer=deal.buyer,
            value=owner.settings.value,
            budget=float(terms["budget"]),
            payment=int(terms["payment_micro"]),
        )
        if owner.settings.answers == "float32" and not fits_float32(deal.privacy(terms)):
            raise Refused("float32", "the answers of this task do not fit single precision")
        return terms

    def _decline(self, terms: object) -> None:
        """Tell the market; it is declined, whatever that says."""
        try:
            self._client.decide(self.deal.task, accept=False, terms_digest=digest(terms))
        except (Conflict, InvalidInput, NotFound) as error:
            self._tell("moved", sentence=str(error))

    def _out(self) -> None:
        """End the deal of an owner whom the market counts as out, if its own record says so."""
        mine = self._mine()
        if mine["exit"] is None:
            raise Refused(
                "state",
                "the market hears no reply, as if the owner were out of the task, and has no "
                "record that it is",
            )
        self._declined(OUTCOMES.get(str(mine["exit"].get("reason")), WITHDRAWN))

    def _declined(self, outcome: str) -> None:
        self._reservations.free()
        terms = self.deal.terms if self._reservations.spent else None
        self._change(state="declined", outcome=outcome, terms=terms)
        self._tell("not-taking-part", sentence=outcome)

    # training

    def _train(self) -> None:
        """Answer round after round, until nothing is asked any more."""
        after, refusals = -1, 0
        answering = self._own_answering()
        while not self._owner.stop.is_set():
            self._pause(self._pace.pause_s())
            with self._waiting():
                query = self._client.query(self.deal, after=after, wait_s=_WAIT_S)
            if query is None or self._owner.stop.is_set():
                return  # the next look at the task says whether it is still in training
            if 0 <= query.round <= after:
                raise Conflict(f"the market asks about round {query.round} after round {after}")
            try:
                receipt = answering.answer(query)
                refusals = 0
                if receipt is not None:
                    self._answered(query.round, receipt["receipt"])
            except Refused as refusal:
                self._refused(query.round, refusal)
                self._pause(backoff_s(0.01, refusals))
                refusals += 1
            except (Conflict, InvalidInput) as late:
                self._tell("unpaid", round=query.round, sentence=str(late))
            after = max(after, query.round)

    def _answered(self, round: int, receipt: dict[str, Any]) -> None:
        self._tell(
            "answered",
            round=round,
            answered=receipt["answered"],
            rounds=self.deal.card.rounds,
            earned_micro=receipt["earned_micro"],
            spent=float(self._reservations.spent),
        )

    def _own_answering(self) -> Answering:
        """Return the one that knows the device, and with it the records, once they were read."""
        if self._answering is None:
            self._answering = Answering(self.deal, self._client, self._owner)
        return self._answering

    # the end

    def _end(self, state: str) -> None:
        if self.deal.state == "signed":
            try:
                self._own_answering().unpaid()
            except Refused as refusal:
                self._owner.deals.refused(self.deal, None, refusal)
        self._reservations.free()
        self._change(state="ended", outcome=state)
        self._tell("ended", outcome=state)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.waits = True
        try:
            yield
        finally:
            self.waits = False

    def _refused(self, round: int | None, refusal: Refused) -> None:
        self._owner.deals.refused(self.deal, round, refusal)
        self._tell("refused", round=round, reason=refusal.reason, sentence=str(refusal))

    def _tell(self, kind: str, **facts: Any) -> None:
        self._owner.tell({"event": kind, "task": self.deal.task, **facts})

    def _pause(self, seconds: float) -> None:
        if seconds:
            self._owner.stop.wait(seconds)


def backoff_s(first_s: float, times: int) -> float:
    """Return how long to wait after something has failed so many times in a row."""
    return min(_PAUSE_MAX_S, first_s * 2.0 ** min(times, 60))
