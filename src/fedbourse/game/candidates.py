"""Who may take part under any convex cost, from one reading, as long as they are not too many.

Adding owners can only raise the total budget P, and a share falls in P. So whoever stays out of a
subset's equilibrium stays out of the whole one, as with the linear cost; and an owner dearer than
one who stays out stays out too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game.participants import Kept, least, names_of, place_of, together
from fedbourse.game.rules import plain_game
from fedbourse.game.shares import equilibrium_total

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.game.costs import Cost
    from fedbourse.game.stream import Chunk

FIRST = 1 << 14
"""Owners who are kept before anybody is dropped."""


class Candidates:
    """The owners who may take part, one by one."""

    def __init__(self, cost: Cost, reward: float, most: int) -> None:
        """Start with nobody; beyond ``most`` all are given up."""
        self.owners = 0
        self.sources: dict[str, int] = {"": 0}
        self.cheapest_outsider = math.inf
        self.top = math.inf
        """Nobody above this value takes part."""
        self.given_up = False
        self._cost, self._reward, self._most = cost, reward, most
        self._kept: list[Kept] = []
        self._prune_above = FIRST

    def add(self, chunk: Chunk, values: FloatArray) -> None:
        """Add the owners of a chunk, whose values are checked."""
        row = self.sources.setdefault(chunk.source, 0)
        self.sources[chunk.source] += len(values)
        self.owners += len(values)
        if self.given_up:
            return
        first = place_of(list(self.sources).index(chunk.source), row)
        names = names_of(chunk.names, len(values))
        inside = values <= self.top
        self.cheapest_outsider = min(self.cheapest_outsider, least(values[~inside]))
        self._kept.append(Kept(values, first + np.arange(len(values)), names).only(inside))
        size = sum(len(kept.values) for kept in self._kept)
        if size > self._prune_above and self._somebody_may_stay_out(values):
            self._prune()
        elif size > 2 * self._most:
            self.given_up, self._kept = True, []

    def kept(self) -> Kept:
        """Return all who may take part."""
        self._kept = [together(self._kept)]
        return self._kept[0]

    def _somebody_may_stay_out(self, values: FloatArray) -> bool:
        """Say whether the first unit of budget costs anything: where it does not, all take part."""
        return bool(self._cost.marginal(values[:1], np.zeros(1))[0] > 0)

    def _prune(self) -> None:
        kept = self.kept()
        game = plain_game(kept.values, self._cost, self._reward)
        total = equilibrium_total(game)
        inside = game.shares(total) > 0
        self.cheapest_outsider = min(self.cheapest_outsider, least(kept.values[~inside]))
        self.top = min(self.top, self._dearest(total, float(kept.values.max())))
        self._kept = [kept.only(inside)]
        left = len(self._kept[0].values)
        self._prune_above = 2 * max(left, FIRST)
        if left > self._most:
            self.given_up, self._kept = True, []

    def _dearest(self, total: float, high: float) -> float:
        """Return a value above which nobody has a share of the total; infinity if there is none."""
        for _ in range(8):
            if not self._share(high, total):
                break
            high *= 2.0
        else:
            return math.inf
        low = 0.0
        while (high - low) > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self._share(middle, total) else (low, middle)
        return high

    def _share(self, value: float, total: float) -> float:
        return float(self._cost.share(np.array([value]), total, self._reward)[0])
