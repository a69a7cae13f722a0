"""Money in SQL: transfers are inserted, and the database itself moves the balances."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Select,
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
from fedbourse.market.task import Entry
from fedbourse.storage.schema import accounts, transfers
from fedbourse.storage.unit import Part
from fedbourse.units import MicroCredits, credits_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_LARGEST = 2**63 - 1

_OPEN_SQLITE = text(
    "INSERT INTO accounts (id, balance) SELECT value, 0 FROM json_each(:names) WHERE true"
    " ON CONFLICT (id) DO NOTHING"
)
# In the order of names, so that two who open the same accounts never wait for each other.
_OPEN_POSTGRESQL = text(
    "INSERT INTO accounts (id, balance) SELECT name, 0 FROM"
    " unnest(CAST(:names AS text[])) WITH ORDINALITY AS given (name, place) ORDER BY place"
    " ON CONFLICT (id) DO NOTHING"
)
_POST_POSTGRESQL = text(
    "INSERT INTO transfers (id, source, target, amount, memo, at_ms)"
    " SELECT id, source, target, amount, memo, :at_ms FROM unnest(CAST(:ids AS text[]),"
    " CAST(:sources AS text[]), CAST(:targets AS text[]), CAST(:amounts AS bigint[]),"
    " CAST(:memos AS text[])) WITH ORDINALITY"
    " AS given (id, source, target, amount, memo, place) ORDER BY place"
)


@lru_cache
def _balances(sqlite: bool) -> Select[Any]:
    query = select(accounts.c.id, accounts.c.balance).where(_among(accounts.c.id, sqlite))
    return query.order_by(accounts.c.id)


@lru_cache
def _contents(sqlite: bool) -> Select[Any]:
    columns = transfers.c
    query = select(columns.id, columns.source, columns.target, columns.amount, columns.memo)
    return query.where(_among(columns.id, sqlite))


def _among(column: ColumnElement[str], sqlite: bool) -> ColumnElement[bool]:
    """Compare a column with any number of names in one parameter."""
    if sqlite:
        each = func.json_each(bindparam("names")).table_valued("value")
        return column.in_(select(each.c.value))
    return column == func.any(bindparam("names"))


class SqlBooks(Part):
    """``market.ports.Books``."""

    def post(self, transfers: Sequence[Transfer], *, at_ms: int) -> int:
        """Move money, all or nothing; return how many of the transfers are new.

        A transfer that was posted before with the same content does nothing; with other content,
        or where an account would be overdrawn, it raises ``InvalidTransfer``. All accounts are
        locked first, in the order of their names, so that two posts never wait for each other.
        """
        wanted = _once(transfers)
        if not wanted:
            return 0
        names = sorted({name for t in wanted.values() for name in (t.source, t.target)})
        balances = self._lock_accounts(names)
        known = self._posted(list(wanted))
        for transfer in wanted.values():
            _refuse_other_content(known.get(transfer.id), transfer)
        fresh = [transfer for transfer in wanted.values() if transfer.id not in known]
        _refuse_overdraft(fresh, balances)
        self._insert_transfers(fresh, at_ms)
        return len(fresh)

    def entry(self, transfer: str) -> Entry:
        """Return a transfer by its id, or raise ``NotFound``."""
        row = self._run(select(transfers).where(transfers.c.id == transfer)).one_or_none()
        if row is None:
            raise NotFound(f"there is no transfer {transfer!r:.110}")
        return Entry(*row)

    def _lock_accounts(self, names: list[str]) -> dict[str, int]:
        """Open the accounts that are new, lock all, and return what they hold."""
        if self._sqlite:
            self._run(_OPEN_SQLITE, {"names": json.dumps(names)})
        else:
            self._run(_OPEN_POSTGRESQL, {"names": names})
        query = self._locked(_balances(self._sqlite), "change")
        rows = self._run(query, self._names(names))
        return {row.id: row.balance for row in rows}

    def _posted(self, ids: list[str]) -> dict[str, Transfer]:
        """Return those of these transfers that the books hold already."""
        rows = self._run(_contents(self._sqlite), self._names(ids))
        return {row.id: Transfer(*row) for row in rows}

    def _names(self, names: list[str]) -> dict[str, Any]:
        return {"names": json.dumps(names) if self._sqlite else names}

    def _insert_transfers(self, fresh: list[Transfer], at_ms: int) -> None:
        if not fresh:
            return
        if self._sqlite:
            self._run(insert(transfers), [vars(each) | {"at_ms": at_ms} for each in fresh])
            return
        try:
            self._run(
                _POST_POSTGRESQL,
                {
                    "at_ms": at_ms,
                    "ids": [each.id for each in fresh],
                    "sources": [each.source for each in fresh],
                    "targets": [each.target for each in fresh],
                    "amounts": [each.amount for each in fresh],
                    "memos": [each.memo for each in fresh],
                },
            )
        except Conflict as error:
            # Somebody posted one of the ids at this moment, between other accounts.
            raise InvalidTransfer(
                f"one of {len(fresh)} transfers was posted before with other content"
            ) from error

    def balance(self, account: str) -> MicroCredits:
        """Return what an account holds; 0 where there is none."""
        query = select(accounts.c.balance).where(accounts.c.id == account)
        return MicroCredits(self._run(query).scalar() or 0)

    def balances_of(self, accounts: Collection[str]) -> dict[str, MicroCredits]:
        """Return what these accounts hold; those that do not exist are left out."""
        rows = self._run(_balances(self._sqlite), self._names(list(accounts)))
        return {row.id: MicroCredits(row.balance) for row in rows}

    def balances(self, *, after: str = "", limit: int) -> list[tuple[str, MicroCredits]]:
        """Return accounts and what they hold, by name."""
        query = select(accounts).where(accounts.c.id > after).order_by(accounts.c.id).limit(limit)
        return [(name, MicroCredits(balance)) for name, balance in self._run(query)]

    def unbalanced(self) -> list[str]:
        """Return accounts whose balance is not what their transfers leave."""
        moved = union_all(
            select(transfers.c.target.label("id"), transfers.c.amount.label("amount")),
            select(transfers.c.source.label("id"), (-transfers.c.amount).label("amount")),
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
        """Return transfers in the order of posting, of one account or of all."""
        query = select(transfers).where(transfers.c.sequence > after)
        query = query.order_by(transfers.c.sequence).limit(limit)
        if account is not None:
            # Two short walks along an index each, in place of a long one along neither.
            sides = [
                select(query.where(column == account).subquery())
                for column in (transfers.c.source, transfers.c.target)
            ]
            both = union_all(*sides).subquery()
            query = select(both).order_by(both.c.sequence).limit(limit)
        return [Entry(*row) for row in self._run(query)]

    def last_entries(self, account: str, *, skip: int, limit: int) -> tuple[list[Entry], int]:
        """Return an account's transfers, newest first, and how much those skipped have moved."""
        newest = select(transfers).order_by(transfers.c.sequence.desc()).limit(skip + limit)
        sides = [
            select(newest.where(column == account).subquery())
            for column in (transfers.c.source, transfers.c.target)
        ]
        both = union_all(*sides).subquery()
        query = select(both).order_by(both.c.sequence.desc())
        skipped = query.limit(skip).subquery()
        moved = case((skipped.c.target == account, skipped.c.amount), else_=-skipped.c.amount)
        later = self._run(select(func.sum(moved))).scalar() if skip else 0
        rows = self._run(query.offset(skip).limit(limit))
        return [Entry(*row) for row in rows], int(later or 0)

    def last_transfer(self) -> int:
        """Return the number of the newest transfer; 0 where there is none."""
        return int(self._run(select(func.max(transfers.c.sequence))).scalar() or 0)

    def earned(self, account: str) -> MicroCredits:
        """Return all that escrow accounts ever paid to this one."""
        paid = transfers.c.target == account, transfers.c.source.startswith("escrow:")
        total = self._run(select(func.sum(transfers.c.amount)).where(*paid)).scalar()
        return MicroCredits(int(total or 0))

    def count_entries(self, account: str) -> int:
        """Return how many transfers an account has had."""
        sides = (transfers.c.source, transfers.c.target)
        counts = (select(func.count()).where(column == account) for column in sides)
        return sum(self._run(count).scalar() or 0 for count in counts)

    def moved(self, transfers: Collection[str]) -> dict[str, MicroCredits]:
        """Return the amounts of those of these transfers that were posted, by their ids."""
        return {id: posted.amount for id, posted in self._posted(list(transfers)).items()}


