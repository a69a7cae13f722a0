"""Who may take part under any convex cost, from one reading, as long as they are not too many.

Adding owners can only raise the total budget P, and a share falls in P. So whoever stays out of a
subset's equilibrium stays out of the whole one, as with the linear cost, and so does everybody of a
higher value.
"""

from __future__ import annotations

import math

import numpy as np

from fedbourse.game.columns import BoolArray, FloatArray
from fedbourse.game.costs import Cost
from fedbourse.game.game import equilibrium_total, plain_game
from fedbourse.game.outofcore.stream import Chunk
from fedbourse.game.participants import OwnerTable, checked_names, place_of, smallest

FIRST = 1 << 14
"""Owners who are held before any is dropped."""


class Candidates:
    """The owners who may take part, individually."""

    def __init__(self, cost: Cost, reward: float, most: int) -> None:
        self.sources: dict[str, int] = {"": 0}
        self.cheapest_outsider = math.inf
        self.top = math.inf
        """Nobody above this value takes part."""
        self.too_many = False
        self._cost, self._reward, self._most = cost, reward, most
        self._tables: list[OwnerTable] = []
        self._prune_above = FIRST

    def add(self, chunk: Chunk, values: FloatArray) -> None:
        """Add the owners of a chunk, whose values are checked."""
        row = self.sources.setdefault(chunk.source, 0)
        self.sources[chunk.source] += len(values)
        if self.too_many:
            return
        first = place_of(list(self.sources).index(chunk.source), row)
        table = OwnerTable(
            values, first + np.arange(len(values)), checked_names(chunk.names, len(values))
        )
        self._tables.append(self._drop(table, values <= self.top))
        size = sum(len(table.values) for table in self._tables)
        if size > self._prune_above and self._somebody_may_stay_out(values):
            self._prune()
        elif size > 2 * self._most:
            self.too_many, self._tables = True, []

    def table(self) -> OwnerTable:
        """Return all who may take part."""
        self._tables = [OwnerTable.concat(self._tables)]
        return self._tables[0]

    def _somebody_may_stay_out(self, values: FloatArray) -> bool:
        """Say whether the first unit of budget costs anything: where it does not, all take part."""
        return bool(self._cost.marginal(values[:1], np.zeros(1))[0] > 0)

    def _drop(self, table: OwnerTable, inside: BoolArray) -> OwnerTable:
        self.cheapest_outsider = min(self.cheapest_outsider, smallest(table.values[~inside]))
        return table.only(inside)

    def _prune(self) -> None:
        table = self.table()
        game = plain_game(table.values, self._cost, self._reward)
        total = equilibrium_total(game)
        self._tables = [self._drop(table, game.shares(total) > 0)]
        self.top = min(self.top, self._highest_value(total, float(table.values.max())))
        left = len(self._tables[0].values)
        self._prune_above = 2 * max(left, FIRST)
        if left > self._most:
            self.too_many, self._tables = True, []

    def _highest_value(self, total: float, high: float) -> float:
        """Return a value above which nobody has a share of the total; infinity if there is none."""

        def has_share(value: float) -> bool:
            return bool(self._cost.share(np.array([value]), total, self._reward)[0])

        for _ in range(8):
            if not has_share(high):
                break
            high *= 2.0
        else:
            return math.inf
        low = 0.0
        while (high - low) > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if has_share(middle) else (low, middle)
        return high
