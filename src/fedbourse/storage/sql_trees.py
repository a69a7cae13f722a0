"""The Merkle trees over settlements in SQL."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, insert, select, union_all

from fedbourse.storage.schema import lines, nodes
from fedbourse.storage.unit import Part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fedbourse.market.merkle import Place
    from fedbourse.market.task import Line

_AT_ONCE = 10_000
_NODE = select(nodes.c.height, nodes.c.position, nodes.c.hash).where(
    nodes.c.task == bindparam("task")
)
# Positions follow the order of names, in which lines lie: those near a line need no other index.
_OF_TASK = select(lines.c.position, lines.c.leaf).where(lines.c.task == bindparam("task"))
_BEFORE = (
    _OF_TASK.where(lines.c.owner <= bindparam("owner"))
    .order_by(lines.c.owner.desc())
    .limit(bindparam("before"))
    .subquery()
)
_BEHIND = (
    _OF_TASK.where(lines.c.owner > bindparam("owner"))
    .order_by(lines.c.owner)
    .limit(bindparam("behind"))
    .subquery()
)
_NEAR = union_all(select(_BEFORE), select(_BEHIND)).order_by("position")
_LAST = (
    select(lines.c.position)
    .where(lines.c.task == bindparam("task"))
    .order_by(lines.c.owner.desc())
    .limit(1)
)
_ADD = insert(nodes)


class SqlTrees(Part):
    """``market.ports.Trees``."""

    def add_nodes(self, task: str, nodes: Iterable[tuple[Place, str]]) -> None:
        """Store the nodes over a settlement's lines."""
        rows = (
            {"task": task, "height": height, "position": position, "hash": hash}
            for (height, position), hash in nodes
        )
        while some := list(islice(rows, _AT_ONCE)):
            self._run(_ADD, some)

    def nodes(self, task: str, places: Collection[Place]) -> dict[Place, str]:
        """Return the nodes at these places."""
        # Not a list of places: SQLite would look at every node of the task for that.
        each = (
            _NODE.where(nodes.c.height == height, nodes.c.position == position)
            for height, position in places
        )
        found = self._run(union_all(*each), {"task": task})
        return {(row.height, row.position): row.hash for row in found}

    def leaves_near(self, line: Line, positions: range) -> list[str]:
        """Return the leaves at those of these positions, around a line's own, that there are."""
        before = line.position - positions.start + 1
        near = {"before": before, "behind": len(positions) - before}
        found = self._run(_NEAR, near | {"task": line.task, "owner": line.owner})
        return [row.leaf for row in found]

    def last_position(self, task: str) -> int:
        """Return the position of a settlement's last line."""
        return int(self._run(_LAST, {"task": task}).scalar_one())
