"""Many linear games at once: one row is one draw of all owners' values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedbourse.game.columns import FloatArray, IntArray


@dataclass(frozen=True)
class LinearDraws:
    """The equilibria of many linear games, none of which depends on the reward."""

    shares: FloatArray
    """Each row's shares, cheapest participant first, padded with 0."""
    counts: IntArray
    """K, the participants of each row."""
    cutoffs: FloatArray
    """tau of each row; the total budget is R / tau."""

    def unit_precisions(self, noise_factor: float) -> FloatArray:
        """Return y = r / a at a reward of 1; infinite, without noise, where it is padded."""
        precisions = self.shares / (self.cutoffs * noise_factor)[:, None]
        return np.where(self.shares > 0, precisions, np.inf)


def linear_draws(values: FloatArray) -> LinearDraws:
    """Solve every row: the rule of ``cutoff``, exact as there, on sorted rows."""
    v = np.sort(values, axis=1)
    cheapest, rest = v[:, :1], v[:, 1:]
    with np.errstate(over="ignore"):  # an infinite height is out, rightly
        steps = np.diff(rest, axis=1) * np.arange(1, rest.shape[1])
        heights = np.cumsum(np.pad(steps, ((0, 0), (1, 0))), axis=1)
    counts = 1 + (heights < cheapest).sum(axis=1)
    rows = np.arange(len(v))
    highest = v[rows, counts - 1]
    margins = cheapest[:, 0] - heights[rows, counts - 2]
    v = v[:, : counts.max()]
    inside = np.arange(v.shape[1]) < counts[:, None]
    totals = np.where(inside, v, 0.0).sum(axis=1)
    gaps = (counts[:, None] - 1) * (highest[:, None] - v)
    shares = np.where(inside, (margins[:, None] + gaps) / totals[:, None], 0.0)
    return LinearDraws(shares, counts, totals / (counts - 1))
