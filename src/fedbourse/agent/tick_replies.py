"""Replies to ticks: what a device says to an announced total, and when it says nothing.

A reply depends on the card, on the owner's settings and on what was announced; never on records.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.agent.deals import Reply
from fedbourse.errors import InvalidInput, Refused
from fedbourse.game import activity
from fedbourse.units import MICRO_CREDITS_PER_CREDIT, amount_text, number, whole_number
from fedbourse.wire.bounds import TICKS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedbourse.agent.deals import Deal

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
        """Read a task's announcement; refuse one that cannot be, or that takes back another."""
        offer, tick = task["offer"] or "", task["tick"]
        if not _HASH.fullmatch(offer) or tick is None:
            raise Refused("offer", "the market announces a reward without an offer or a tick")
        try:
            total = number("total_budget", task["total_budget"], above=0)
            reward = whole_number("reward_micro", task["reward_micro"], at_least=1)
        except InvalidInput as error:
            raise Refused("offer", f"the market's offer cannot be: {error}") from None
        announced = cls(offer, tick, total, reward)
        if deal.replies:
            announced._check_after(deal.replies[-1])
        return announced

    def _check_after(self, last: Reply) -> None:
        """Refuse an offer that does not follow the one replied to last, or changes it."""
        if self.reward_micro != last.reward_micro:
            raise Refused(
                "offer",
                f"the reward is {amount_text(self.reward_micro)} now, and was "
                f"{amount_text(last.reward_micro)} before; it is fixed once it is announced",
            )
        same = (self.offer, self.tick, self.total_budget) == (
            last.offer,
            last.tick,
            last.total_budget,
        )
        if not same and (self.offer == last.offer or self.tick <= last.tick):
            raise Refused(
                "offer",
                f"the market announces a total of {self.total_budget:g} at tick {self.tick}, after "
                f"{last.total_budget:g} at tick {last.tick}; a tick has one total, and ticks rise",
            )


def reply_to(
    announced: Announcement, deal: Deal, *, value: float, can_draw: Callable[[float], bool]
) -> Reply | None:
    """Return the reply to an announcement; None where a zero replied before stands for it.

    ``value`` is what replies follow. Where ``can_draw`` says that no noise can be drawn for a
    budget, nothing is sold. A reply that was stored before is returned as it was.
    """
    for reply in deal.replies:
        if reply.offer == announced.offer:
            return reply
    if any(
        not each.budget and each.total_budget <= announced.total_budget for each in deal.replies
    ):
        return None
    if len(deal.replies) >= TICKS_MAX:
        raise Refused("offer", f"the market announces more than {TICKS_MAX} totals")
    budget = deal.wish.plan(
        deal.card,
        value=value,
        reward=announced.reward_micro / MICRO_CREDITS_PER_CREDIT,
        total=announced.total_budget,
        cap=deal.cap,
    )
    return Reply(
        announced.offer,
        announced.tick,
        announced.total_budget,
        announced.reward_micro,
        budget if budget and can_draw(budget) else 0.0,
    )


def contradiction_of(reply: Reply, deal: Deal) -> str | None:
    """Return why the market would refuse a reply after those before it; None where it would not.

    Replies that follow a value never contradict each other; a fixed budget may (``game.activity``).
    """
    return activity.contradiction(
        _for_the_rule(reply),
        [_for_the_rule(each) for each in deal.replies if each.tick < reply.tick],
        reward=reply.reward_micro / MICRO_CREDITS_PER_CREDIT,
        floor=deal.card.min_budget,
        linear=deal.card.cost == "linear",
    )


def _for_the_rule(reply: Reply) -> activity.Reply:
    return activity.Reply(reply.tick, reply.total_budget, reply.budget)
