"""The device's own records of a deal against the market's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbourse.agent.deals import TASK_ENDED
from fedbourse.agent.discovery_checks import (
    NothingToCompare,
    check_prices,
    check_replies,
    same,
    same_amount,
)
from fedbourse.errors import FedbourseError, Refused
from fedbourse.units import amount_text

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


def verify_deal(deal: Deal, deals: Deals, client: MarketClient) -> list[Check]:
    """Compare card, replies, price, terms, receipts and earnings of one deal."""
    mine, own, task = client.mine(deal.task), deals.answered(deal), client.task(deal.task)
    receipts = [each.receipt for each in own if each.receipt is not None]

    def card() -> str:
        _, published = client.card(deal.task)
        same("the card's hash", published.digest, deal.card.digest)
        return f"the card is the one that was joined, {deal.card.digest[:12]}..."

    def replies() -> str:
        ticking = task["state"] == "announced"
        return check_replies(deal, mine, open_tick=task["tick"] if ticking else None)

    def price() -> str:
        terms = None if deal.terms is None or replaced() else deal.terms["terms"]
        return check_prices(deal, client.discovery_log(deal.task), terms)

    def replaced() -> bool:
        """Say whether the market does not hold the signature, and may still ask for another."""
        line, waiting = mine["line"], task["state"] in ("announced", "settled")
        return not own and waiting and (line is None or line["state"] == "offered")

    def signed_terms() -> dict[str, Any]:
        """Return the terms with both signatures, if they count."""
        if deal.terms is None:
            raise NothingToCompare("no terms were signed")
        if replaced():
            raise NothingToCompare(
                "the market has not heard of the signature, or discovers the price again"
            )
        if mine["line"] is None:
            raise Refused("differs", "this device signed terms, and the market holds none of them")
        return deal.terms

    def terms() -> str:
        if deal.terms is None and mine["line"] is not None and mine["line"]["state"] == "signed":
            raise Refused(
                "differs",
                "the market holds signed terms, this device none: the folder is an old copy that "
                "has forgotten spend, or somebody else signs with its key",
            )
        both, line = signed_terms(), mine["line"]
        signed = both["terms"]
        if not client.market.signed(signed, both["market_signature"]):
            raise Refused("differs", "the market's signature of the terms is not its own")
        same_amount("the payment", line["payment_micro"], signed["payment_micro"])
        same("the line's hash", line["leaf"], signed["previous"])
        same("the device's signature", line["signature"], both["signature"])
        return f"{signed['budget']:.6g} rho for {amount_text(signed['payment_micro'])}, both signed"

    def own_receipts() -> str:
        if not receipts:
            raise NothingToCompare("no receipt was given")
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
        signed_terms()
        theirs = mine["line"]["answered"]
        if theirs > len(own):
            raise Refused(
                "differs",
                f"the market counts {theirs} answers, this device {len(own)}: the folder is an old "
                "copy that has forgotten spend, or somebody else answers with its key",
            )
        same("answers with a receipt", theirs, len(receipts))
        return f"{theirs} answers on both sides"

    def earned() -> str:
        signed_terms()
        most = max((each["receipt"]["earned_micro"] for each in receipts), default=0)
        theirs = mine["line"]["earned_micro"]
        if deal.card.vesting == "upfront":
            most = deal.payment if receipts else theirs
        # At its end a task may share what others did not deliver.
        if deal.card.unearned != "share" or task["state"] not in TASK_ENDED or theirs < most:
            same_amount("what was earned", theirs, most)
        return f"{amount_text(theirs)} on both sides"

    checks = [
        ("own card", card),
        ("own replies", replies),
        ("own price", price),
        ("own terms", terms),
        ("own receipts", own_receipts),
        ("own answers", counted),
        ("own earnings", earned),
    ]
    return [_run(name, check) for name, check in checks]


def _run(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except NothingToCompare as nothing:
        return Check(name, None, str(nothing))
    except (FedbourseError, LookupError, TypeError, ValueError) as error:
        return Check(name, False, str(error))
