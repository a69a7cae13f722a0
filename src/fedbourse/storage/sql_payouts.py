"""Pay-outs in SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, Select, and_, func, insert, select, update

from fedbourse.errors import Conflict, NotFound
from fedbourse.market.commands.payouts import PAYOUTS, Payout, PayoutState, PayoutStep
from fedbourse.market.ports import Lock
from fedbourse.storage.schema import PAYOUT_IS_OPEN, PAYOUT_WAITS, payout_steps, payouts, transfers
from fedbourse.storage.transaction import BaseTransaction
from fedbourse.units import MicroCredits

_PROGRESS = ("state", "changed_ms", "note", "steps", "attempts", "trying", "due_ms")


class SqlPayouts(BaseTransaction):
    """``market.money_ports.Payouts``."""

    def add_payout(self, payout: Payout) -> None:
        if not self._add(payouts, asdict(payout)):
            raise Conflict(f"there is a pay-out {payout.id!r:.80} already")

    def payout(self, payout: str, *, lock: Lock = "none") -> Payout:
        query = self._locked(select(payouts).where(payouts.c.id == payout), lock)
        row = self._run(query).first()
        if row is None:
            raise NotFound(f"there is no pay-out {payout!r:.80}")
        return _payout(row)

    def save_payout(self, payout: Payout) -> None:
        progress = {name: getattr(payout, name) for name in _PROGRESS}
        if not self._changed(update(payouts).where(payouts.c.id == payout.id).values(progress)):
            raise NotFound(f"there is no pay-out {payout.id!r:.80}")

    def add_payout_step(self, step: PayoutStep) -> None:
        self._run(insert(payout_steps), asdict(step))

    def payout_steps(self, payout: str) -> list[PayoutStep]:
        query = select(payout_steps).where(payout_steps.c.payout == payout)
        rows = self._run(query.order_by(payout_steps.c.number))
        return [PayoutStep(**{**row._mapping, "state": PayoutState(row.state)}) for row in rows]

    def due_payouts(self, *, now_ms: int, limit: int) -> list[Payout]:
        debited = and_(
            transfers.c.id == "withdrawal/" + payouts.c.id,
            transfers.c.debit == payouts.c.party,
            transfers.c.credit == PAYOUTS,
            transfers.c.amount == payouts.c.amount,
        )
        query = (
            select(payouts).join(transfers, debited).where(PAYOUT_WAITS, payouts.c.due_ms <= now_ms)
        )
        return self._list(query.order_by(payouts.c.id).limit(limit))

    def hurry_payouts(self, *, now_ms: int) -> None:
        self._run(update(payouts).where(PAYOUT_WAITS, payouts.c.trying).values(due_ms=now_ms))

    def payouts(self, party: str, *, before: str | None = None, limit: int) -> list[Payout]:
        query = select(payouts).where(payouts.c.party == party)
        if before is not None:
            query = query.where(payouts.c.id < before)
        return self._list(query.order_by(payouts.c.id.desc()).limit(limit))

    def open_payouts(self, *, after: str = "", limit: int) -> list[Payout]:
        query = select(payouts).where(PAYOUT_IS_OPEN, payouts.c.id > after)
        return self._list(query.order_by(payouts.c.id).limit(limit))

    def count_payouts(self, party: str, *, after: str) -> int:
        query = select(func.count()).where(payouts.c.party == party, payouts.c.id > after)
        return int(self._run(query).scalar() or 0)

    def leaving(self, party: str) -> MicroCredits:
        query = select(func.sum(payouts.c.amount)).where(payouts.c.party == party, PAYOUT_IS_OPEN)
        return MicroCredits(int(self._run(query).scalar() or 0))

    def _list(self, query: Select[Any]) -> list[Payout]:
        return [_payout(row) for row in self._run(query)]


def _payout(row: Row[Any]) -> Payout:
    return Payout(**{**row._mapping, "state": PayoutState(row.state)})
