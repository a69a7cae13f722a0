"""A deal in progress: its state on disk, its owner's events, and checks of the market's state.

Everything that was promised or spent is on disk before the market hears of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedbourse.device.reservations import Reservations
from fedbourse.errors import Refused

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from fedbourse.device.deal import Deal
    from fedbourse.device.deals import Deals
    from fedbourse.device.folder import DeviceSettings
    from fedbourse.device.market_client import MarketClient
    from fedbourse.device.policy import Policy
    from fedbourse.learning.device_records import DeviceRecords
    from fedbourse.privacy.filter import Filter
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms

Event = dict[str, Any]
LEFT_TASK = "the owner left the task: nothing was sold"
"""The outcome of a deal whose owner left the task."""
_OUTCOMES = {
    "left": LEFT_TASK,
    "missed": "a tick was missed, which counts as zero from then on: nothing was sold",
    "declined": "the terms were declined: nothing was sold",
    "unsigned": "the terms were not signed in time: nothing was sold",
}
"""How a deal ends, by the market's reason for the owner's exit."""


@dataclass(frozen=True)
class Owner:
    """What a deal worker needs of its device."""

    settings: DeviceSettings
    policy: Policy
    deals: Deals
    guard: Filter
    records: Callable[[Deal], DeviceRecords]
    noise: Callable[[Sequence[Terms]], Noise]
    tell: Callable[[Event], None]
    stop: threading.Event
    left: set[str] = field(default_factory=set)
    """The names of deals whose task the owner left in this process."""

    @property
    def bid_value(self) -> float:
        """The value that replies follow: the owner's own, or its minimum price if higher."""
        return max(self.settings.value, self.settings.limits.min_price)


class LiveDeal:
    """One deal at one market, which one thread works on."""

    def __init__(self, deal: Deal, client: MarketClient, owner: Owner) -> None:
        self.deal, self.client, self.owner = deal, client, owner
        self.reservations = Reservations(deal, owner.guard)

    def accept(self, task: dict[str, Any]) -> None:
        """Take over a task's state; refuse another card, and a log that shrank or was rewritten."""
        deal, sequence = self.deal, task["events"] - 1
        if task["card"] != deal.card.digest:
            raise Refused(
                "card",
                f"the task now has the card {task['card']!r:.70}; it was joined with "
                f"{deal.card.digest}",
            )
        if sequence < deal.sequence:
            raise Refused(
                "state",
                f"the market shows the task as of event {sequence} of its log, and before as of "
                f"event {deal.sequence}; a log only grows",
            )
        if sequence == deal.sequence and task["last_hash"] != deal.last_hash:
            raise Refused(
                "state",
                f"event {sequence} of the task's log now has the hash {task['last_hash']!r:.70}; "
                f"it was {deal.last_hash}",
            )
        if sequence != deal.sequence:  # written to disk with the next change
            self.deal = replace(deal, sequence=sequence, last_hash=task["last_hash"])

    def participation(self) -> dict[str, Any]:
        """Return the market's record of this owner; refuse an outdated one."""
        participation = self.client.participation(self.deal.task)
        if participation["sequence"] < self.deal.sequence:
            raise Refused(
                "state",
                f"the market shows its record of this owner as of event "
                f"{participation['sequence']}, and the task before as of event "
                f"{self.deal.sequence}",
            )
        return participation

    def change(self, **items: Any) -> None:
        """Store the deal with some items changed, and how far the task is."""
        self.deal = self.owner.deals.change(self.deal, **items)

    def reopen(self) -> None:
        """Give up signed terms: the market discovers the price again."""
        self.reservations.refuse_if_charged()
        self.change(state="joined", terms=None)
        self.reservations.free()
        self.tell("reopened")

    def end_by_exit(self) -> None:
        """End the deal of an owner who is out of the task, if the market's record says so."""
        participation = self.participation()
        if participation["exit"] is None:
            raise Refused(
                "state",
                "the market takes no reply, as if the owner were out of the task, and has no "
                "record of an exit",
            )
        self.come_to_nothing(outcome_of(participation["exit"], LEFT_TASK))

    def come_to_nothing(self, outcome: str) -> None:
        """End the deal before its rounds: nothing more is sold."""
        self.reservations.free()
        terms = self.deal.terms if self.reservations.spent else None
        self.change(state="declined", outcome=outcome, terms=terms)
        self.tell("not-taking-part", sentence=outcome)

    def refused(self, round: int | None, refusal: Refused) -> None:
        """Store a refusal, and tell the owner."""
        self.owner.deals.refused(self.deal, round, refusal)
        self.tell("refused", round=round, reason=refusal.reason, sentence=str(refusal))

    def tell(self, kind: str, **facts: Any) -> None:
        """Tell the owner what happened."""
        self.owner.tell({"event": kind, "task": self.deal.task, **facts})


def outcome_of(exit: dict[str, Any] | None, otherwise: str) -> str:
    """Return how a deal ends by the market's record of the owner's exit."""
    return _OUTCOMES.get(str((exit or {}).get("reason")), otherwise)
