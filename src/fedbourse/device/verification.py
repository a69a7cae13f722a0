"""The device's own records of a deal, compared with the market's.

The task's log is the same for everybody: a market that announced other totals to this device than
to others, or settled it at another tick, is found out here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.device.deal import TASK_ENDED
from fedbourse.encoding.canonical import digest
from fedbourse.errors import FedbourseError, Refused
from fedbourse.units import amount_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fedbourse.device.deal import Deal
    from fedbourse.device.deals import Deals
    from fedbourse.device.market_client import MarketClient

Document = dict[str, Any]
_TRAINED = ("signed", "dismissed")
_OLD_COPY = "the folder is an old copy that has forgotten spend, or somebody else uses its key"


@dataclass(frozen=True)
class DeviceCheck:
    """The result of one comparison."""

    name: str
    passed: bool | None
    """None where there is nothing to compare yet."""
    detail: str


class _NothingToCompare(Exception):
    """Neither side has anything to compare yet."""


def verify_deal(deal: Deal, deals: Deals, client: MarketClient) -> list[DeviceCheck]:
    """Compare card, replies, price, terms, receipts and earnings of one deal."""
    participation, task = client.participation(deal.task), client.task(deal.task)
    own, allocation = deals.delivered(deal), participation["allocation"]
    receipts = [each.receipt for each in own if each.receipt is not None]
    # Whether the market does not hold the signature, and may still ask for another.
    replaced = (
        not own
        and task["state"] in ("announced", "settled")
        and (allocation is None or allocation["state"] == "offered")
    )

    def card() -> str:
        _, published = client.card(deal.task)
        _same("the card's hash", published.digest, deal.card.digest)
        return f"the card is the one that was joined, {deal.card.digest[:12]}..."

    def replies() -> str:
        ticking = task["state"] == "announced"
        return _check_replies(deal, participation, open_tick=task["tick"] if ticking else None)

    def price() -> str:
        terms = None if deal.terms is None or replaced else deal.terms["terms"]
        return _check_prices(deal, client.discovery_log(deal.task), terms)

    def signed_terms() -> Document:
        """Return the terms with both signatures, if they count."""
        if deal.terms is None:
            raise _NothingToCompare("no terms were signed")
        if replaced:
            raise _NothingToCompare(
                "the market has not received the signature, or discovers the price again"
            )
        if allocation is None:
            raise Refused("differs", "this device signed terms, and the market holds none of them")
        return deal.terms

    def terms() -> str:
        if deal.terms is None and allocation is not None and allocation["state"] in _TRAINED:
            raise Refused(
                "differs", f"the market holds signed terms, this device none: {_OLD_COPY}"
            )
        both = signed_terms()
        signed = both["terms"]
        if not client.market.signed(signed, both["market_signature"]):
            raise Refused("differs", "the market's signature of the terms is not its own")
        _same("the payment", allocation["payment_micro"], signed["payment_micro"], amount_text)
        _same("the allocation's hash", allocation["leaf"], signed["previous"])
        _same("the device's signature", allocation["signature"], both["signature"])
        return f"{signed['budget']:.6g} rho for {amount_text(signed['payment_micro'])}, both signed"

    def own_receipts() -> str:
        if not receipts:
            raise _NothingToCompare("no receipt was given")
        for number, each in enumerate((each for each in own if each.receipt is not None), 1):
            client.check_receipt(
                deal,
                each.receipt or {},
                round=each.round,
                delivered=(number, number),
                released=deal.released(each.round, own),
                vector_hash=each.hash,
                request=each.request,
            )
        return f"{len(receipts)} receipts, each signed by the market and rising as agreed"

    def updates() -> str:
        signed_terms()
        theirs = allocation["delivered"]
        if theirs > len(own):
            raise Refused(
                "differs",
                f"the market counts {theirs} updates, this device {len(own)}: {_OLD_COPY}",
            )
        _same("updates with a receipt", theirs, len(receipts))
        return f"{theirs} updates on both sides"

    def earnings() -> str:
        signed_terms()
        ended = task["state"] in TASK_ENDED
        return _check_earnings(deal, allocation, receipts, ended=ended)

    checks = {
        "own card": card,
        "own replies": replies,
        "own price": price,
        "own terms": terms,
        "own receipts": own_receipts,
        "own updates": updates,
        "own earnings": earnings,
    }
    return [_run(name, check) for name, check in checks.items()]


def _run(name: str, check: Callable[[], str]) -> DeviceCheck:
    try:
        return DeviceCheck(name, True, check())
    except _NothingToCompare as nothing:
        return DeviceCheck(name, None, str(nothing))
    except (FedbourseError, LookupError, TypeError, ValueError) as error:
        return DeviceCheck(name, False, str(error))


def _same(
    what: str,
    theirs: object,
    own: object,
    show: Callable[[Any], str] = lambda item: f"{item!s:.100}",
) -> None:
    """Refuse two records that should be one."""
    if theirs != own:
        raise Refused("differs", f"{what}: the market says {show(theirs)}, this device {show(own)}")


def _check_replies(deal: Deal, participation: Document, *, open_tick: int | None) -> str:
    """Compare the budgets replied to each tick; ``open_tick`` is the one that is still open."""
    theirs = {reply["tick"]: reply["budget"] for reply in participation["replies"]}
    own = {reply.tick: reply.budget for reply in deal.replies}
    if not theirs and not own:
        raise _NothingToCompare("no tick was replied to")
    for tick, budget in theirs.items():
        if tick not in own:
            raise Refused(
                "differs", f"the market holds a reply to tick {tick}, this device none: {_OLD_COPY}"
            )
        if budget is not None:  # an owner may have had it erased
            _same(f"the reply to tick {tick}", budget, own[tick])
    # The market forgets the replies of who left, and never got one that came too late.
    lost = sorted(own.keys() - theirs.keys() - {open_tick})
    if lost and participation["exit"] is None:
        raise Refused("differs", f"the market does not hold the reply to tick {lost[0]}")
    return f"{len(theirs)} replies, the same on both sides"


def _check_prices(deal: Deal, events: Sequence[Document], terms: Mapping[str, Any] | None) -> str:
    """Check that every offer is in the log, and that signed terms pay the price replied to."""
    if not deal.replies:
        raise _NothingToCompare("no tick was replied to")
    offers = {
        event["body"]["hash"]: event["body"]["offer"]
        for event in events
        if event["kind"] in ("announced", "ticked")
    }
    for reply in deal.replies:
        offer, at = offers.get(reply.offer), f"of the offer at tick {reply.tick}"
        if offer is None:
            raise Refused(
                "differs", f"the log has no offer at tick {reply.tick} with the hash {reply.offer}"
            )
        _same(f"the hash {at}", digest(dict(offer)), reply.offer)
        for name in ("tick", "total_budget", "reward_micro"):
            _same(f"{name} {at}", offer[name], getattr(reply, name))
    summary = f"{len(deal.replies)} offers are in the log as they were announced"
    if terms is None:
        return summary
    settlements = [event["body"] for event in events if event["kind"] == "settled"]
    if not settlements:
        raise Refused("differs", "this device signed terms, and the log has no settlement")
    settled = settlements[-1]
    # The clock pays whoever has accepted the next price too that one.
    if not deal.card.sells_lots or terms["tick"] != settled["tick"] + 1:
        _same("the tick settled at", settled["tick"], terms["tick"])
        _same("the total settled at", settled["announced_total"], terms["total_budget"])
    reply = next(each for each in deal.replies if each.tick == terms["tick"])
    pay, least = amount_text(terms["payment_micro"]), amount_text(reply.min_pay)
    if terms["payment_micro"] < reply.min_pay:
        raise Refused(
            "differs",
            f"the pay is {pay}; at the price of tick {reply.tick} it is at least {least}",
        )
    return f"{summary}; the pay of {pay} is at least {least}, the price of tick {reply.tick}"


def _check_earnings(
    deal: Deal, allocation: Mapping[str, Any], receipts: Sequence[Document], *, ended: bool
) -> str:
    """The market says what receipts say; what it held of a dismissed device is not paid."""
    most = max((each["receipt"]["earned_micro"] for each in receipts), default=0)
    theirs = allocation["earned_micro"]
    if deal.card.vesting == "upfront":
        most = deal.payment if receipts else theirs
    if allocation["state"] == "dismissed" and theirs < most:
        raise _NothingToCompare(
            f"the market asked for no more updates, and pays {amount_text(theirs)} of "
            f"{amount_text(most)}: auditors recompute why"
        )
    # At its end a task may share what others did not deliver.
    if deal.card.unearned != "share" or not ended or theirs < most:
        _same("what was earned", theirs, most, amount_text)
    return f"{amount_text(theirs)} on both sides"
