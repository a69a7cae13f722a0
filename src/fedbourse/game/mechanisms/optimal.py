"""The purchase that is best for a buyer who knows how values are distributed (Bayesian optimal).

Each owner's update has variance s + a/r: s from its few records, a/r from its noise. The buyer
gains G Q/(1+Q), Q = sum of q_i, q_i = 1/(s + a/r_i). With w_i the square root of a virtual value
and c = sqrt(G/a)/(1+Q), the best budgets have

    q_i = min((1 - w_i/c)/s, 1/(s + a/cap_i)) where w_i < c, and 0 elsewhere,

so that c is the one root of c + sum of c q_i = sqrt(G/a), whose left side is piecewise linear and
rises. An owner of a cell is paid what makes the truth its best report: the sum, over the steps of
its own allocation above its value, of each step times the value where it ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import BoolArray, FloatArray, IntArray, positive
from fedbourse.game.mechanisms.protocol import Outcome, Purchase
from fedbourse.game.mechanisms.virtual_values import (
    VirtualValues,
    checked_sampling,
    prior_or_refusal,
    virtual_values_of,
)
from fedbourse.game.outofcore.convex_stream import values_of
from fedbourse.game.outofcore.stream import Stream, stream_or_column
from fedbourse.units import number


@dataclass(frozen=True, eq=False)
class _Groups:
    """Owners of one cell and cap each, with the total T = sqrt(G/a) that they share."""

    roots: FloatArray
    """w, the square root of the virtual value."""
    most: FloatArray
    """The largest q that the cap allows."""
    counts: FloatArray
    sampling: float
    total: float

    def information(self, c: FloatArray, own: int | None = None) -> FloatArray:
        """Return c q of each group's owner, or of one group's, for each c."""
        some = slice(None) if own is None else slice(own, own + 1)
        roots, most = self.roots[some], self.most[some]
        gaps = np.maximum(c[:, None] - roots, 0.0) / self.sampling
        return np.minimum(gaps, c[:, None] * most)

    def line(self) -> tuple[FloatArray, FloatArray]:
        """Return the corners of c + sum of c q, from the one at 0 on."""
        inside = self.roots < self.total
        roots, most, counts = self.roots[inside], self.most[inside], self.counts[inside]
        free = 1.0 - self.sampling * most  # 0 where there is no cap
        with np.errstate(divide="ignore"):
            full = np.where(free > 0, roots / free, np.inf)
        corners = np.concatenate([roots, full])
        turns = np.concatenate([counts / self.sampling, counts * (most - 1.0 / self.sampling)])
        order = np.argsort(corners, kind="stable")[: int(np.isfinite(corners).sum())]
        corners, turns = np.concatenate([[0.0], corners[order]]), turns[order]
        slopes = np.concatenate([[1.0], 1.0 + np.cumsum(turns)])
        heights = np.concatenate([[0.0], np.cumsum(slopes[:-1] * np.diff(corners))])
        # One more corner, beyond the total.
        end = max(self.total, corners[-1]) + 1.0
        last = heights[-1] + slopes[-1] * (end - corners[-1])
        return np.append(corners, end), np.append(heights, last)


@dataclass(frozen=True, eq=False)
class OptimalPurchase:
    """What a buyer who knows the prior buys of each owner, for what pay."""

    owners: int
    sellers: int
    c: float
    """sqrt(G/a) / (1 + Q): whoever has a virtual value of at least c^2 sells nothing."""
    quality: float
    """Q/(1 + Q)."""
    total_budget: float
    spend: float
    virtual_values: VirtualValues
    budgets: FloatArray
    """The budget of an owner of each cell; of each owner, where caps differ."""
    payments: FloatArray

    def budgets_of(self, values: FloatArray) -> FloatArray:
        """Return what owners of these values sell, where all have the same cap."""
        return np.append(self.budgets, 0.0)[self.virtual_values.cells_of(values)]

    def payments_of(self, values: FloatArray) -> FloatArray:
        """Return what owners of these values are paid, where all have the same cap."""
        return np.append(self.payments, 0.0)[self.virtual_values.cells_of(values)]


def buy_optimally(values: object, purchase: Purchase) -> OptimalPurchase:
    """Return the best purchase from owners who all have the same cap, any number of them.

    ``values`` are a column, or come in chunks: one reading counts the owners of each cell, and all
    else follows from the counts.

    >>> from fedbourse import Uniform
    >>> result = buy_optimally([1.0, 1.5, 4.0], Purchase(gain=10, prior=Uniform(1, 5)))
    >>> result.sellers, round(result.quality, 3)
    (3, 0.71)
    """
    if not isinstance(purchase.cap, (int, float)):
        raise InvalidGame("owners in chunks must all have the same cap; found one for each")
    virtual = virtual_values_of(prior_or_refusal(purchase.prior))
    source = stream_or_column(values)
    if isinstance(source, Stream):
        owners, counts = _counted(source, virtual, purchase)
    else:
        column = positive("values", source)
        owners = len(column)
        counts = _bincount(virtual.cells_of(column), len(virtual.edges))
    caps = np.full(len(counts), float(purchase.cap))
    groups = _groups(np.arange(len(counts)), caps, counts, virtual, purchase)
    c = _root(groups)
    budgets, payments = _bought(groups, c, np.arange(len(counts)), virtual, purchase)
    sold = counts > 0
    return OptimalPurchase(
        owners=owners,
        sellers=int(counts[budgets > 0].sum()),
        c=c,
        quality=1.0 - c / groups.total,
        total_budget=math.fsum((counts * budgets)[sold]),
        spend=math.fsum((counts * payments)[sold]),
        virtual_values=virtual,
        budgets=budgets,
        payments=payments,
    )


def optimal_outcome(values: FloatArray, purchase: Purchase, rng: np.random.Generator) -> Outcome:
    """Buy what is best for a buyer who knows the prior."""
    virtual = virtual_values_of(prior_or_refusal(purchase.prior))
    cells, caps = virtual.cells_of(values), purchase.caps(len(values))
    kinds, group_of, counts = np.unique(
        np.stack([cells, caps], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    group_cells = kinds[:, 0].astype(np.int64)
    inside = group_cells < len(virtual.edges)
    groups = _groups(group_cells[inside], kinds[inside, 1], counts[inside], virtual, purchase)
    if not len(groups.roots):
        return Outcome.nothing(len(values))
    budgets, payments = np.zeros(len(kinds)), np.zeros(len(kinds))
    budgets[inside], payments[inside] = _bought(
        groups, _root(groups), group_cells[inside], virtual, purchase
    )
    return Outcome(budgets[group_of], payments[group_of])


def _groups(
    cells: IntArray, caps: FloatArray, counts: IntArray, virtual: VirtualValues, purchase: Purchase
) -> _Groups:
    sampling = checked_sampling(purchase.sampling)
    with np.errstate(divide="ignore"):
        most = 1.0 / (sampling + purchase.noise_factor / caps)
    total = math.sqrt(number("gain", purchase.gain, above=0) / purchase.noise_factor)
    return _Groups(np.sqrt(virtual.slopes[cells]), most, counts.astype(np.float64), sampling, total)


def _root(groups: _Groups) -> float:
    corners, heights = groups.line()
    return float(np.interp(groups.total, heights, corners))


def _highest_root(groups: _Groups) -> float:
    """Return c without the cheapest owner: whoever has a root above it changes nobody's pay."""
    corners, heights = groups.line()
    sold = np.flatnonzero(groups.counts)
    if not len(sold):
        return groups.total
    others = heights - groups.information(corners, int(sold[0]))[:, 0]
    return float(np.interp(groups.total, others, corners))


