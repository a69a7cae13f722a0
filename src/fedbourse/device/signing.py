"""The terms of a settled deal: signed, or declined with the reason.

Where another owner declines, the market discovers the price again: terms under which nothing was
spent are given up, and the device replies and signs once more (``reservations``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbourse.device.live_deal import outcome_of
from fedbourse.encoding.canonical import digest
from fedbourse.errors import Conflict, InvalidInput, NotFound, Refused
from fedbourse.learning.update_check import fits_float32

if TYPE_CHECKING:
    from fedbourse.device.live_deal import LiveDeal


def decide(live: LiveDeal, task: dict[str, Any]) -> bool:
    """Sign the terms, or decline them; again where the market has not received it.

    Return whether both sides have signed.
    """
    participation = live.participation()
    allocation, offer = participation["allocation"], participation["terms"]
    if allocation is None:
        # Where the price is discovered again, a settlement's allocations are gone.
        if (
            participation["exit"] is not None
            or task["state"] != "settled"
            or participation["sequence"] < task["events"]
        ):
            live.come_to_nothing(
                outcome_of(participation["exit"], "not chosen: no budget was sold")
            )
        return False
    if allocation["state"] == "declined":
        live.come_to_nothing("the market counts the terms as declined")
        return False
    paid, unpaid = live.owner.deals.unpaid(live.deal)
    if allocation["delivered"] > paid + len(unpaid):
        raise Refused(
            "forgotten",
            f"the market counts {allocation['delivered']} updates, and this device remembers "
            "fewer: its folder is an old copy that has forgotten spend",
        )
    if live.deal.terms is not None and allocation["state"] in ("signed", "dismissed"):
        return True
    try:
        terms = _acceptable(live, offer)
        if live.deal.terms is not None and terms != live.deal.terms["terms"]:
            live.reopen()
        live.reservations.reserve(live.deal.privacy(terms))
    except Refused as refusal:
        live.owner.deals.refused(live.deal, None, refusal)
        live.tell("declined", reason=refusal.reason, sentence=str(refusal))
        _decline(live, (offer or {}).get("terms"))
        live.come_to_nothing(str(refusal))
        return False
    _sign(live, terms, offer["market_signature"])
    return True


def _acceptable(live: LiveDeal, offer: dict[str, Any]) -> dict[str, Any]:
    """Return the terms on offer if they follow from a reply, and the owner's rules allow it."""
    deal, owner = live.deal, live.owner
    terms = live.client.checked_terms(deal, offer)
    owner.policy.check_terms(
        deal.card,
        buyer=deal.buyer,
        value=owner.settings.value,
        budget=float(terms["budget"]),
        payment=int(terms["payment_micro"]),
    )
    if owner.settings.update_format == "float32" and not fits_float32(deal.privacy(terms)):
        raise Refused("float32", "the updates of this task do not fit single precision")
    return terms


def _sign(live: LiveDeal, terms: dict[str, Any], market_signature: str) -> None:
    signed = live.deal.terms or live.client.sign(terms, market_signature)
    live.change(state="signed", terms=signed)
    try:
        live.client.decide(
            live.deal.task, accept=True, terms_digest=digest(terms), signature=signed["signature"]
        )
    except NotFound as error:  # settled anew meanwhile, without this owner
        raise Conflict(str(error)) from None
    live.tell("signed", budget=terms["budget"], payment_micro=terms["payment_micro"])


def _decline(live: LiveDeal, terms: object) -> None:
    """Tell the market; the terms are declined, whatever it responds."""
    try:
        live.client.decide(live.deal.task, accept=False, terms_digest=digest(terms))
    except (Conflict, InvalidInput, NotFound) as error:
        live.tell("moved", sentence=str(error))
