"""Evidence beside any mixture of the reference's classes: honest owners of few classes pass it.

With h_c the clipped mean gradient of the reference's records of class c, an owner whose classes
are mixed by w has gradients like h_w = sum of w_c h_c. Its log-likelihood ratio against noise is

    l_w = w.X - w.G w / 2,  X_c = sum k <y, h_c> / sigma^2,  G_cd = sum k^2 <h_c, h_d> / sigma^2,

over rounds. An honest owner is not dismissed as long as one w is likely enough, so that the
*largest* l_w decides on dismissal. The *mean* of e^l_w over fixed mixtures, each class alone and
the reference's own, decides on showing data: a mean of supermartingales is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - kept beside the types below
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray

_STEPS_MAX = 10_000


@dataclass(frozen=True)
class MixtureSums:
    """X and G over the rounds so far, and the reference's own mixture."""

    shares: tuple[float, ...]
    x: tuple[float, ...]
    gram: tuple[tuple[float, ...], ...]

    @classmethod
    def none(cls, shares: tuple[float, ...]) -> MixtureSums:
        """Return the sums over no rounds."""
        zeros = (0.0,) * len(shares)
        return cls(shares, zeros, (zeros,) * len(shares))

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> MixtureSums:
        """Read a document."""
        gram = tuple(tuple(row) for row in document["gram"])
        return cls(tuple(document["shares"]), tuple(document["x"]), gram)

    def added(
        self, update: FloatArray, by_class: FloatArray, *, scale: float, k: float
    ) -> MixtureSums:
        """Add a round: an update, and the reference's gradient of each class."""
        x = np.array(self.x) + k * (by_class @ update) / scale**2
        gram = np.array(self.gram) + k**2 * (by_class @ by_class.T) / scale**2
        return MixtureSums(
            self.shares, tuple(x.tolist()), tuple(tuple(row) for row in gram.tolist())
        )

    def likelihood(self, mixture: FloatArray) -> float:
        """Return l_w."""
        return float(mixture @ np.array(self.x) - mixture @ np.array(self.gram) @ mixture / 2)

    @property
    def mean_likelihood(self) -> float:
        """The logarithm of the mean of e^l_w over each class alone and the reference's mixture."""
        values = [self.likelihood(mixture) for mixture in self._fixed]
        largest = max(values)
        return largest + math.log(sum(math.exp(each - largest) for each in values) / len(values))

    def all_below(self, bound: float) -> bool:
        """Say whether l_w is at most a bound for every mixture w.

        l_w is concave. Projected gradient steps climb it until one of two things is certain: this
        w is above the bound; or even the largest, which lies at most the gap above this one, is
        not. Where neither is settled in time, nobody is dismissed for it.
        """
        mixture = max(self._fixed, key=self.likelihood)
        x, gram = np.array(self.x), np.array(self.gram)
        step = 1.0 / max(float(np.linalg.eigvalsh(gram)[-1]), 1e-300)
        for _ in range(_STEPS_MAX):
            value = self.likelihood(mixture)
            if value > bound:
                return False
            slope = x - gram @ mixture
            gap = float(slope.max() - mixture @ slope)
            if value + gap <= bound:
                return True
            mixture = _on_simplex(mixture + step * slope)
        return False

    @property
    def _fixed(self) -> list[FloatArray]:
        return [*np.eye(len(self.shares)), np.array(self.shares)]


def _on_simplex(point: FloatArray) -> FloatArray:
    """Return the nearest point whose parts are not negative and sum to 1.

    >>> _on_simplex(np.array([0.9, 0.9, -1.0]))
    array([0.5, 0.5, 0. ])
    """
    falling = np.sort(point)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(point) + 1)
    level = excess[np.nonzero(falling > excess)[0][-1]]
    nearest: FloatArray = np.maximum(point - level, 0.0)
    return nearest
