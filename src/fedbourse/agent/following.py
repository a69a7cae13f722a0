"""One deal, followed from interest to its end: plan, sign or decline, answer, collect receipts.

Everything that was promised or spent is on the disk before the market hears of it, so this can be
killed at any moment and started again.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fedbourse.agent.answering import Answering
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
from fedbourse.privacy.filter import left_of
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, number
from fedbourse.wire.canonical import digest

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from fedbourse.agent.deals import Deal, Deals
    from fedbourse.agent.folder import DeviceSettings
    from fedbourse.agent.market_client import MarketClient
    from fedbourse.agent.policy import Policy
    from fedbourse.learning.device_records import DeviceRecords
    from fedbourse.privacy.filter import Account, Filter
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms

Until = Literal["signed", "ended"]
Event = dict[str, Any]
_WAIT_S = 25.0
_PAUSE_MAX_S = 30.0
_HASH = re.compile("[0-9a-f]{64}")
_TICKS_MAX = 1000
"""No market needs so many announcements, and each is remembered."""
_ENDED = ("completed", "cancelled")
WITHDRAWN = "the owner has withdrawn: nothing was sold"
"""The outcome of a deal from which its owner has stepped back."""


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


class Following:
    """Follows one deal at one market."""

    def __init__(self, deal: Deal, client: MarketClient, owner: Owner) -> None:
        """Take up a deal wherever it stands."""
        self.deal, self._client, self._owner = deal, client, owner
        self._planned: str | None = None
        self._reward: float | None = None
        self._registered = self._confirmed = False
        self._answering: Answering | None = None
        self.waits = False
        """Whether nothing is done but wait for the market: if ``stop`` is set, it stays so."""

    def until(self, goal: Until) -> Deal:
        """Follow the deal until its terms are decided on, or until the task has ended."""
        seen: int | None = None
        failures = conflicts = 0
        while not self._owner.stop.is_set() and not self._reached(goal):
            try:
                if failures:  # whoever answers now may be somebody else
                    self._client.check_market()
                with self._waiting():
                    task = self._client.task(
                        self.deal.task, seen=seen, wait_s=0.0 if seen is None else _WAIT_S
                    )
                if self._owner.stop.is_set():
                    break
                seen = task["events"]
                self._step(task, goal)
                failures = conflicts = 0
            except Conflict as moved:
                if isinstance(moved, Withdrawn) and self.deal.state == "joined":
                    self._declined(WITHDRAWN)
                    break
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
        if self.deal.state == "joined" and self.deal.name in self._owner.withdrawn:
            self._declined(WITHDRAWN)
        state = self.deal.state
        return state in ("declined", "ended") or (goal == "signed" and state == "signed")

    def _step(self, task: dict[str, Any], goal: Until) -> None:
        state = task["state"]
        if state in _ENDED:
            self._end(state)
        elif state == "open" and not self._registered:
            self._register()
        elif state == "announced" and self.deal.state == "joined":
            self._plan(task)
        elif state in ("settled", "training"):
            if not self._confirmed:
                self._decide()
            if state == "training" and self.deal.state == "signed" and goal == "ended":
                self._train()

    # open

    def _register(self) -> None:
        """Say again that the owner is interested: the device may have ended before it could."""
        value = self._owner.settings.value if self.deal.wish.report_value else None
        self._client.register(self.deal, value)
        self._registered = True

    # announced

    def _plan(self, task: dict[str, Any]) -> None:
        """Answer the announced total, once each."""
        deal, offer = self.deal, str(task["offer"])
        if offer == self._planned:
            return
        total, reward = self._offered(task)
        before = dict(deal.plans).get(offer)
        if before is None:
            budget = deal.wish.plan(
                deal.card,
                value=self._owner.settings.value,
                reward=reward,
                total=total,
                left=self._left(),
            )
            if not self._can_draw(budget):
                budget = 0.0
            # Before it leaves: terms are only signed for a budget that was planned.
            plans = (*deal.plans, (offer, budget))
            self.deal = self._owner.deals.change(deal, plans=plans)
        else:
            budget = before
        self._client.plan(deal, tick=task["tick"], budget=budget, offer=offer)
        self._planned = offer
        self._tell("planned", tick=task["tick"], total_budget=total, budget=budget, reward=reward)

    def _offered(self, task: dict[str, Any]) -> tuple[float, float]:
        """Return P and R as announced, if they can be, and R is what it was."""
        if not _HASH.fullmatch(task["offer"] or "") or task["tick"] is None:
            raise Refused("offer", "the market announces a reward without an offer or a tick")
        if len(self.deal.plans) > _TICKS_MAX:
            raise Refused("offer", f"the market announces more than {_TICKS_MAX} totals")
        try:
            total = number("total_budget", task["total_budget"], above=0)
            reward = number("reward_micro", task["reward_micro"], above=0)
        except InvalidInput as error:
            raise Refused("offer", f"the market's offer is none: {error}") from None
        if self._reward not in (None, reward):
            raise Refused(
                "offer",
                f"the reward is {reward:.0f} micro-credits now, and was {self._reward:.0f} before; "
                "it is fixed once it is announced",
            )
        self._reward = reward
        return total, reward / MICRO_CREDITS_PER_CREDIT

    def _can_draw(self, budget: float) -> bool:
        """Say whether the device's noise can be drawn for a budget: none is sold for which not."""
        if not budget:
            return False
        try:
            self._owner.noise([self.deal.privacy(budget)])
        except InvalidNumber:
            return False
        return True

    def _left(self) -> float:
        """Return what the lifetime cap leaves for this deal."""
        guard = self._owner.guard
        return left_of(
            guard.lifetime_cap,
            (each for each in guard.accounts() if each.terms.task != self.deal.name),
        )

    # settled

    def _decide(self) -> None:
        """Sign the terms, or decline them; say it again where the market has not heard."""
        deal, owner = self.deal, self._owner
        mine = self._client.mine(deal.task)
        line, offered = mine["line"], mine["terms"]
        if line is None:
            withdrawn = mine.get("withdrawn_ms") is not None
            self._declined(WITHDRAWN if withdrawn else "not chosen: no budget was sold")
            return
        if line["state"] == "declined":
            self._declined("the terms were declined, or not signed in time")
            return
        paid, unpaid = owner.deals.unpaid(deal)
        if line["answered"] > paid + len(unpaid):
            raise Refused(
                "forgotten",
                f"the market counts {line['answered']} answers, and this device remembers fewer: "
                "its folder is an old copy that has forgotten spend",
            )
        if deal.terms is not None and line["state"] == "signed":
            self._confirmed = True
            return
        try:
            terms = self._client.checked_terms(deal, offered)
            if deal.terms is not None and terms != deal.terms["terms"]:
                raise Refused("changed-terms", "other terms of this task were signed before")
            budget, payment = float(terms["budget"]), int(terms["payment_micro"])
            owner.policy.check_terms(
                deal.card,
                buyer=deal.buyer,
                value=owner.settings.value,
                budget=budget,
                payment=payment,
            )
            if owner.settings.answers == "float32" and not fits_float32(deal.privacy(budget)):
                raise Refused("float32", "the answers of this task do not fit single precision")
            owner.guard.agree(deal.privacy(budget))
        except Refused as refusal:
            owner.deals.refused(deal, None, refusal)
            self._tell("declined", reason=refusal.reason, sentence=str(refusal))
            self._decline((offered or {}).get("terms"))
            self._declined(str(refusal))
            return
        signed = deal.terms or self._client.sign(deal, terms, offered["market_signature"])
        self.deal = owner.deals.change(deal, state="signed", terms=signed)
        self._client.decide(
            deal.task, accept=True, terms_digest=digest(terms), signature=signed["signature"]
        )
        self._confirmed = True
        self._tell("signed", budget=budget, payment_micro=payment)

    def _decline(self, terms: object) -> None:
        """Tell the market; it is declined, whatever that says."""
        try:
            self._client.decide(self.deal.task, accept=False, terms_digest=digest(terms))
        except (Conflict, InvalidInput, NotFound) as error:
            self._tell("moved", sentence=str(error))

    def _declined(self, outcome: str) -> None:
        self._close()
        self.deal = self._owner.deals.change(self.deal, state="declined", outcome=outcome)
        self._tell("not-taking-part", sentence=outcome)

    # training

    def _train(self) -> None:
        """Answer round after round, until nothing is asked any more."""
        after, refusals = -1, 0
        answering = self._own_answering()
        while not self._owner.stop.is_set():
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
            spent=float(sum(account.spent for account in self._accounts())),
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
        self._close()
        self.deal = self._owner.deals.change(self.deal, state="ended", outcome=state)
        self._tell("ended", outcome=state)

    def _close(self) -> None:
        """Free what was reserved and not spent."""
        if self._accounts():
            self._owner.guard.close(self.deal.name)

    def _accounts(self) -> list[Account]:
        """Return what was reserved for this deal, if anything."""
        accounts = self._owner.guard.accounts()
        return [account for account in accounts if account.terms.task == self.deal.name]

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
        self._owner.stop.wait(seconds)


def backoff_s(first_s: float, times: int) -> float:
    """Return how long to wait after something has failed so many times in a row."""
    return min(_PAUSE_MAX_S, first_s * 2.0 ** min(times, 60))
