"""Tick replies: the budget a device replies to an announced total with, or none.

A reply depends on the card, on the owner's settings and on the announcement; never on records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.device.deal import SentReply
from fedbourse.errors import InvalidInput, Refused
from fedbourse.game import activity
from fedbourse.protocol.bounds import TICKS_MAX
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, amount_text, number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedbourse.device.deal import Deal

_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Announcement:
    """What the market announces at a tick."""

    offer: str
    """The hash of the offer, which replies refer to."""
    tick: int
    total_budget: float
    """P."""
    reward_micro: int
    """R."""

    @classmethod
    def of(cls, task: Mapping[str, Any], deal: Deal) -> Announcement:
        """Read a task's announcement; refuse an invalid one, or one that takes back another."""
        offer, tick = task["offer"] or "", task["tick"]
        if not _HASH.fullmatch(offer) or tick is None:
            raise Refused("offer", "the market announces a reward without an offer or a tick")
        try:
            total = number("total_budget", task["total_budget"], above=0)
            reward = whole_number("reward_micro", task["reward_micro"], at_least=1)
        except InvalidInput as error:
            raise Refused("offer", f"the market's offer is not valid: {error}") from None
        announcement = cls(offer, tick, total, reward)
        if deal.replies:
            announcement._check_after(deal.replies[-1])
        return announcement

    def _check_after(self, last: SentReply) -> None:
        """Refuse an offer that does not follow the one replied to last, or changes it."""
        if self.reward_micro != last.reward_micro:
            raise Refused(
                "offer",
                f"the reward is {amount_text(self.reward_micro)} now, and was "
                f"{amount_text(last.reward_micro)} before; it is fixed once it is announced",
            )
        own, before = ((each.offer, each.tick, each.total_budget) for each in (self, last))
        if own != before and (self.offer == last.offer or self.tick <= last.tick):
            raise Refused(
                "offer",
                f"the market announces a total of {self.total_budget:g} at tick {self.tick}, after "
                f"{last.total_budget:g} at tick {last.tick}; a tick has one total, and ticks rise",
            )


def reply_to(
    announcement: Announcement, deal: Deal, *, value: float, can_draw: Callable[[float], bool]
) -> SentReply | None:
    """Return the reply to an announcement; None where a zero replied before stands for it.

    ``value`` is the value that replies follow. Where ``can_draw`` says that no noise can be drawn
    for a budget, nothing is sold. A stored reply is returned as it is.
    """
    for reply in deal.replies:
        if reply.offer == announcement.offer:
            return reply
    total, reward_micro = announcement.total_budget, announcement.reward_micro
    if any(not each.budget and each.total_budget <= total for each in deal.replies):
        return None
    if len(deal.replies) >= TICKS_MAX:
        raise Refused("offer", f"the market announces more than {TICKS_MAX} totals")
    budget = deal.strategy.plan(
        deal.card,
        value=value,
        reward=reward_micro / MICRO_CREDITS_PER_CREDIT,
        total=total,
        cap=deal.cap,
    )
    if budget and not can_draw(budget):
        budget = 0.0
    return SentReply(announcement.offer, announcement.tick, total, reward_micro, budget)


def contradiction_of(reply: SentReply, deal: Deal) -> str | None:
    """Return why the market would refuse a reply after those before it; None where it would not.

    Replies that follow a value never contradict each other; a fixed budget may (``game.activity``).
    """
    earlier = [each for each in deal.replies if each.tick < reply.tick]
    last, *before = (
        activity.Reply(each.tick, each.total_budget, each.budget) for each in (reply, *earlier)
    )
    return activity.contradiction(
        last,
        before,
        reward=reply.reward_micro / MICRO_CREDITS_PER_CREDIT,
        floor=deal.card.min_budget,
        linear=deal.card.cost == "linear",
    )
