"""The linear game's participants from one look at an array in memory, without a sort.

A sample spread over the array says where the cutoff must lie: below ``low`` everybody will take
part, above ``high`` nobody. One pass through memory, on every core, turns those below into a few
sums and picks out those between, who are decided exactly. The sums also prove whether the bracket
was right; if it was not, they say on which side the cutoff lies, and the next pass is narrower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidGame
from fedbourse.game.array_spans import BLOCK, blocks, on_every_core, select
from fedbourse.game.columns import (
    BoolArray,
    FloatArray,
    IntArray,
    column,
    positive,
    refuse_bad_bits,
    refuse_first,
)
from fedbourse.game.cutoff import SLACK, CutoffRecord, ParticipantSums, find_cutoff, select_cutoff
from fedbourse.game.game import too_few
from fedbourse.game.participants import OwnerTable, ParticipantSet, smallest

SMALL = 1 << 15
"""Below this many owners a sample is not worth its while."""

SAMPLE = 1 << 16
SUMMED_MIN = 128
"""So many of the sample must take part for their sums to be worth taking."""

_GOLDEN = (math.sqrt(5) - 1) / 2
_SPREAD = 6.0
_PASSES_MAX = 6
"""After so many wrong brackets the owners are decided by selection instead."""


def scan(values: object) -> ParticipantSet:
    """Return who takes part in the linear game of these owners."""
    data = column("values", values)
    if len(data) < 2:
        raise InvalidGame(too_few(len(data)))
    if len(data) > SMALL:
        bracket = _Bracket.of(data)
        for _ in range(_PASSES_MAX):
            one_pass = _Pass(data, bracket.low, bracket.high)
            sums = one_pass.sums
            if not sums.cheapest:
                refuse_first("values", data, data == 0, "a finite number above 0")
            if not sums.gap < sums.cheapest:  # some of those below are out already
                bracket = bracket.lower(sums.cheapest)
                continue
            cutoff = select_cutoff(sums, [one_pass.between])
            if cutoff.count == 1 + sums.count + len(one_pass.between) and not bracket.proven:
                bracket = bracket.higher(sums.cheapest)
                continue
            return one_pass.participants(cutoff)
    return _by_selection(positive("values", data))


def _by_selection(values: FloatArray) -> ParticipantSet:
    cutoff = find_cutoff(values)
    inside = values <= cutoff.highest
    table = OwnerTable(values, np.arange(len(values))).only(inside)
    return ParticipantSet(len(values), cutoff, smallest(select(values, ~inside)), table)


@dataclass(frozen=True)
class _Bracket:
    """Where the cutoff may lie, from a sorted sample of the values."""

    sample: FloatArray
    multiplicity: float
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
    def of(cls, data: npt.NDArray[Any]) -> _Bracket:
        """Look at values spread over the data, at another place in each stretch of it."""
        size = min(SAMPLE, max(SMALL // 8, 2 * math.isqrt(len(data))))
        stretches = np.arange(size, dtype=np.float64)
        stretches += stretches * _GOLDEN % 1.0  # no pattern in the data keeps step with this
        places = (stretches * (len(data) / size)).astype(np.int64)
        sample = np.sort(data.take(places).astype(np.float64))
        bound = math.inf
        if sample[0] > 0 and sample[-1] < math.inf:  # otherwise the pass will say where
            bound = find_cutoff(sample).tau * (1 + SLACK)  # a subset bounds the whole
        bracket = cls(sample, len(data) / size, 0.0, bound, proven=True, least_high=bound)
        return bracket if math.isinf(bound) else bracket._around(float(sample[0]))

    def lower(self, cheapest: float) -> _Bracket:
        """Try again: whoever has the value ``low`` is out."""
        below = math.nextafter(self.low, 0.0)
        return replace(self, least_high=below, spread=4 * self.spread)._around(cheapest)

    def higher(self, cheapest: float) -> _Bracket:
        """Try again: everybody up to ``high`` takes part."""
        return replace(self, spread=4 * self.spread)._around(cheapest, at_least=self.high)

    def _around(self, cheapest: float, at_least: float = 0.0) -> _Bracket:
        """Place both ends around the rank at which the whole game's cutoff should lie."""
        below = self.sample[self.sample <= self.least_high]
        heights = self.multiplicity * (below * np.arange(1, len(below) + 1) - np.cumsum(below))
        rank = int(np.searchsorted(heights, cheapest))
        if rank == len(self.sample) and heights[-1] < cheapest / 2 and self.spread == _SPREAD:
            # It seems that everybody takes part: so would somebody of a still higher value.
            above = below[-1] + cheapest / 4 / (self.multiplicity * rank)
            return replace(self, low=float(above), high=self.least_high, proven=True)
        allowed = int(self.spread * math.sqrt(rank)) + 8
        low = float(below[rank - allowed]) if rank - allowed >= SUMMED_MIN else 0.0
        low, top = max(low, at_least), rank + allowed
        if top < len(below) and below[top] > low:
            high = float(below[top])
            first, last = np.searchsorted(below, [low, high], side="right")
            if last - first > 4 * allowed + SUMMED_MIN:  # many have this very value: sum them up
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
    between: FloatArray = field(default_factory=lambda: np.empty(0))
    rows: IntArray | None = None
    """Where those between stand; None where the sums make that useless."""


