"""The Merkle trees over settlements in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from sqlalchemy import bindparam, insert, select, union_all

from fedbourse.market.merkle import Place
from fedbourse.market.records import Allocation
from fedbourse.storage.schema import allocations, nodes
from fedbourse.storage.transaction import BaseTransaction

_AT_ONCE = 10_000
_NODE = select(nodes.c.height, nodes.c.position, nodes.c.hash).where(
    nodes.c.task == bindparam("task")
)
# Positions follow the order of owners, as rows are stored: no other index is needed.
_OF_TASK = select(allocations.c.position, allocations.c.leaf).where(
    allocations.c.task == bindparam("task")
)
_BEFORE = (
    _OF_TASK.where(allocations.c.owner <= bindparam("owner"))
    .order_by(allocations.c.owner.desc())
    .limit(bindparam("before"))
    .subquery()
)
_AFTER = (
    _OF_TASK.where(allocations.c.owner > bindparam("owner"))
    .order_by(allocations.c.owner)
    .limit(bindparam("after"))
    .subquery()
)
_NEAR = union_all(select(_BEFORE), select(_AFTER)).order_by("position")
_LAST = (
    select(allocations.c.position)
    .where(allocations.c.task == bindparam("task"))
    .order_by(allocations.c.owner.desc())
    .limit(1)
)
_ADD = insert(nodes)


class SqlTrees(BaseTransaction):
    """``market.ports.Trees``."""

    def add_nodes(self, task: str, nodes: Iterable[tuple[Place, str]]) -> None:
        rows = (
            {"task": task, "height": height, "position": position, "hash": hash}
            for (height, position), hash in nodes
        )
        while some := list(islice(rows, _AT_ONCE)):
            self._run(_ADD, some)

    def nodes(self, task: str, places: Collection[Place]) -> dict[Place, str]:
        # A union of queries, since SQLite would scan all nodes of the task for a list of places.
        each = (
            _NODE.where(nodes.c.height == height, nodes.c.position == position)
            for height, position in places
        )
        rows = self._run(union_all(*each), {"task": task})
        return {(row.height, row.position): row.hash for row in rows}

    def leaves_near(self, allocation: Allocation, positions: range) -> list[str]:
        before = allocation.position - positions.start + 1
        near = {"before": before, "after": len(positions) - before}
        rows = self._run(_NEAR, near | {"task": allocation.task, "owner": allocation.owner})
        return [row.leaf for row in rows]

    def last_position(self, task: str) -> int:
        return int(self._run(_LAST, {"task": task}).scalar_one())
