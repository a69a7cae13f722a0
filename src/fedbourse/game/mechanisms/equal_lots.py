"""Equal lots at one price: what a descending clock sells when its price falls continuously.

With B = R / lot, the k lowest-value owners sell, k the largest number with v_(k) k <= B, for
min(R/k, v_(k+1) lot) each. Since v_(k) k rises with k, the smallest value x at which it exceeds B
decides all: whoever is below x sells, whoever is above does not, and of those at x some do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import BoolArray, FloatArray, IntArray, positive
from fedbourse.game.mechanisms.protocol import Outcome, Purchase
from fedbourse.game.outofcore.lot_scan import NOBODY, LotCutoff, lot_cutoff, lot_cutoff_of_stream
from fedbourse.game.outofcore.stream import Stream, stream_or_column
from fedbourse.units import number


@dataclass(frozen=True)
class LotSale:
    """Who sells a lot, for what price."""

    owners: int
    """n, all who could sell one."""
    sellers: int
    """k."""
    price: float
    """What each seller is paid for its lot."""
    lot: float
    cutoff: float
    """Owners of a lower value sell, of a higher one do not; infinite where everybody sells."""
    tied: int
    """How many of those whose value is the cutoff sell: chance decides which."""

    @property
    def total_budget(self) -> float:
        """Return P, all lots together."""
        return self.sellers * self.lot

    @property
    def spend(self) -> float:
        """Return what all lots cost."""
        return self.sellers * self.price

    def certain(self, values: FloatArray) -> BoolArray:
        """Say which owners sell whatever chance decides."""
        below: BoolArray = values < self.cutoff
        return below


def sell_lots(values: object, *, reward: float, lot: float) -> LotSale:
    """Return what a descending clock sells to a buyer who spends at most ``reward``.

    ``values`` are a column, or come in chunks, as for ``equilibrium``: any number of owners, in
    one to three readings and bounded memory.

    >>> sell_lots([1.0, 2.0, 3.0, 9.0], reward=6.0, lot=1.0)
    LotSale(owners=4, sellers=2, price=3.0, lot=1.0, cutoff=3.0, tied=0)
    """
    reward = number("reward", reward, above=0)
    lot = number("lot", lot, above=0)
    source = stream_or_column(values)
    if isinstance(source, Stream):
        return _sale(lot_cutoff_of_stream(source, reward / lot), reward, lot)
    column = positive("values", source)
    if not len(column):
        raise InvalidGame(NOBODY)
    return _sale(lot_cutoff(np.sort(column), reward / lot), reward, lot)


def _sale(cutoff: LotCutoff, reward: float, lot: float) -> LotSale:
    k = cutoff.sellers
    price = min(reward / k, cutoff.value * lot) if k else 0.0
    return LotSale(cutoff.owners, k, price, lot, cutoff.value, cutoff.tied)


def sold_in_order(
    values: FloatArray, eligible: BoolArray, sale: LotSale, order: IntArray
) -> IntArray:
    """Return who sells: of those at the cutoff, whoever comes last in the order of exits."""
    sure = np.flatnonzero(eligible & sale.certain(values))
    tied = np.flatnonzero(eligible & (values == sale.cutoff))
    staying = tied[np.argsort(order[tied], kind="stable")][len(tied) - sale.tied :]
    return np.concatenate([sure, staying])


def clock_outcome(values: FloatArray, purchase: Purchase, rng: np.random.Generator) -> Outcome:
    """Sell one lot of each owner whose cap holds one, by a descending price."""
    order = rng.permutation(len(values))
    eligible = purchase.caps(len(values)) >= purchase.lot
    result = Outcome.nothing(len(values))
    if not eligible.any():
        return result
    sale = sell_lots(values[eligible], reward=purchase.reward, lot=purchase.lot)
    sold = sold_in_order(values, eligible, sale, order)
    result.budgets[sold], result.payments[sold] = sale.lot, sale.price
    return result


def first_best(values: FloatArray, purchase: Purchase) -> float:
    """Return the largest total budget that the reward buys where all values are known.

    The cheapest sell first, each as much as its cap allows, for what it costs them.
    """
    order = np.argsort(values)
    caps, cheapest = purchase.caps(len(values))[order].tolist(), values[order].tolist()
    left, total = purchase.reward, 0.0
    for value, cap in zip(cheapest, caps, strict=True):
        if value * cap >= left:
            return float(total + left / value)
        left -= value * cap
        total += cap
    return total
