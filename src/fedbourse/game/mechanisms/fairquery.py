"""FairQuery (Ghosh and Roth, *Selling Privacy at Auction*): the more sell, the more each sells."""

from __future__ import annotations

import numpy as np

from fedbourse.game.columns import FloatArray
from fedbourse.game.mechanisms.protocol import Outcome, Purchase


def fairquery_outcome(values: FloatArray, purchase: Purchase, rng: np.random.Generator) -> Outcome:
    """Buy lot / (n - k) from each of the k lowest-value owners, for the largest k that R pays.

    k is the largest with v_(k) lot / (n - k) <= R / k, and each is paid
    min(R / k, v_(k+1) lot / (n - k)). It ends at the first owner whose cap is too small.
    """
    owners = len(values)
    result = Outcome.nothing(owners)
    order = rng.permutation(owners)
    order = order[np.argsort(values[order], kind="stable")]
    if owners < 2:
        return result
    counts = np.arange(1, owners)
    lots = purchase.lot / (owners - counts)
    smallest_caps = np.minimum.accumulate(purchase.caps(owners)[order])[:-1]
    fits = (values[order][:-1] * lots <= purchase.reward / counts) & (lots <= smallest_caps)
    k = int(np.count_nonzero(np.logical_and.accumulate(fits)))
    if k:
        lot = float(lots[k - 1])
        result.budgets[order[:k]] = lot
        result.payments[order[:k]] = min(purchase.reward / k, float(values[order[k]]) * lot)
    return result