def _bought(
    groups: _Groups, c: float, cells: IntArray, virtual: VirtualValues, purchase: Purchase
) -> tuple[FloatArray, FloatArray]:
    """Return what one owner of each group sells and is paid."""
    corners, heights = groups.line()
    all_roots = np.sqrt(virtual.slopes)
    budgets, payments = np.zeros(len(cells)), np.zeros(len(cells))
    for group in np.flatnonzero((groups.roots < c) & (groups.counts > 0)).tolist():
        cell = int(cells[group])
        others = heights - groups.information(corners, group)[:, 0]
        c_of_reports = _roots_of_reports(groups, group, (corners, others), all_roots[cell:])
        sold = _budgets(groups, group, all_roots[cell:], c_of_reports, purchase)
        if len(sold):
            ends = virtual.edges[cell : cell + len(sold)]
            budgets[group] = sold[0]
            payments[group] = math.fsum((sold - np.append(sold[1:], 0.0)) * ends)
    return budgets, payments


def _roots_of_reports(
    groups: _Groups, group: int, others: tuple[FloatArray, FloatArray], roots: FloatArray
) -> FloatArray:
    """Return c for each of the (rising) reports at which an owner of a group sells anything.

    With A the others' line and the owner's own q, the root of A + c q = T is the larger of those
    with q = (1 - w/c)/s and with q at its cap: the smaller q counts.
    """
    corners, heights = others
    alone = float(np.interp(groups.total, heights, corners))
    w = roots[: np.searchsorted(roots, alone, side="left")]
    s = groups.sampling
    free = np.interp(s * groups.total + w, s * heights + corners, corners)
    capped = np.interp(groups.total, heights + corners * groups.most[group], corners)
    return np.maximum(free, capped)


def _budgets(
    groups: _Groups, group: int, roots: FloatArray, c: FloatArray, purchase: Purchase
) -> FloatArray:
    """Return what an owner of a group sells where its reports lead to each c."""
    s, most = groups.sampling, float(groups.most[group])
    gaps = np.maximum(1.0 - roots[: len(c)] / c, 0.0)
    budgets = purchase.noise_factor / s * gaps / (1.0 - gaps)
    if s * most < 1.0:
        budgets = np.minimum(budgets, purchase.noise_factor * most / (1.0 - s * most))
    falling: FloatArray = np.minimum.accumulate(budgets)
    return falling


def _bincount(cells: IntArray, size: int) -> IntArray:
    return np.bincount(cells[cells < size], minlength=size)


def _counted(stream: Stream, virtual: VirtualValues, purchase: Purchase) -> tuple[int, IntArray]:
    """Count the owners of each cell, but for those who are sure to sell nothing.

    Every owner lowers c, with all owners and with one left out. So whoever has no part in what
    some of the others sell and are paid has none in what all do.
    """
    size = len(virtual.edges)
    counts = np.zeros(size, np.int64)
    caps = np.full(size, float(purchase.cap))
    bound, owners, looked = math.inf, 0, 0
    for block in values_of(stream):
        owners += len(block)
        inside: BoolArray = block <= bound
        if inside.any():
            counts += _bincount(virtual.cells_of(block[inside]), size)
        if owners >= 2 * looked:
            looked = owners
            groups = _groups(np.arange(size), caps, counts, virtual, purchase)
            selling = int(np.searchsorted(groups.roots, _highest_root(groups), side="left"))
            bound = float(virtual.edges[max(selling, 1) - 1])
    return owners, counts
