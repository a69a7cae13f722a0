"""The equilibrium of owners whose values come in chunks: few readings, constant memory.

The linear cost takes one reading; where a crowd of nearly equal owners stands at the threshold, one
or two more that look at this crowd alone.

Every other cost needs the total P at which all shares sum to 1. The first reading counts owners in
cells of relative width 2^-10, which places P to some seven digits; each further reading is one sum,
that of all shares at P, and gains seven more, for the slope is known from the cells. So it takes
three readings: the cells, a correction, and its proof. The certificate, when it is asked for, takes
two: the total of all budgets, and everybody's gain from deviating.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.certificate import regrets_against
from fedbourse.game.columns import FloatArray, column, refuse_bad_bits, refuse_first
from fedbourse.game.costs import Cost, Custom, Linear
from fedbourse.game.crowd import Split
from fedbourse.game.participants import Kept, names_of, place_of, together
from fedbourse.game.profile import Equilibrium, Profile, check, labels, linear_equilibrium
from fedbourse.game.roots import falling_root
from fedbourse.game.rules import Game, all_but, checked_reward, too_few
from fedbourse.game.spans import blocks
from fedbourse.game.stream import ONCE_ONLY, Stream
from fedbourse.game.support import KEPT, Support, too_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READINGS = 6
"""Readings after which a total that does not settle is given up; three are the rule."""

_SETTLED = 1e-13
"""A relative change of the total that counts as none."""


def streamed_equilibrium(stream: Stream, *, reward: float, cost: Cost) -> Equilibrium:
    """Return the equilibrium of all owners of a stream, without caps and entry costs."""
    amount = checked_reward(reward)
    if isinstance(cost, Linear):
        support = support_of(stream)
        found = support.participants()
        if not (support.crowded and stream.again):
            return linear_equilibrium(found, reward=amount)
        return linear_equilibrium(
            replace(found, read=partial(values_of, stream)),
            reward=amount,
            certify=partial(_certified, stream, cost),
        )
    return _convex(stream, amount, cost)


def support_of(stream: Stream) -> Support:
    """Read a stream once, and again only where a crowd stands at the threshold."""
    support = Support()
    for chunk in stream.chunks():
        support.add(chunk.values, names=chunk.names, source=chunk.source)
    while stream.again and (crowd := support.in_question()) is not None:
        counted = Split(crowd)
        for block in values_of(stream):
            counted.add(block)
        support.split(counted)
    return support


def values_of(stream: Stream) -> Iterator[FloatArray]:
    """Yield all values of a stream in blocks, checked."""
    rows: dict[str, int] = {}
    for chunk in stream.chunks():
        data = column("values", chunk.values)
        row = rows.setdefault(chunk.source, 0)
        rows[chunk.source] += len(data)
        where = f" of {chunk.source}" if chunk.source else ""
        for low, high in blocks(0, len(data)):
            block = np.ascontiguousarray(data[low:high], dtype=np.float64)
            refuse_bad_bits("values", block, row + low, where)
            wanted = "a finite number above 0"
            refuse_first("values", block, block == 0, wanted, start=row + low, where=where)
            yield block


class Cells:
    """How many owners have which value, to a relative 2^-10: 48 MB, whatever their number."""

    _SHIFT = np.uint64(42)

    def __init__(self) -> None:
        """Start with nobody."""
        self.owners, self.least, self.largest = 0, math.inf, 0.0
        self._counts = np.zeros(1 << 21)
        self._offsets = np.zeros(1 << 21)

    def add(self, values: FloatArray) -> None:
        """Count more owners."""
        bits = values.view(np.uint64)
        cells = (bits >> self._SHIFT).astype(np.int64)
        offsets = (bits & np.uint64((1 << 42) - 1)).astype(np.float64)
        low, high = int(cells.min()), int(cells.max()) + 1
        cells -= low
        self._counts[low:high] += np.bincount(cells, minlength=high - low)
        self._offsets[low:high] += np.bincount(cells, weights=offsets, minlength=high - low)
        self.owners += len(values)
        self.least = min(self.least, float(values.min()))
        self.largest = max(self.largest, float(values.max()))

    def others(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean value of each cell and its number of owners, the cheapest left out."""
        counts, offsets = self._counts.copy(), self._offsets.copy()
        bits = int(np.float64(self.least).view(np.uint64))
        counts[bits >> 42] -= 1
        offsets[bits >> 42] -= bits & ((1 << 42) - 1)
        filled = np.flatnonzero(counts)
        lows = (filled.astype(np.uint64) << self._SHIFT).view(np.float64)
        return lows + np.spacing(lows) * (offsets[filled] / counts[filled]), counts[filled]


