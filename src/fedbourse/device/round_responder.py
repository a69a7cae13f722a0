"""The rounds of one signed deal: an update for each round request, a receipt for each update."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fedbourse.errors import Refused
from fedbourse.learning.device import Device

if TYPE_CHECKING:
    from fedbourse.device.deal import Deal
    from fedbourse.device.live_deal import Owner
    from fedbourse.device.market_client import MarketClient, SignedRequest


class RoundResponder:
    """Sends the updates of one deal, as long as the market gives receipts for them."""

    def __init__(self, deal: Deal, client: MarketClient, owner: Owner) -> None:
        self.deal, self._client, self._owner = deal, client, owner
        self._device: Device | None = None

    def update(self, request: SignedRequest) -> dict[str, Any] | None:
        """Charge, draw, store and send one update; keep its receipt, and return it.

        None where the update has its receipt already.
        """
        deal, deals = self.deal, self._owner.deals
        if deals.is_paid(deal, request.round):
            self._compute(request)  # refuses a round request that differs from the first one
            return None
        unpaid = self.unpaid(besides=request.round)
        if len(unpaid) >= self._owner.settings.max_unpaid_rounds:
            raise Refused(
                "unpaid",
                f"the market gave no receipt for the update of round {unpaid[-1]}; the owner risks "
                f"at most {len(unpaid)} updates without one",
            )
        # Before any record is read. From here on an update is sent, however long that takes:
        # whether one comes must tell nothing about the records that it was computed from.
        if time.monotonic() > request.ends:
            raise Refused("late", f"round {request.round} ended before its update was begun")
        deals.set_request(deal, request.hash)
        vector = self._compute(request)
        paid, _ = deals.unpaid(deal)
        receipt = self._client.update(
            deal,
            request,
            vector,
            delivered=(paid + 1, paid + 1 + len(unpaid)),
            released=deal.released(request.round, deals.delivered(deal)),
        )
        deals.keep_receipt(deal, request.round, receipt)
        return receipt

    def unpaid(self, *, besides: int | None = None) -> list[int]:
        """Return the rounds whose update has no receipt, not even at the market."""
        deals = self._owner.deals
        paid, missing = deals.unpaid(self.deal)
        unpaid = [number for number in missing if number != besides]
        if not unpaid:
            return []
        receipt = self._client.participation(self.deal.task)["receipt"]
        number = receipt["receipt"].get("round") if receipt else None
        if number in unpaid:
            delivered = deals.delivered(self.deal)
            own = next(each for each in delivered if each.round == number)
            self._client.check_receipt(
                self.deal,
                receipt,
                round=number,
                delivered=(paid + 1, paid + len(missing)),
                released=self.deal.released(number, delivered),
                vector_hash=own.hash,
                request=own.request,
            )
            deals.keep_receipt(self.deal, number, receipt)
            unpaid.remove(number)
        return unpaid

    def _compute(self, request: SignedRequest) -> bytes:
        """Return the device's update: charged, drawn and stored, or the one stored before."""
        deal, owner = self.deal, self._owner
        terms = deal.agreed
        if self._device is None:
            card = deal.card
            self._device = Device(
                terms,
                card.build(),
                lambda: owner.records(deal),
                owner.guard,
                noise=owner.noise([terms]),
                form=owner.settings.update_format,
            )
        return self._device.update(
            terms=terms.digest, round=request.round, parameters=request.model
        )
