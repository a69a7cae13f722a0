"""Money in SQL: transfers are inserted, and the database itself moves the balances."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    bindparam,
    case,
    func,
    insert,
    select,
    text,
    union_all,
)

from fedbourse.errors import Conflict, InvalidTransfer, NotFound
from fedbourse.ledger import OUTSIDE, Transfer
from fedbourse.market.records import Entry, State
from fedbourse.storage.schema import accounts, tasks, transfers
from fedbourse.storage.transaction import BaseTransaction
from fedbourse.units import MicroCredits, credits_text

_LARGEST = 2**63 - 1

_OPEN_SQLITE = text(
    "INSERT INTO accounts (id, balance) SELECT value, 0 FROM json_each(:names) WHERE true"
    " ON CONFLICT (id) DO NOTHING"
)
# In the order of names, so that two transactions never wait for each other.
_OPEN_POSTGRESQL = text(
    "INSERT INTO accounts (id, balance) SELECT name, 0 FROM"
    " unnest(CAST(:names AS text[])) WITH ORDINALITY AS account (name, place) ORDER BY place"
    " ON CONFLICT (id) DO NOTHING"
)
_POST_POSTGRESQL = text(
    "INSERT INTO transfers (id, debit, credit, amount, memo, at_ms)"
    " SELECT id, debit, credit, amount, memo, :at_ms FROM unnest(CAST(:ids AS text[]),"
    " CAST(:debits AS text[]), CAST(:credits AS text[]), CAST(:amounts AS bigint[]),"
    " CAST(:memos AS text[])) WITH ORDINALITY"
    " AS transfer (id, debit, credit, amount, memo, place) ORDER BY place"
)


@lru_cache
def _balances(sqlite: bool) -> Select[Any]:
    query = select(accounts.c.id, accounts.c.balance).where(_among(accounts.c.id, sqlite))
    return query.order_by(accounts.c.id)


@lru_cache
def _contents(sqlite: bool) -> Select[Any]:
    columns = transfers.c
    query = select(columns.id, columns.debit, columns.credit, columns.amount, columns.memo)
    return query.where(_among(columns.id, sqlite))


def _among(column: ColumnElement[str], sqlite: bool) -> ColumnElement[bool]:
    """Compare a column with any number of names in one parameter."""
    if sqlite:
        each = func.json_each(bindparam("names")).table_valued("value")
        return column.in_(select(each.c.value))
    return column == func.any(bindparam("names"))


class SqlBooks(BaseTransaction):
    """``market.money_ports.Books``."""

    def post(self, transfers: Sequence[Transfer], *, at_ms: int) -> int:
        by_id: dict[str, Transfer] = {}
        for transfer in transfers:
            _refuse_other_content(by_id.setdefault(transfer.id, transfer), transfer)
        if not by_id:
            return 0
        # All are locked first, in the order of names, so that two posts never wait for each other.
        names = sorted({name for t in by_id.values() for name in (t.debit, t.credit)})
        balances = self._lock_accounts(names)
        posted = self._posted(list(by_id))
        for id, transfer in posted.items():
            _refuse_other_content(transfer, by_id[id])
        new = [transfer for transfer in by_id.values() if transfer.id not in posted]
        _refuse_overdraft(new, balances)
        self._insert_transfers(new, at_ms)
        return len(new)

    def entry(self, transfer: str) -> Entry:
        row = self._run(select(transfers).where(transfers.c.id == transfer)).one_or_none()
        if row is None:
            raise NotFound(f"there is no transfer {transfer!r:.110}")
        return Entry(*row)

    def _lock_accounts(self, names: list[str]) -> dict[str, int]:
        """Open the accounts that are new, lock all, and return what they hold."""
        self._run(_OPEN_SQLITE if self._sqlite else _OPEN_POSTGRESQL, self._names(names))
        query = self._locked(_balances(self._sqlite), "change")
        rows = self._run(query, self._names(names))
        return {row.id: row.balance for row in rows}

    def _posted(self, ids: list[str]) -> dict[str, Transfer]:
        """Return the transfers of these ids that were posted before."""
        rows = self._run(_contents(self._sqlite), self._names(ids))
        return {row.id: Transfer(*row) for row in rows}

    def _names(self, names: list[str]) -> dict[str, Any]:
        return {"names": json.dumps(names) if self._sqlite else names}

    def _insert_transfers(self, new: list[Transfer], at_ms: int) -> None:
        if not new:
            return
        if self._sqlite:
            self._run(insert(transfers), [vars(each) | {"at_ms": at_ms} for each in new])
            return
        names = ("id", "debit", "credit", "amount", "memo")
        columns = {f"{name}s": [getattr(each, name) for each in new] for name in names}
        try:
            self._run(_POST_POSTGRESQL, columns | {"at_ms": at_ms})
        except Conflict as error:
            # Another transaction posted one of the ids at the same time, between other accounts.
            raise InvalidTransfer(
                f"one of {len(new)} transfers was posted before with other content"
            ) from error

    def balance(self, account: str) -> MicroCredits:
        query = select(accounts.c.balance).where(accounts.c.id == account)
        return MicroCredits(self._run(query).scalar() or 0)

    def balances_of(self, accounts: Collection[str]) -> dict[str, MicroCredits]:
        rows = self._run(_balances(self._sqlite), self._names(list(accounts)))
        return {row.id: MicroCredits(row.balance) for row in rows}

    def balances(self, *, after: str = "", limit: int) -> list[tuple[str, MicroCredits]]:
        query = select(accounts).where(accounts.c.id > after).order_by(accounts.c.id).limit(limit)
        return [(name, MicroCredits(balance)) for name, balance in self._run(query)]

    def unbalanced(self) -> list[str]:
        moved = union_all(
            select(transfers.c.credit.label("id"), transfers.c.amount.label("amount")),
            select(transfers.c.debit.label("id"), (-transfers.c.amount).label("amount")),
        ).subquery()
        sums = select(moved.c.id, func.sum(moved.c.amount).label("held")).group_by(moved.c.id)
        left = sums.subquery()
        query = (
            select(accounts.c.id)
            .join(left, left.c.id == accounts.c.id, isouter=True)
            .where(accounts.c.balance != func.coalesce(left.c.held, 0))
            .order_by(accounts.c.id)
        )
        return [str(row[0]) for row in self._run(query)]

    def entries(self, *, account: str | None = None, after: int = 0, limit: int) -> list[Entry]:
        query = select(transfers).where(transfers.c.sequence > after)
        query = query.order_by(transfers.c.sequence).limit(limit)
        if account is not None:
            both = _either_side(query, account)
            query = select(both).order_by(both.c.sequence).limit(limit)
        return [Entry(*row) for row in self._run(query)]

    def last_entries(self, account: str, *, skip: int, limit: int) -> tuple[list[Entry], int]:
        newest = select(transfers).order_by(transfers.c.sequence.desc()).limit(skip + limit)
        both = _either_side(newest, account)
        query = select(both).order_by(both.c.sequence.desc())
        skipped = query.limit(skip).subquery()
        moved = case((skipped.c.credit == account, skipped.c.amount), else_=-skipped.c.amount)
        later = self._run(select(func.sum(moved))).scalar() if skip else 0
        rows = self._run(query.offset(skip).limit(limit))
        return [Entry(*row) for row in rows], int(later or 0)

    def last_transfer(self) -> int:
        return int(self._run(select(func.max(transfers.c.sequence))).scalar() or 0)

    def count_entries(self, account: str, *, at_most: int | None = None) -> int:
        count = 0
        for column in (transfers.c.debit, transfers.c.credit):
            some = select(column).where(column == account).limit(at_most).subquery()
            count += self._run(select(func.count()).select_from(some)).scalar_one()
        return count if at_most is None else min(count, at_most)

    def held_for(self, buyer: str, states: Collection[State]) -> MicroCredits:
        both = tasks.join(accounts, accounts.c.id == "escrow:" + tasks.c.id)
        own = tasks.c.buyer == buyer, tasks.c.state.in_([str(state) for state in states])
        total = select(func.sum(accounts.c.balance)).select_from(both).where(*own)
        return MicroCredits(int(self._run(total).scalar() or 0))

    def moved_for(self, buyer: str, ends: Collection[str]) -> dict[str, MicroCredits]:
        amounts = {}
        for end in ends:
            both = tasks.join(transfers, transfers.c.id == tasks.c.id + f"/{end}")
            total = select(func.sum(transfers.c.amount)).select_from(both)
            amount = self._run(total.where(tasks.c.buyer == buyer)).scalar()
            amounts[end] = MicroCredits(int(amount or 0))
        return amounts

    def moved(self, transfers: Collection[str]) -> dict[str, MicroCredits]:
        return {id: posted.amount for id, posted in self._posted(list(transfers)).items()}


def _either_side(query: Select[Any], account: str) -> Subquery:
    """Return the transfers of an account: two short index scans, in place of a long one."""
    sides = (
        select(query.where(column == account).subquery())
        for column in (transfers.c.debit, transfers.c.credit)
    )
    return union_all(*sides).subquery()


def _refuse_other_content(posted: Transfer, transfer: Transfer) -> None:
    if posted != transfer:
        raise InvalidTransfer(
            f"transfer {transfer.id!r} was posted before with other content: {posted}"
        )


def _refuse_overdraft(new: list[Transfer], balances: dict[str, int]) -> None:
    """Apply transfers one by one, as a ledger does, and refuse an overdraft or an overflow."""
    held = dict(balances)
    for transfer in new:
        balance = held[transfer.debit]
        if transfer.debit != OUTSIDE and balance < transfer.amount:
            raise InvalidTransfer(
                f"account {transfer.debit!r} holds {credits_text(balance)} credits, less than "
                f"the {credits_text(transfer.amount)} to move"
            )
        held[transfer.debit] -= transfer.amount
        held[transfer.credit] += transfer.amount
        if max(abs(held[transfer.debit]), held[transfer.credit]) > _LARGEST:
            raise InvalidTransfer(
                f"transfer {transfer.id!r} of {credits_text(transfer.amount)} credits would leave "
                f"more in an account than the {credits_text(_LARGEST)} that the books can hold"
            )
