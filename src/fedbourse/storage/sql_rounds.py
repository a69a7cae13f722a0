"""Rounds of training, their updates and refusals, statistics and evidence of devices in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    func,
    null,
    select,
    update,
)
from sqlalchemy import Update as UpdateStatement

from fedbourse.errors import Conflict, NotFound
from fedbourse.market.records import (
    ClosedRound,
    DeviceEvidence,
    DeviceStatistics,
    RefusedUpdate,
    Round,
    Update,
)
from fedbourse.storage.schema import (
    device_evidence,
    reference_gradients,
    references,
    refusals,
    rounds,
    updates,
)
from fedbourse.storage.schema import device_statistics as sums
from fedbourse.storage.transaction import BaseTransaction, few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

# A vector has up to 8 MB; only the end of a round reads it.
_UPDATE = [null() if each is updates.c.vector else each for each in updates.c]
_OF_ROUND = rounds.c.task == bindparam("task"), rounds.c.number == bindparam("number")
_ROUND = select(rounds).where(*_OF_ROUND)
_REQUEST = select(rounds.c.request_hash).where(*_OF_ROUND)
_TO_ROUND = updates.c.task == bindparam("task"), updates.c.round == bindparam("round")
_ONE_UPDATE = select(*_UPDATE).where(*_TO_ROUND, updates.c.owner == bindparam("owner"))
_LAST_UPDATE = (
    select(*_UPDATE)
    .where(updates.c.task == bindparam("task"), updates.c.owner == bindparam("owner"))
    .order_by(updates.c.round.desc())
    .limit(1)
)
_COUNT = select(func.count()).select_from(updates).where(*_TO_ROUND)


class SqlRounds(BaseTransaction):
    """``market.ports.Rounds`` and ``EvidenceRecords``."""

    def add_round(self, round: Round) -> None:
        if not self._add(rounds, vars(round)):
            raise Conflict(f"task {round.task} has a round {round.number} already")

    def open_round(self, round: Round) -> None:
        opened = update(rounds).where(_round(round.task, round.number)).values(**vars(round))
        if not self._changed(opened):
            raise _no_round(round.task, round.number)

    def round(self, task: str, number: int) -> Round:
        row = self._run(_ROUND, {"task": task, "number": number}).first()
        if row is None:
            raise _no_round(task, number)
        return Round(*row)

    def sign_round(self, task: str, number: int, signature: str) -> None:
        signed = update(rounds).where(_round(task, number)).values(signature=signature)
        if not self._changed(signed):
            raise _no_round(task, number)

    def has_round(self, task: str, number: int) -> bool:
        return self._run(select(rounds.c.number).where(_round(task, number))).first() is not None

    def request_hash(self, task: str, number: int) -> str:
        row = self._run(_REQUEST, {"task": task, "number": number}).first()
        if row is None:
            raise _no_round(task, number)
        return str(row[0])

    def close_round(
        self, task: str, number: int, *, at_ms: int, updates: int, keep: bool = False
    ) -> None:
        ended = {"closed_ms": at_ms, "updates": updates} | ({} if keep else {"model": b""})
        closed = update(rounds).where(_round(task, number)).values(**ended)
        if not self._changed(closed):
            raise _no_round(task, number)
        if not keep:
            self._run(_drop_vectors(task, number))

    def add_update(self, update: Update) -> None:
        if not self._add(updates, vars(update)):
            raise Conflict(f"{update.owner} has sent an update for round {update.round} already")

    def update(self, task: str, round: int, owner: str) -> Update | None:
        row = self._run(_ONE_UPDATE, {"task": task, "round": round, "owner": owner}).first()
        return row and Update(*row)

    def last_update(self, task: str, owner: str) -> Update | None:
        row = self._run(_LAST_UPDATE, {"task": task, "owner": owner}).first()
        return row and Update(*row)

    def updates(
        self, task: str, round: int, *, after: str = "", limit: int | None = None
    ) -> list[Update]:
        query = select(*_UPDATE).where(_updates(task, round), updates.c.owner > after)
        return [Update(*row) for row in self._run(query.order_by(updates.c.owner).limit(limit))]

    def vectors(
        self,
        task: str,
        round: int,
        *,
        at_once: int,
        after: str = "",
        limit: int | None = None,
    ) -> Iterator[tuple[str, bytes]]:
        query: Select[Any] = select(updates.c.owner, updates.c.vector)
        query = query.where(_updates(task, round)).order_by(updates.c.owner).limit(limit)
        if after:
            query = query.where(updates.c.owner > after)
        with self._run(query.execution_options(yield_per=at_once)) as rows:
            yield from rows

    def count_updates(self, task: str, round: int) -> int:
        return int(self._run(_COUNT, {"task": task, "round": round}).scalar_one())

    def closed_rounds(self, task: str, *, last: int | None = None) -> list[ClosedRound]:
        query = select(rounds.c.number, rounds.c.updates).where(rounds.c.task == task)
        query = query.where(rounds.c.closed_ms.is_not(None)).order_by(rounds.c.number.desc())
        return [ClosedRound(*row) for row in self._run(query.limit(last))][::-1]

    def put_refused_update(self, refused: RefusedUpdate) -> None:
        self._put(refusals, vars(refused))

    def count_refused(self, task: str) -> dict[str, int]:
        query = select(refusals.c.reason, func.count()).where(refusals.c.task == task)
        query = query.group_by(refusals.c.reason).order_by(refusals.c.reason)
        return dict(self._run(query).all())

    def refused_updates(self, task: str, owners: Collection[str]) -> dict[str, dict[str, int]]:
        by = refusals.c.owner, refusals.c.reason
        whose = few(refusals.c.owner.in_(owners), self._sqlite)
        query = select(*by, func.count()).where(refusals.c.task == task, whose)
        counts: dict[str, dict[str, int]] = {}
        for owner, reason, count in self._run(query.group_by(*by).order_by(*by)):
            counts.setdefault(owner, {})[reason] = count
        return counts

    def device_statistics(
        self, task: str, owners: Collection[str] | None = None
    ) -> list[DeviceStatistics]:
        query = select(sums).where(sums.c.task == task).order_by(sums.c.owner)
        if owners is not None:
            query = query.where(sums.c.owner.in_(owners))
        return [DeviceStatistics(*row) for row in self._run(query)]

    def put_device_statistics(self, device_statistics: Iterable[DeviceStatistics]) -> None:
        self._put_all(sums, device_statistics)

    def put_reference(self, task: str, content: bytes) -> None:
        self._put(references, {"task": task, "content": content})

    def has_reference(self, task: str) -> bool:
        query = select(references.c.task).where(references.c.task == task)
        return self._run(query).first() is not None

    def reference(self, task: str) -> bytes:
        row = self._run(select(references.c.content).where(references.c.task == task)).first()
        if row is None:
            raise NotFound(f"task {task!r:.60} has no reference records")
        return bytes(row[0])

    def add_reference_gradient(self, task: str, round: int, content: bytes) -> None:
        gradient = {"task": task, "round": round, "content": content}
        if not self._add(reference_gradients, gradient):
            raise Conflict(f"round {round} of task {task} has a reference gradient already")

    def reference_gradient(self, task: str, round: int) -> bytes | None:
        return self._gradient(
            reference_gradients.c.task == task, reference_gradients.c.round == round
        )

    def first_reference_gradient(self, task: str) -> bytes | None:
        return self._gradient(reference_gradients.c.task == task)

    def _gradient(self, *conditions: ColumnElement[bool]) -> bytes | None:
        query = select(reference_gradients.c.content).where(*conditions)
        row = self._run(query.order_by(reference_gradients.c.round).limit(1)).first()
        return None if row is None else bytes(row[0])

    def device_evidence(self, task: str, block: int | None = None) -> list[DeviceEvidence]:
        query = select(device_evidence).where(device_evidence.c.task == task)
        if block is not None:
            query = query.where(device_evidence.c.block == block)
        query = query.order_by(device_evidence.c.block, device_evidence.c.owner)
        return [DeviceEvidence(*row) for row in self._run(query)]

    def put_device_evidence(self, evidence: Iterable[DeviceEvidence]) -> None:
        self._put_all(device_evidence, evidence)

    def _put_all(self, table: Table, records: Iterable[object]) -> None:
        """Store records, in place of those with the same keys."""
        rows = [dict(vars(each)) for each in records]
        if not rows:
            return
        insert = self._insert(table)
        keys = [each.name for each in table.primary_key]
        changing = [each.name for each in table.c if not each.primary_key]
        self._run(
            insert.on_conflict_do_update(
                index_elements=keys, set_={name: insert.excluded[name] for name in changing}
            ),
            rows,
        )


def _round(task: str, number: int) -> ColumnElement[bool]:
    return and_(rounds.c.task == task, rounds.c.number == number)


def _updates(task: str, round: int) -> ColumnElement[bool]:
    return and_(updates.c.task == task, updates.c.round == round)


def _drop_vectors(task: str, round: int) -> UpdateStatement:
    return update(updates).where(_updates(task, round)).values(vector=None)


def _no_round(task: str, number: int) -> NotFound:
    return NotFound(f"task {task!r:.60} has no round {number}")
