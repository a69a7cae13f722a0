"""The linear game's participants from one look at an array in memory, without a sort.

A sample spread over the array says where the threshold must lie: below ``low`` everybody will take
part, above ``high`` nobody. One walk through memory, on every core, turns those below into a few
sums and picks out those between, who are decided exactly. The sums also prove whether the guess was
right; if it was not, they say on which side the threshold lies, and the next walk knows better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import (
    BoolArray,
    FloatArray,
    IntArray,
    column,
    positive,
    refuse_bad_bits,
    refuse_first,
)
from fedbourse.game.participants import Kept, Participants, least
from fedbourse.game.rules import too_few
from fedbourse.game.spans import BLOCK, blocks, chosen, on_every_core
from fedbourse.game.threshold import SLACK, Decided, Threshold, climb, threshold

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

SMALL = 1 << 15
"""Below this many owners a sample is not worth its while."""

SAMPLE = 1 << 16
CROWD = 128
"""So many of the sample must take part for their sums to be worth taking."""

_GOLDEN = (math.sqrt(5) - 1) / 2
_SPREAD = 6.0
_WALKS = 6
"""After so many wrong guesses the owners are decided by selection instead."""


def scan(values: object) -> Participants:
    """Return who takes part in the linear game of these owners."""
    data = column("values", values)
    if len(data) < 2:
        raise InvalidGame(too_few(len(data)))
    if len(data) <= SMALL:
        return _among(positive("values", data))
    guess = _Guess.of(data)
    for _ in range(_WALKS):
        walk = _Walk(data, guess.low, guess.high)
        decided = walk.decided
        if not decided.cheapest:
            refuse_first("values", data, data == 0, "a finite number above 0")
        if not decided.gap < decided.cheapest:  # some of those below are out already
            guess = guess.lower(decided.cheapest)
            continue
        found = climb(decided, [walk.between])
        if found.count == 1 + decided.count + len(walk.between) and not guess.proven:
            guess = guess.higher(decided.cheapest)
            continue
        return walk.participants(found)
    return _among(positive("values", data))


def _among(values: FloatArray) -> Participants:
    found = threshold(values)
    inside = values <= found.dearest
    kept = Kept(values, np.arange(len(values))).only(inside)
    return Participants(len(values), found, least(chosen(values, ~inside)), partial(_given, kept))


@dataclass(frozen=True)
class _Guess:
    """Where the threshold may lie, from a sorted sample of the values."""

    sample: FloatArray
    weight: float
    """How many owners one of the sample stands for."""
    low: float
    high: float
    proven: bool
    """Whether it is certain that nobody above ``high`` takes part."""
    least_high: float
    """Nobody above this takes part: proven."""
    spread: float = _SPREAD
    """How many standard deviations of the sample's rank to allow for."""

    @classmethod
    def of(cls, data: npt.NDArray[Any]) -> _Guess:
        """Look at values spread over the data, at another place in each stretch of it."""
        size = min(SAMPLE, max(SMALL // 8, 2 * math.isqrt(len(data))))
        stretches = np.arange(size, dtype=np.float64)
        stretches += stretches * _GOLDEN % 1.0  # no pattern in the data keeps step with this
        places = (stretches * (len(data) / size)).astype(np.int64)
        sample = np.sort(data.take(places).astype(np.float64))
        bound = math.inf
        if sample[0] > 0 and sample[-1] < math.inf:  # otherwise the walk will say where
            bound = threshold(sample).tau * (1 + SLACK)  # a subset bounds the whole
        guess = cls(sample, len(data) / size, 0.0, bound, proven=True, least_high=bound)
        return guess if math.isinf(bound) else guess._around(float(sample[0]))

    def lower(self, cheapest: float) -> _Guess:
        """Guess again: whoever has the value ``low`` is out."""
        below = math.nextafter(self.low, 0.0)
        known = replace(self, least_high=below, spread=4 * self.spread)
        return known._around(cheapest)

    def higher(self, cheapest: float) -> _Guess:
        """Guess again: everybody up to ``high`` takes part."""
        return replace(self, spread=4 * self.spread)._around(cheapest, at_least=self.high)

    def _around(self, cheapest: float, at_least: float = 0.0) -> _Guess:
        """Place both ends around the rank at which the whole game's threshold should stand."""
        below = self.sample[self.sample <= self.least_high]
        heights = self.weight * (below * np.arange(1, len(below) + 1) - np.cumsum(below))
        rank = int(np.searchsorted(heights, cheapest))
        if rank == len(self.sample) and heights[-1] < cheapest / 2 and self.spread == _SPREAD:
            # It seems that everybody takes part: so would somebody dearer than all of them.
            above = below[-1] + cheapest / 4 / (self.weight * rank)
            return replace(self, low=float(above), high=self.least_high, proven=True)
        allowed = int(self.spread * math.sqrt(rank)) + 8
        low = float(below[rank - allowed]) if rank - allowed >= CROWD else 0.0
        low, top = max(low, at_least), rank + allowed
        if top < len(below) and below[top] > low:
            high = float(below[top])
            first, last = np.searchsorted(below, [low, high], side="right")
            if last - first > 4 * allowed + CROWD:  # many have this very value: sum them up
                low = high
            return replace(self, low=low, high=high, proven=False)
        return replace(self, low=low, high=self.least_high, proven=True)


@dataclass(frozen=True)
class _Block:
    """What one block of the array holds."""

    low: int
    high: int
    cheapest: float
    count: int
    """How many values lie at or below the lower end."""
    gap: float
    """The sum of (lower end - v) over them."""
    between: FloatArray
    rows: IntArray
    """Where those between stand; empty where the sums make that useless."""


class _Walk:
    """One walk over all values: sums of those up to ``low``, and those between the two ends."""

    def __init__(self, data: npt.NDArray[Any], low: float, high: float) -> None:
        self.data, self.low, self.high = data, low, high
        self.blocks = [block for span in on_every_core(self._span, len(data)) for block in span]
        self.between = np.concatenate([block.between for block in self.blocks])
        self.decided = self._up_to_low() if low else self._cheapest_alone()

    def participants(self, found: Threshold) -> Participants:
        """Return who takes part, given the threshold."""
        beyond = min(least(chosen(self.between, self.between > found.dearest)), self.high)
        beyond = math.inf if found.count == len(self.data) else beyond
        if self.low:
            again = partial(self._look_again, found)
            return Participants(len(self.data), found, beyond, again, read=self._read)
        rows = np.concatenate([block.rows for block in self.blocks])
        values = np.concatenate([block.between for block in self.blocks])
        kept = Kept(values, rows).only(values <= found.dearest)
        return Participants(len(self.data), found, beyond, partial(_given, kept))

    def _cheapest_alone(self) -> Decided:
        first = int(np.argmin(self.between))
        cheapest = float(self.between[first])
        self.between = np.delete(self.between, first)
        return Decided(cheapest, 0, cheapest, 0.0, cheapest)

    def _up_to_low(self) -> Decided:
        """Sum over all blocks, but without the cheapest owner, whose own gap may be huge."""
        first = min(self.blocks, key=lambda block: block.cheapest)
        values = self._values(first.low, first.high)
        others = np.delete(values, int(np.argmin(values)))
        count = sum(block.count for block in self.blocks) - 1
        gap = sum(block.gap for block in self.blocks if block is not first)
        gap += float((self.low - np.minimum(others, self.low)).sum())
        total = count * self.low - gap + first.cheapest
        return Decided(first.cheapest, count, self.low, gap, total)

    def _look_again(self, found: Threshold) -> Kept:
        """Pick out those who take part, now that somebody asks for them one by one."""
        dearest = np.float64(found.dearest)  # a plain float would be rounded to the data's kind
        rows = np.concatenate(
            on_every_core(
                lambda start, stop: start + np.flatnonzero(self.data[start:stop] <= dearest),
                len(self.data),
            )
        )
        values = self.data.take(rows).astype(np.float64, copy=False)
        total = float(values.sum())
        if len(rows) != found.count or not math.isclose(total, found.total, rel_tol=1e-9):
            raise InvalidGame("the values were changed after their equilibrium was found")
        return Kept(values, rows)

    def _read(self) -> Iterator[FloatArray]:
        for low, high in blocks(0, len(self.data)):
            yield self._values(low, high)

    def _values(self, low: int, high: int) -> FloatArray:
        return np.ascontiguousarray(self.data[low:high], dtype=np.float64)

    def _span(self, start: int, stop: int) -> list[_Block]:
        room, mask = np.empty(BLOCK), np.empty(BLOCK, np.bool_)
        return [
            self._block(low, high, room[: high - low], mask[: high - low])
            for low, high in blocks(start, stop)
        ]

    def _block(self, low: int, high: int, room: FloatArray, mask: BoolArray) -> _Block:
        block = self._values(low, high)
        top = refuse_bad_bits("values", block, low)
        if not self.low:
            inside = np.less_equal(block, self.high, out=mask)
            rows = np.flatnonzero(inside)
            return _Block(low, high, 0.0, 0, 0.0, block.take(rows), rows + low)
        cheapest = float(block.min())
        if top <= self.low:
            gap = float(np.subtract(self.low, block, out=room).sum())
            return _Block(low, high, cheapest, len(block), gap, _NOTHING, _NOWHERE)
        count = int(np.count_nonzero(np.less_equal(block, self.low, out=mask)))
        gap = 0.0
        if count:
            np.minimum(block, self.low, out=room)
            gap = float(np.subtract(self.low, room, out=room).sum())
        between = np.less_equal(block, self.high) & ~mask
        found = chosen(block, between) if between.any() else _NOTHING
        return _Block(low, high, cheapest, count, gap, found, _NOWHERE)


def _given(kept: Kept) -> Kept:
    return kept


_NOTHING, _NOWHERE = np.empty(0), np.empty(0, np.int64)
