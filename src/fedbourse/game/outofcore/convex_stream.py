"""Costs that are not linear, over owners whose values come in chunks: few readings, each a sum.

Where at most ``TABLE_MAX`` owners may take part, one reading lists them all. Otherwise the total
budget P is sought at which all shares sum to 1. The first reading counts owners in bins of relative
width 2^-10, which places P to some seven digits; each further reading is one sum, that of all
shares at P, and gains seven more, for the slope is known from the bins. So it takes three readings:
the bins, a correction, and its proof; and a fourth, of finer bins, where the cutoff leaves only a
few of them inside. The certificate takes two: the total of all budgets, and everybody's gain from
deviating.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.array_spans import blocks
from fedbourse.game.certificate import regrets_against
from fedbourse.game.columns import FloatArray, column, refuse_bad_bits, refuse_first
from fedbourse.game.costs import Cost, Custom
from fedbourse.game.game import all_but, checked_reward, plain_game, too_few
from fedbourse.game.general_solver import Population, solve_game
from fedbourse.game.outofcore.candidates import Candidates
from fedbourse.game.outofcore.histogram import FineHistogram, Histogram
from fedbourse.game.outofcore.participant_sketch import too_many
from fedbourse.game.outofcore.stream import ONCE_ONLY, Chunk, Stream
from fedbourse.game.profile import Equilibrium, check_regret
from fedbourse.game.roots import falling_root

TABLE_MAX = 1 << 18
"""How many owners are listed individually."""

READINGS = 6
"""Readings after which a total that has not converged is given up; three or four are usual."""

_CONVERGED = 1e-13
"""A relative change of the total that counts as none."""
_BINS_MIN = 256
"""Bins with a share above 0 that are enough for the slope."""


def convex_equilibrium(stream: Stream, reward: float, cost: Cost) -> Equilibrium:
    """Return the equilibrium of all owners of a stream for a cost that is not linear."""
    histogram, candidates = Histogram(), Candidates(cost, reward, TABLE_MAX)
    for chunk, values in _checked(stream):
        histogram.add(values)
        candidates.add(chunk, values)
    if histogram.owners < 2:
        raise InvalidGame(too_few(histogram.owners))
    if isinstance(cost, Custom):
        cost.check_on_grid(np.array([histogram.least, histogram.largest]), reward)
    if not candidates.too_many:
        table = candidates.table()
        population = Population(
            histogram.owners, table, candidates.sources, candidates.cheapest_outsider
        )
        return solve_game(plain_game(table.values, cost, reward), population)
    if not stream.again:
        raise InvalidGame(ONCE_ONLY)
    shares = _Shares(cost, reward, histogram.least)
    return _by_readings(stream, shares, histogram, candidates.top)


def _by_readings(stream: Stream, shares: _Shares, histogram: Histogram, top: float) -> Equilibrium:
    excess = shares.binned_excess(histogram)
    total, step = falling_root(excess), math.inf
    inside = shares.of(histogram.others()[0], total) > 0
    readings = READINGS - 1
    if not inside.all() and inside.sum() < _BINS_MIN:
        fine = FineHistogram(histogram.least, min(top, histogram.largest))
        for block in values_of(stream):
            fine.add(block)
        excess, readings = shares.binned_excess(fine), readings - 1
        total = falling_root(excess, total)
    for _ in range(readings):
        sums = _share_sums(stream, shares, total)
        if sums.owners != histogram.owners:
            raise InvalidGame(
                f"a source must hold the same owners at every reading; found {sums.owners} where "
                f"there were {histogram.owners}"
            )
        slope = (excess(total * math.exp(1e-4)) - excess(total * math.exp(-1e-4))) / 2e-4
        step = -shares.excess(total, sums.others) / slope
        if abs(step) <= _CONVERGED:
            return _equilibrium(stream, shares, total, sums)
        total *= math.exp(step)
    raise NoEquilibrium(
        f"the total budget has not converged after {READINGS} readings: it still moves by a "
        f"relative {abs(step):.2g}"
    )


@dataclass(frozen=True)
class _ShareSums:
    """What a reading of a stream sums up; the same at every reward where budgets scale with it."""

    owners: int
    count: int
    """Shares above 0."""
    others: float
    """The sum of all shares but the cheapest owner's."""