def _once(given: Iterable[Transfer]) -> dict[str, Transfer]:
    """Return transfers by id; the same one twice counts once."""
    wanted: dict[str, Transfer] = {}
    for transfer in given:
        _refuse_other_content(wanted.setdefault(transfer.id, transfer), transfer)
    return wanted


def _refuse_other_content(known: Transfer | None, transfer: Transfer) -> None:
    if known is not None and known != transfer:
        raise InvalidTransfer(
            f"transfer {transfer.id!r} was posted before with other content: {known}"
        )


def _refuse_overdraft(fresh: list[Transfer], balances: dict[str, int]) -> None:
    """Go through transfers one by one, as a book does, and refuse what the money does not allow."""
    held = dict(balances)
    for transfer in fresh:
        source = held[transfer.source]
        if transfer.source != OUTSIDE and source < transfer.amount:
            raise InvalidTransfer(
                f"account {transfer.source!r} holds {credits_text(source)} credits, less than "
                f"the {credits_text(transfer.amount)} to move"
            )
        held[transfer.source] -= transfer.amount
        held[transfer.target] += transfer.amount
        if max(abs(held[transfer.source]), held[transfer.target]) > _LARGEST:
            raise InvalidTransfer(
                f"transfer {transfer.id!r} of {credits_text(transfer.amount)} credits would leave "
                f"more in an account than the {credits_text(_LARGEST)} that the books can hold"
            )