class _Pass:
    """One pass over all values: sums of those up to ``low``, and those between the two ends."""

    def __init__(self, data: npt.NDArray[Any], low: float, high: float) -> None:
        self.data, self.low, self.high = data, low, high
        self.blocks = [block for span in on_every_core(self._span, len(data)) for block in span]
        self.between = np.concatenate([block.between for block in self.blocks])
        self.sums = self._up_to_low() if low else self._cheapest_alone()

    def participants(self, cutoff: CutoffRecord) -> ParticipantSet:
        """Return who takes part, given the cutoff."""
        beyond = min(smallest(select(self.between, self.between > cutoff.highest)), self.high)
        beyond = math.inf if cutoff.count == len(self.data) else beyond
        if self.low:
            members = partial(self._members, cutoff)
            return ParticipantSet(len(self.data), cutoff, beyond, members, read=self._read)
        rows = np.concatenate([block.rows for block in self.blocks if block.rows is not None])
        values = np.concatenate([block.between for block in self.blocks])
        table = OwnerTable(values, rows).only(values <= cutoff.highest)
        return ParticipantSet(len(self.data), cutoff, beyond, table)

    def _cheapest_alone(self) -> ParticipantSums:
        first = int(np.argmin(self.between))
        cheapest = float(self.between[first])
        self.between = np.delete(self.between, first)
        return ParticipantSums.of_cheapest(cheapest)

    def _up_to_low(self) -> ParticipantSums:
        """Sum over all blocks, but without the cheapest owner, whose own gap may be huge."""
        first = min(self.blocks, key=lambda block: block.cheapest)
        values = self._values(first.low, first.high)
        others = np.delete(values, int(np.argmin(values)))
        count = sum(block.count for block in self.blocks) - 1
        gap = sum(block.gap for block in self.blocks if block is not first)
        gap += float((self.low - np.minimum(others, self.low)).sum())
        total = count * self.low - gap + first.cheapest
        return ParticipantSums(first.cheapest, count, self.low, gap, total)

    def _members(self, cutoff: CutoffRecord) -> OwnerTable:
        """List those who take part, by another look at the array."""
        highest = np.float64(cutoff.highest)  # a plain float would be rounded to the data's kind
        rows = np.concatenate(
            on_every_core(
                lambda start, stop: start + np.flatnonzero(self.data[start:stop] <= highest),
                len(self.data),
            )
        )
        values = self.data.take(rows).astype(np.float64, copy=False)
        total = float(values.sum())
        if len(rows) != cutoff.count or not math.isclose(total, cutoff.total, rel_tol=1e-9):
            raise InvalidGame("the values were changed after their equilibrium was found")
        return OwnerTable(values, rows)

    def _read(self) -> Iterator[FloatArray]:
        for low, high in blocks(0, len(self.data)):
            yield self._values(low, high)

    def _values(self, low: int, high: int) -> FloatArray:
        return np.ascontiguousarray(self.data[low:high], dtype=np.float64)

    def _span(self, start: int, stop: int) -> list[_Block]:
        buffer, mask = np.empty(BLOCK), np.empty(BLOCK, np.bool_)
        return [
            self._block(low, high, buffer[: high - low], mask[: high - low])
            for low, high in blocks(start, stop)
        ]

    def _block(self, low: int, high: int, buffer: FloatArray, mask: BoolArray) -> _Block:
        block = self._values(low, high)
        top = refuse_bad_bits("values", block, low)
        if not self.low:
            rows = np.flatnonzero(np.less_equal(block, self.high, out=mask))
            return _Block(low, high, 0.0, 0, 0.0, block.take(rows), rows + low)
        cheapest = float(block.min())
        if top <= self.low:
            gap = float(np.subtract(self.low, block, out=buffer).sum())
            return _Block(low, high, cheapest, len(block), gap)
        count = int(np.count_nonzero(np.less_equal(block, self.low, out=mask)))
        gap = 0.0
        if count:
            np.minimum(block, self.low, out=buffer)
            gap = float(np.subtract(self.low, buffer, out=buffer).sum())
        between = select(block, np.less_equal(block, self.high) & ~mask)
        return _Block(low, high, cheapest, count, gap, between)
