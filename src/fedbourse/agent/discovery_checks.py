"""A device's own replies, and the price it was paid, against what the market holds and published.

The log is one for everybody: a market that announced other totals to this device than to others, or
settled it at another tick than others, is seen here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbourse.errors import Refused
from fedbourse.units import amount_text
from fedbourse.wire.canonical import digest
from fedbourse.wire.messages import least_pay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedbourse.agent.deals import Deal, Reply

Document = dict[str, Any]


class NothingToCompare(Exception):
    """Neither side has anything to compare yet."""


def same(what: str, theirs: object, own: object) -> None:
    """Refuse two records that should be one."""
    if theirs != own:
        raise Refused(
            "differs", f"{what}: the market says {theirs!s:.100}, this device {own!s:.100}"
        )


def same_amount(what: str, theirs: object, own: int) -> None:
    """Refuse two amounts of money that should be one."""
    if theirs != own:
        raise Refused(
            "differs",
            f"{what}: the market says {amount_text(theirs)}, this device {amount_text(own)}",
        )


def check_replies(deal: Deal, mine: Document, *, open_tick: int | None) -> str:
    """Compare the budgets replied to each tick; ``open_tick`` is the one that is still open."""
    theirs = {reply["tick"]: reply["budget"] for reply in mine["replies"]}
    own = {reply.tick: reply.budget for reply in deal.replies}
    if not theirs and not own:
        raise NothingToCompare("no tick was replied to")
    for tick, budget in theirs.items():
        if tick not in own:
            raise Refused(
                "differs",
                f"the market holds a reply to tick {tick}, this device none: the folder is an old "
                "copy, or somebody else replies with its key",
            )
        if budget is not None:  # an owner may have had it erased
            same(f"the reply to tick {tick}", budget, own[tick])
    # The market forgets the replies of who left, and never got one that came too late.
    if mine["exit"] is None:
        lost = sorted(own.keys() - theirs.keys() - {open_tick})
        if lost:
            raise Refused("differs", f"the market does not hold the reply to tick {lost[0]}")
    return f"{len(theirs)} replies, the same on both sides"


def check_prices(deal: Deal, events: Sequence[Document], terms: Mapping[str, Any] | None) -> str:
    """Check that every offer is in the log, and that signed terms pay the price replied to."""
    if not deal.replies:
        raise NothingToCompare("no tick was replied to")
    offers = {
        event["body"]["hash"]: event["body"]["offer"]
        for event in events
        if event["kind"] in ("announced", "ticked")
    }
    for reply in deal.replies:
        _check_offer(reply, offers.get(reply.offer))
    if terms is None:
        return f"{len(deal.replies)} offers are in the log as they were announced"
    settled = [event["body"] for event in events if event["kind"] == "settled"]
    if not settled:
        raise Refused("differs", "this device signed terms, and the log has no settlement")
    same("the tick settled at", settled[-1]["tick"], terms["tick"])
    same("the total settled at", settled[-1]["announced_total"], terms["total_budget"])
    reply = next(each for each in deal.replies if each.tick == terms["tick"])
    least = least_pay(
        budget=reply.budget, total_budget=reply.total_budget, reward_micro=reply.reward_micro
    )
    if terms["payment_micro"] < least:
        raise Refused(
            "differs",
            f"the pay is {amount_text(terms['payment_micro'])}; at the price of tick {reply.tick} "
            f"it is at least {amount_text(least)}",
        )
    return (
        f"{len(deal.replies)} offers are in the log as they were announced; the pay of "
        f"{amount_text(terms['payment_micro'])} is at least {amount_text(least)}, the price of "
        f"tick {reply.tick}"
    )


def _check_offer(reply: Reply, offer: Mapping[str, Any] | None) -> None:
    if offer is None:
        raise Refused(
            "differs", f"the log has no offer at tick {reply.tick} with the hash {reply.offer}"
        )
    same(f"the hash of the offer at tick {reply.tick}", digest(dict(offer)), reply.offer)
    for name in ("tick", "total_budget", "reward_micro"):
        same(f"{name} of the offer at tick {reply.tick}", offer[name], getattr(reply, name))
