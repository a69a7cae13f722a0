"""Costs that are not linear, over owners whose values come in chunks: few readings, each a sum.

Where at most ``KEPT`` owners may take part, one reading keeps them all. Otherwise the total budget
P is sought at which all shares sum to 1. The first reading counts owners in cells of relative width
2^-10, which places P to some seven digits; each further reading is one sum, that of all shares at
P, and gains seven more, for the slope is known from the cells. So it takes three readings: the
cells, a correction, and its proof; and a fourth, of finer cells, where a threshold cuts through a
few of them. The certificate, when it is asked for, takes two: the total of all budgets, and
everybody's gain from deviating.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.candidates import Candidates
from fedbourse.game.cells import Cells, FineCells
from fedbourse.game.certificate import regrets_against
from fedbourse.game.columns import FloatArray, column, refuse_bad_bits, refuse_first
from fedbourse.game.costs import Cost, Custom
from fedbourse.game.profile import Equilibrium, check
from fedbourse.game.roots import falling_root
from fedbourse.game.rules import all_but, checked_reward, plain_game, too_few
from fedbourse.game.solved import Beyond, solved_equilibrium
from fedbourse.game.spans import blocks
from fedbourse.game.stream import ONCE_ONLY, Chunk, Stream
from fedbourse.game.support import too_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEPT = 1 << 18
"""How many owners are kept one by one."""

READINGS = 6
"""Readings after which a total that does not settle is given up; three or four are the rule."""

_SETTLED = 1e-13
"""A relative change of the total that counts as none."""
_COARSE = 256
"""Cells with a share above 0 that are enough for the slope."""


def convex_equilibrium(stream: Stream, reward: float, cost: Cost) -> Equilibrium:
    """Return the equilibrium of all owners of a stream for a cost that is not linear."""
    cells, candidates = Cells(), Candidates(cost, reward, KEPT)
    for chunk, values in _checked(stream):
        cells.add(values)
        candidates.add(chunk, values)
    if cells.owners < 2:
        raise InvalidGame(too_few(cells.owners))
    if isinstance(cost, Custom):
        cost.check_on_grid(np.array([cells.least, cells.largest]), reward)
    if not candidates.given_up:
        kept = candidates.kept()
        game = plain_game(kept.values, cost, reward)
        return solved_equilibrium(
            game,
            Beyond(cells.owners, kept, candidates.sources, candidates.cheapest_outsider),
        )
    if not stream.again:
        raise InvalidGame(ONCE_ONLY)
    return _by_readings(stream, _Shares(cost, reward, cells.least), cells, candidates.top)


def _by_readings(stream: Stream, shares: _Shares, cells: Cells, top: float) -> Equilibrium:
    roughly = shares.of_cells(cells)
    total, step = falling_root(roughly), math.inf
    inside = shares.cost.share(cells.others()[0], total, shares.reward) > 0
    readings = READINGS - 1
    if not inside.all() and inside.sum() < _COARSE:
        # The threshold cuts through a few cells: look at those who may take part more closely.
        fine = FineCells(cells.least, min(top, cells.largest))
        for block in values_of(stream):
            fine.add(block)
        roughly, readings = shares.of_cells(fine), readings - 1
        total = falling_root(roughly, total)
    for _ in range(readings):
        others, count, owners = _others_shares(stream, shares, total)
        if owners != cells.owners:
            raise InvalidGame(
                f"a source must hold the same owners at every reading; found {owners} where there "
                f"were {cells.owners}"
            )
        slope = (roughly(total * math.exp(1e-4)) - roughly(total * math.exp(-1e-4))) / 2e-4
        step = -shares.excess(total, others) / slope
        if abs(step) <= _SETTLED:
            return _found(stream, shares, total, _Known(owners, count, others))
        total *= math.exp(step)
    raise NoEquilibrium(
        f"the total budget has not settled after {READINGS} readings: it still moves by a "
        f"relative {abs(step):.2g}"
    )


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
        _solve=too_many,
        _budgets_of=budgets_of,
        _certify=partial(certified, stream, cost, reward, budgets_of),
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


def certified(
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
        game = plain_game(block, cost, reward)
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


@dataclass(frozen=True)
class _Shares:
    """Everybody's share of a total: of the cheapest owner apart, who may hold nearly all."""

    cost: Cost
    reward: float
    least: float

    def excess(self, total: float, others: float) -> float:
        """Return by how much all shares sum to more than 1, given the sum of the others'."""
        return others - float(self.cost.rest(np.array([self.least]), total, self.reward)[0])

    def of_cells(self, cells: Cells | FineCells) -> Callable[[float], float]:
        """Return the excess as a function of the total, by cells instead of owners."""
        values, counts = cells.others()

        def excess(total: float) -> float:
            return self.excess(total, float(counts @ self.cost.share(values, total, self.reward)))

        return excess


def values_of(stream: Stream) -> Iterator[FloatArray]:
    """Yield all values of a stream in blocks, checked."""
    for _, values in _checked(stream):
        for low, high in blocks(0, len(values)):
            yield values[low:high]


def _checked(stream: Stream) -> Iterator[tuple[Chunk, FloatArray]]:
    """Yield all chunks of a stream with their values, checked."""
    rows: dict[str, int] = {}
    for chunk in stream.chunks():
        start = rows.get(chunk.source, 0)
        where = f" of {chunk.source}" if chunk.source else ""
        data = column("values", chunk.values, start=start, where=where)
        values = np.ascontiguousarray(data, dtype=np.float64)
        rows[chunk.source] = start + len(values)
        if len(values):
            refuse_bad_bits("values", values, start, where)
            wanted = "a finite number above 0"
            refuse_first("values", values, values == 0, wanted, start=start, where=where)
            yield chunk, values
