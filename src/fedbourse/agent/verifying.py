"""The device's own records of a deal against the market's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.errors import FedbourseError, Refused
from fedbourse.wire.canonical import canonical
from fedbourse.wire.keys import verified

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.agent.deals import Deal, Deals
    from fedbourse.agent.market_client import MarketClient


@dataclass(frozen=True)
class Check:
    """One thing that was compared."""

    name: str
    passed: bool | None
    """None where there is nothing to compare yet."""
    detail: str


class _Nothing(Exception):
    """There is nothing to compare yet."""


def verify_deal(deal: Deal, deals: Deals, client: MarketClient) -> list[Check]:
    """Compare card, terms, receipts and earnings of one deal."""
    mine, own = client.mine(deal.task), deals.answered(deal)
    receipts = [each.receipt for each in own if each.receipt is not None]

    def card() -> str:
        _, published = client.card(deal.task)
        _same("the card's hash", published.digest, deal.card.digest)
        return f"the card is the one that was joined, {deal.card.digest[:12]}..."

    def terms() -> str:
        if deal.terms is None and mine["line"] is not None and mine["line"]["state"] == "signed":
            raise Refused(
                "differs",
                "the market holds signed terms, this device none: the folder is an old copy that "
                "has forgotten spend, or somebody else signs with its key",
            )
        if deal.terms is None:
            raise _Nothing("no terms were signed")
        signed = deal.terms["terms"]
        if not verified(client.market.key, canonical(signed), deal.terms["market_signature"]):
            raise Refused("differs", "the market's signature of the terms is not its own")
        line = mine["line"]
        _same("the payment", line["payment_micro"], signed["payment_micro"])
        _same("the line's hash", line["leaf"], signed["previous"])
        _same("the device's signature", line["signature"], deal.terms["signature"])
        return (
            f"{signed['budget']:.6g} rho for {signed['payment_micro']} micro-credits, both signed"
        )

    def signed_receipts() -> str:
        if not receipts:
            raise _Nothing("no receipt was given")
        for number, each in enumerate((each for each in own if each.receipt is not None), 1):
            client.check_receipt(
                deal,
                each.receipt or {},
                round=each.round,
                answered=(number, number),
                vector_hash=each.hash,
                query=each.query,
            )
        return f"{len(receipts)} receipts, each signed by the market and rising as agreed"

    def counted() -> str:
        if deal.terms is None:
            raise _Nothing("no terms were signed")
        theirs = mine["line"]["answered"]
        if theirs > len(own):
            raise Refused(
                "differs",
                f"the market counts {theirs} answers, this device {len(own)}: the folder is an old "
                "copy that has forgotten spend, or somebody else answers with its key",
            )
        _same("answers with a receipt", theirs, len(receipts))
        return f"{theirs} answers on both sides"

    def earned() -> str:
        if deal.terms is None:
            raise _Nothing("no terms were signed")
        most = max((each["receipt"]["earned_micro"] for each in receipts), default=0)
        if deal.card.vesting == "upfront":
            most = deal.payment if receipts else mine["line"]["earned_micro"]
        _same("what was earned", mine["line"]["earned_micro"], most)
        return f"{most} micro-credits on both sides"

    checks = [
        ("own card", card),
        ("own terms", terms),
        ("own receipts", signed_receipts),
        ("own answers", counted),
        ("own earnings", earned),
    ]
    return [_run(name, check) for name, check in checks]


def _run(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except _Nothing as nothing:
        return Check(name, None, str(nothing))
    except (FedbourseError, LookupError, TypeError, ValueError) as error:
        return Check(name, False, str(error))


def _same(what: str, theirs: Any, own: Any) -> None:
    if theirs != own:
        raise Refused("differs", f"{what}: the market says {theirs}, this device {own}")
