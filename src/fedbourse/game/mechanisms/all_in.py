"""All-in, the baseline of FL-Market (Zheng and others, 2022): owners sell their caps or nothing."""

from __future__ import annotations

import math

import numpy as np

from fedbourse.game.columns import FloatArray
from fedbourse.game.mechanisms.protocol import Outcome, Purchase


def all_in_outcome(values: FloatArray, purchase: Purchase, rng: np.random.Generator) -> Outcome:
    """Take owners in the order of their values while all could be paid the value of the last.

    An owner that does not fit is skipped. Those who are taken sell all that their caps allow (one
    lot where there is no cap), and share all of R in proportion.
    """
    owners = len(values)
    caps = purchase.caps(owners)
    sizes = np.where(np.isinf(caps), purchase.lot, caps)
    order = rng.permutation(owners)
    order = order[np.argsort(values[order], kind="stable")]
    result = Outcome.nothing(owners)
    total = 0.0
    for owner in order.tolist():
        size = float(sizes[owner])
        if size and (total + size) * float(values[owner]) <= purchase.reward:
            result.budgets[owner] = size
            total += size
    if total > 0 and math.isfinite(total):
        result.payments[:] = purchase.reward * (result.budgets / total)
    return result