def _share_sums(stream: Stream, shares: _Shares, total: float) -> _ShareSums:
    sums, count, owners, at_least = [], 0, 0, 0
    for block in values_of(stream):
        block_shares = shares.of(block, total)
        cheapest = block == shares.least
        at_least += int(np.count_nonzero(cheapest))
        sums.append(float(np.where(cheapest, 0.0, block_shares).sum()))
        count += int(np.count_nonzero(block_shares))
        owners += len(block)
    own = float(shares.of(np.array([shares.least]), total)[0])
    return _ShareSums(owners, count, math.fsum([*sums, (at_least - 1) * own]))


def _equilibrium(stream: Stream, shares: _Shares, total: float, sums: _ShareSums) -> Equilibrium:
    cost, reward = shares.cost, shares.reward
    budgets_of = partial(shares.budgets, total, sums.others)
    return Equilibrium(
        owners=sums.owners,
        count=sums.count,
        reward=reward,
        total_budget=total,
        cutoff=None,
        method=f"{cost.name}: root of the shares' sum, by readings of a stream",
        cheapest=shares.least,
        _solve=too_many,
        _budgets_of=budgets_of,
        _certify=partial(certified_regret, stream, cost, reward, budgets_of),
        _values=partial(values_of, stream),
        _at=None if cost.degree is None else partial(_at, stream, shares, total, sums),
    )


def _at(
    stream: Stream, shares: _Shares, total: float, sums: _ShareSums, reward: float
) -> Equilibrium:
    """Return the same equilibrium at another reward: with c = v r^g budgets grow as R^(1/g)."""
    amount = checked_reward(reward)
    factor = (amount / shares.reward) ** (1.0 / (shares.cost.degree or 1.0))
    return _equilibrium(stream, replace(shares, reward=amount), total * factor, sums)


def certified_regret(
    stream: Stream, cost: Cost, reward: float, budgets_of: Callable[[FloatArray], FloatArray]
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
        gains = regrets_against(game, budgets, np.maximum(others, 0.0), total)
        worst = max(worst, float(gains.max()))
    check_regret(worst, reward, count)
    return worst


def _sum_but_one(
    stream: Stream, budgets_of: Callable[[FloatArray], FloatArray], least: float
) -> float:
    """Return the sum of all budgets but that of one owner of the least value."""
    sums, left_out = [], False
    for block in values_of(stream):
        budgets, first = budgets_of(block), int(np.argmin(block))
        if not left_out and block[first] == least:
            sums.append(all_but(budgets, first))
            left_out = True
        else:
            sums.append(float(budgets.sum()))
    return math.fsum(sums)


@dataclass(frozen=True)
class _Shares:
    """Everybody's share of a total: of the cheapest owner apart, who may hold nearly all."""

    cost: Cost
    reward: float
    least: float

    def of(self, values: FloatArray, total: float) -> FloatArray:
        return self.cost.share(values, total, self.reward)

    def rest(self, total: float) -> float:
        """Return what the cheapest owner leaves to the others."""
        return float(self.cost.rest(np.array([self.least]), total, self.reward)[0])

    def excess(self, total: float, others: float) -> float:
        """Return by how much all shares sum to more than 1, given the sum of the others'."""
        return others - self.rest(total)

    def binned_excess(self, histogram: Histogram | FineHistogram) -> Callable[[float], float]:
        """Return the excess as a function of the total, by bins instead of owners."""
        values, counts = histogram.others()
        return lambda total: self.excess(total, float(counts @ self.of(values, total)))

    def budgets(self, total: float, others: float, values: FloatArray) -> FloatArray:
        """Return budgets; where the cheapest holds most, the others share what it leaves."""
        shares = self.of(values, total)
        if self.of(np.array([self.least]), total)[0] >= 0.5 and others > 0:
            scaled = shares * (self.rest(total) / others)
            shares = np.where(values == self.least, shares, scaled)
        return shares * total


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