@dataclass(frozen=True)
class _Shares:
    """Everybody's share of a total: of the cheapest owner apart, who may hold nearly all."""

    cost: Cost
    reward: float
    least: float

    def excess(self, total: float, others: float) -> float:
        """Return by how much all shares sum to more than 1, given the sum of the others'."""
        return others - float(self.cost.rest(np.array([self.least]), total, self.reward)[0])

    def of_cells(self, cells: Cells) -> Callable[[float], float]:
        """Return the excess as a function of the total, by cells instead of owners."""
        values, counts = cells.others()

        def excess(total: float) -> float:
            return self.excess(total, float(counts @ self.cost.share(values, total, self.reward)))

        return excess


def _convex(stream: Stream, reward: float, cost: Cost) -> Equilibrium:
    if not stream.again:
        raise InvalidGame(ONCE_ONLY)
    cells = Cells()
    for block in values_of(stream):
        cells.add(block)
    if cells.owners < 2:
        raise InvalidGame(too_few(cells.owners))
    if isinstance(cost, Custom):
        cost.check_on_grid(np.array([cells.least, cells.largest]), reward)
    shares = _Shares(cost, reward, cells.least)
    roughly = shares.of_cells(cells)
    total, step = falling_root(roughly), math.inf
    for _ in range(READINGS - 1):
        others, count, owners = _others_shares(stream, shares, total)
        if owners != cells.owners:
            raise InvalidGame(
                f"a source must hold the same owners at every reading; found {owners} where there "
                f"were {cells.owners}"
            )
        slope = (roughly(total * math.exp(1e-4)) - roughly(total * math.exp(-1e-4))) / 2e-4
        step = -shares.excess(total, others) / slope
        if abs(step) <= _SETTLED:
            break
        total *= math.exp(step)
    else:
        raise NoEquilibrium(
            f"the total budget has not settled after {READINGS} readings: it still moves by a "
            f"relative {abs(step):.2g}"
        )
    if count < 2:
        raise InvalidGame(
            f"values from {cells.least:g} to {cells.largest:g} are too far apart for a float to "
            "hold the second owner's share"
        )
    return _found(stream, shares, total, _Known(cells.owners, count, others))


@dataclass(frozen=True)
class _Known:
    """What the readings of a stream have found, at every reward where budgets scale with it."""

    owners: int
    count: int
    others: float
    """The sum of all shares but the cheapest owner's."""


def _found(stream: Stream, shares: _Shares, total: float, known: _Known) -> Equilibrium:
    cost, reward = shares.cost, shares.reward
    budgets_of = partial(_budgets, shares, total, known.others)
    return Equilibrium(
        owners=known.owners,
        count=known.count,
        reward=reward,
        total_budget=total,
        threshold=None,
        method=f"{cost.name}: root of the shares' sum, by readings of a stream",
        cheapest=shares.least,
        _solve=partial(_profile, stream, shares, total, known),
        _budgets_of=budgets_of,
        _certify=partial(_certified, stream, cost, reward, budgets_of),
        _values=partial(values_of, stream),
        _at=None if cost.degree is None else partial(_at, stream, shares, total, known),
    )


def _at(stream: Stream, shares: _Shares, total: float, known: _Known, reward: float) -> Equilibrium:
    """Return the same equilibrium at another reward: with c = v r^g budgets grow as R^(1/g)."""
    amount = checked_reward(reward)
    grown = (amount / shares.reward) ** (1.0 / (shares.cost.degree or 1.0))
    return _found(stream, replace(shares, reward=amount), total * grown, known)


