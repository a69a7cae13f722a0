"""Money on its way out in SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sqlalchemy import Select, and_, func, insert, select, update

from fedbourse.errors import Conflict, NotFound
from fedbourse.market.payouts import PAYOUTS, Payout, PayoutState, PayoutStep
from fedbourse.storage.schema import (
    PAYOUT_IS_OPEN,
    PAYOUT_WAITS,
    payout_steps,
    payouts,
    transfers,
)
from fedbourse.storage.unit import Part
from fedbourse.units import MicroCredits

if TYPE_CHECKING:
    from fedbourse.market.ports import Lock

_PROGRESS = ("state", "changed_ms", "note", "steps", "attempts", "trying", "due_ms")


class SqlPayouts(Part):
    """``market.ports.Payouts``."""

    def add_payout(self, payout: Payout) -> None:
        """Store a new pay-out; a second one with its id raises ``Conflict``."""
        if not self._add(payouts, asdict(payout)):
            raise Conflict(f"there is a pay-out {payout.id!r:.80} already")

    def payout(self, payout: str, *, lock: Lock = "none") -> Payout:
        """Return a pay-out, or raise ``NotFound``."""
        found = self._found(self._locked(select(payouts).where(payouts.c.id == payout), lock))
        if not found:
            raise NotFound(f"there is no pay-out {payout!r:.80}")
        return found[0]

    def save_payout(self, payout: Payout) -> None:
        """Store how far a pay-out has come; whose, how much, where and when never change."""
        progress = {name: getattr(payout, name) for name in _PROGRESS}
        if not self._changed(update(payouts).where(payouts.c.id == payout.id).values(progress)):
            raise NotFound(f"there is no pay-out {payout.id!r:.80}")

    def add_payout_step(self, step: PayoutStep) -> None:
        """Store a state of a pay-out; a second one with its number raises ``Conflict``."""
        self._run(insert(payout_steps), asdict(step))

    def payout_steps(self, payout: str) -> list[PayoutStep]:
        """Return the states that a pay-out has had, in order."""
        query = select(payout_steps).where(payout_steps.c.payout == payout)
        rows = self._run(query.order_by(payout_steps.c.number)).mappings()
        return [PayoutStep(**dict(row) | {"state": PayoutState(row["state"])}) for row in rows]

    def due_payouts(self, *, now_ms: int, limit: int) -> list[Payout]:
        """Return those to be handed over by now, by id; none whose money has not left its party."""
        left = and_(
            transfers.c.id == "withdrawal/" + payouts.c.id,
            transfers.c.source == payouts.c.party,
            transfers.c.target == PAYOUTS,
            transfers.c.amount == payouts.c.amount,
        )
        query = (
            select(payouts).join(transfers, left).where(PAYOUT_WAITS, payouts.c.due_ms <= now_ms)
        )
        return self._found(query.order_by(payouts.c.id).limit(limit))

    def hurry_payouts(self, *, now_ms: int) -> None:
        """Let those be due whose last attempt has not ended."""
        self._run(update(payouts).where(PAYOUT_WAITS, payouts.c.trying).values(due_ms=now_ms))

    def payouts(self, party: str, *, before: str | None = None, limit: int) -> list[Payout]:
        """Return a party's pay-outs, newest first: those made before one."""
        query = select(payouts).where(payouts.c.party == party)
        if before is not None:
            query = query.where(payouts.c.id < before)
        return self._found(query.order_by(payouts.c.id.desc()).limit(limit))

    def open_payouts(self, *, after: str = "", limit: int) -> list[Payout]:
        """Return those that are neither confirmed nor returned, by id."""
        query = select(payouts).where(PAYOUT_IS_OPEN, payouts.c.id > after)
        return self._found(query.order_by(payouts.c.id).limit(limit))

    def count_payouts(self, party: str, *, after: str) -> int:
        """Return how many pay-outs of a party have an id after this one."""
        query = select(func.count()).where(payouts.c.party == party, payouts.c.id > after)
        return int(self._run(query).scalar() or 0)

    def leaving(self, party: str) -> MicroCredits:
        """Return the sum of a party's pay-outs that are neither confirmed nor returned."""
        query = select(func.sum(payouts.c.amount)).where(payouts.c.party == party, PAYOUT_IS_OPEN)
        return MicroCredits(int(self._run(query).scalar() or 0))

    def _found(self, query: Select[Any]) -> list[Payout]:
        rows = self._run(query).mappings()
        return [Payout(**dict(row) | {"state": PayoutState(row["state"])}) for row in rows]
