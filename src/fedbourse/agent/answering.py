"""The rounds of one signed deal: an answer for each question, a receipt for each answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fedbourse.errors import Refused
from fedbourse.learning.device import Device
from fedbourse.learning.models import model_named

if TYPE_CHECKING:
    from fedbourse.agent.deals import Deal
    from fedbourse.agent.following import Owner
    from fedbourse.agent.market_client import MarketClient, Query


class Answering:
    """Answers what a market asks about one deal, as long as it is paid for it."""

    def __init__(self, deal: Deal, client: MarketClient, owner: Owner) -> None:
        """Take a deal whose terms are signed."""
        self._deal, self._client, self._owner = deal, client, owner
        self._device: Device | None = None

    def answer(self, query: Query) -> dict[str, Any] | None:
        """Answer one round: charge, draw, store, send, and keep the receipt, which is returned.

        None where it has its receipt already.
        """
        deal, deals = self._deal, self._owner.deals
        if deals.is_paid(deal, query.round):
            self._ask_device(query)  # it is paid: only a question that is another one is refused
            return None
        unpaid = self.unpaid(besides=query.round)
        if len(unpaid) >= self._owner.settings.risk_rounds:
            raise Refused(
                "unpaid",
                f"round {unpaid[-1]} was answered, and the market gave no receipt for it; "
                f"{len(unpaid)} answers without one are as many as the owner risks",
            )
        # Before any record is read. From here on the round is answered, however long that takes:
        # whether an update comes must tell nothing about the records that it was computed from.
        _check_deadline(query)
        deals.asked(deal, query.hash)
        vector = self._ask_device(query)
        paid, _ = deals.unpaid(deal)
        receipt = self._client.answer(
            deal, query, vector, answered=(paid + 1, paid + 1 + len(unpaid))
        )
        deals.keep_receipt(deal, query.round, receipt)
        return receipt

    def unpaid(self, *, besides: int | None = None) -> list[int]:
        """Return the rounds that were answered and have no receipt, also not at the market."""
        deals = self._owner.deals
        paid, missing = deals.unpaid(self._deal)
        unpaid = [number for number in missing if number != besides]
        if not unpaid:
            return []
        found = self._client.mine(self._deal.task)["receipt"]
        number = found["receipt"].get("round") if found else None
        if number in unpaid:
            own = next(each for each in deals.answered(self._deal) if each.round == number)
            self._client.check_receipt(
                self._deal,
                found,
                round=number,
                answered=(paid + 1, paid + len(missing)),
                vector_hash=own.hash,
                query=own.query,
            )
            deals.keep_receipt(self._deal, number, found)
            unpaid.remove(number)
        return unpaid

    def _ask_device(self, query: Query) -> bytes:
        """Return the device's own answer: charged, drawn and stored, or the one that was."""
        if self._device is None:
            deal, owner = self._deal, self._owner
            card, terms = deal.card, deal.agreed
            self._device = Device(
                terms,
                model_named(card.model, features=card.features, classes=card.classes),
                lambda: owner.records(deal),
                owner.guard,
                noise=owner.noise([terms]),
                form=owner.settings.answers,
            )
        return self._device.answer(
            terms=self._deal.agreed.digest,
            round=query.round,
            parameters=query.model,
        )


def _check_deadline(query: Query) -> None:
    """Refuse a round that has ended: its answer would bring nothing."""
    if time.monotonic() > query.ends:
        raise Refused("late", f"round {query.round} ended before its answer was begun")