def _others_shares(stream: Stream, shares: _Shares, total: float) -> tuple[float, int, int]:
    """Return the sum of all shares but the cheapest owner's, how many are above 0, and of whom."""
    sums, count, owners, at_least = [], 0, 0, 0
    for block in values_of(stream):
        found = shares.cost.share(block, total, shares.reward)
        cheapest = block == shares.least
        at_least += int(np.count_nonzero(cheapest))
        sums.append(float(np.where(cheapest, 0.0, found).sum()))
        count += int(np.count_nonzero(found))
        owners += len(block)
    own = float(shares.cost.share(np.array([shares.least]), total, shares.reward)[0])
    return math.fsum([*sums, (at_least - 1) * own]), count, owners


def _budgets(shares: _Shares, total: float, others: float, values: FloatArray) -> FloatArray:
    """Return budgets; where the cheapest holds most, the others share what it leaves."""
    found = shares.cost.share(values, total, shares.reward)
    first = np.array([shares.least])
    if shares.cost.share(first, total, shares.reward)[0] >= 0.5 and others > 0:
        rest = float(shares.cost.rest(first, total, shares.reward)[0])
        found = np.where(values == shares.least, found, found * (rest / others))
    return found * total


def _certified(
    stream: Stream,
    cost: Cost,
    reward: float,
    budgets_of: Callable[[FloatArray], FloatArray],
) -> float:
    """Return the largest gain from deviating, by two more readings."""
    if not stream.again:
        raise InvalidGame(ONCE_ONLY)
    sums, least, largest, count = [], math.inf, 0.0, 0
    for block in values_of(stream):
        budgets = budgets_of(block)
        sums.append(float(budgets.sum()))
        least, largest = min(least, float(block.min())), max(largest, float(budgets.max()))
        count += int(np.count_nonzero(budgets))
    total = math.fsum(sums)
    rivals = _sum_but_one(stream, budgets_of, least) if largest >= total / 2 else None
    worst = 0.0
    for block in values_of(stream):
        budgets = budgets_of(block)
        others = total - budgets
        if rivals is not None:
            others = np.where(block == least, rivals, others)
        game = _game(block, cost, reward)
        found = regrets_against(game, budgets, np.maximum(others, 0.0), total)
        worst = max(worst, float(found.max()))
    check(worst, reward, count)
    return worst


def _sum_but_one(
    stream: Stream, budgets_of: Callable[[FloatArray], FloatArray], least: float
) -> float:
    """Return the sum of all budgets but that of one owner of the least value."""
    sums, found = [], False
    for block in values_of(stream):
        budgets = budgets_of(block)
        first = int(np.argmin(block))
        if not found and block[first] == least:
            sums.append(all_but(budgets, first))
            found = True
        else:
            sums.append(float(budgets.sum()))
    return math.fsum(sums)


def _profile(stream: Stream, shares: _Shares, total: float, known: _Known) -> Profile:
    """Read everybody into memory, where that is bounded."""
    if known.owners > KEPT:
        too_many()
    kept, sources = _everybody(stream)
    budgets = _budgets(shares, total, known.others, kept.values)
    inside = np.flatnonzero(budgets)
    game = _game(kept.values[inside], shares.cost, shares.reward)
    positions, who = labels(kept.only(budgets > 0), sources)
    return Profile(
        participants=positions,
        budgets=budgets[inside],
        payments=shares.reward * (budgets[inside] / total),
        utilities=game.gross_utilities(budgets[inside], total),
        who=who,
    )


def _everybody(stream: Stream) -> tuple[Kept, dict[str, int]]:
    """Return all owners one by one."""
    sources: dict[str, int] = {"": 0}
    pieces = []
    for chunk in stream.chunks():
        values = np.ascontiguousarray(column("values", chunk.values), dtype=np.float64)
        row = sources.setdefault(chunk.source, 0)
        first = place_of(list(sources).index(chunk.source), row)
        names = names_of(chunk.names, len(values))
        pieces.append(Kept(values, first + np.arange(len(values)), names))
        sources[chunk.source] += len(values)
    return together(pieces), sources


def _game(values: FloatArray, cost: Cost, reward: float) -> Game:
    """Return the game of owners who are known to be right."""
    ones = np.ones(len(values))
    return Game(values, reward, cost, entry=0.0 * ones, caps=np.inf * ones, units=ones)
