"""The model of held pay: who is dismissed is the market's word, what follows from it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.learning.records import Records
from fedbourse.market.evidence import CardReference
from fedbourse.market.service import escrow
from fedbourse.tasks.evidence import EvidenceSpec, reference_file, reference_hash
from fedbourse.testing.trading import Trading, card

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray
    from market.life_sale import Sale

_DRAWN = np.random.default_rng(1).normal(size=(60, 2))
REFERENCE = reference_file(
    Records(np.column_stack([_DRAWN, np.ones(60)]), (_DRAWN[:, 0] > 0).astype(float), 2),
    salt=bytes(32),
)


def evidence_of(dice: int) -> EvidenceSpec | None:
    """Return a card's evidence: on most cards, with levels at which much is decided."""
    if dice % 4 == 0:
        return None
    return EvidenceSpec(
        reference=reference_hash(REFERENCE),
        records=60,
        alpha=0.5,
        beta=0.5,
        hold_rounds=(None, 1, 2)[dice % 3],
    )


GRADIENT: FloatArray = CardReference.of(card(evidence=evidence_of(1)), REFERENCE).first
"""What owners with data add to their noise: steps are few, so that the first one's will do."""


class HeldPay:
    """What a market does with the pay that a task's evidence holds."""

    def __init__(self, trading: Trading, move: Callable[[str, str, int], None]) -> None:
        self._trading, self._move = trading, move

    def close_round(self, sale: Sale) -> None:
        """Take note of who is dismissed after a round, and decide where its block ends."""
        assert sale.evidence is not None
        logged = self._events(sale, "round")[-1]["evidence"]
        sent = {owner for number, owner in sale.updates if number == sale.round}
        ends = sale.evidence.ends_block(sale.round, rounds=sale.rounds)
        self._judge(sale, may_fall=sent)
        if not ends:
            assert logged["dismissed"] == len(sale.fallen)
            assert not (logged["void"] and sale.fallen)
        else:
            assert logged["stands"] or not sale.fallen
            self._decide(sale)

    def cancel(self, sale: Sale) -> None:
        """A cancelled task decides on its open block; nobody falls by updates to an open round."""
        self._judge(sale, may_fall=set())
        assert self._events(sale, "cancelled")[-1]["evidence"]["stands"] or not sale.fallen
        self._decide(sale)

    def _events(self, sale: Sale, kind: str) -> list[dict[str, Any]]:
        return [each.body for each in self._trading.events(sale.id) if each.kind == kind]

    def _judge(self, sale: Sale, *, may_fall: set[str]) -> None:
        states = {each.owner: each.state for each in self._trading.allocations(sale.id)}
        gone = {owner for owner, state in states.items() if state == "dismissed"}
        assert sale.lost.keys() <= gone  # what was decided stays so
        fallen = gone - sale.lost.keys()
        assert fallen - sale.fallen <= may_fall
        assert 2 * len(fallen) <= len(states) - len(sale.lost)
        sale.fallen = fallen
        for owner in sale.pay:
            sale.decided[owner] = "dismissed" if owner in gone else "signed"

    def _decide(self, sale: Sale) -> None:
        """Release what is held, but of those who fell in this block: they lose it."""
        for owner in sale.pay.keys() - sale.lost.keys():
            held = sale.held_pay(owner)
            if owner in sale.fallen:
                sale.lost[owner] = held
            else:
                self._move(escrow(sale.id), owner, held)
                sale.released[owner] = sale.released.get(owner, 0) + held
        sale.fallen = set()
