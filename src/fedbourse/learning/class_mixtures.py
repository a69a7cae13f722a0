"""The test against every mixture of classes at once: for owners whose labels differ.

With h_c the mean gradient of the reference's records of class c, and w a mixture of the classes,

    l_w = w.X - w'Gw / 2,
    X_c = sum k0 <y, h_c> / sigma^2,
    G_cc' = sum k0^2 <h_c, h_c'> / sigma^2

is the log-likelihood ratio of "the update points k0 sum_c w_c h_c" against "the update is noise".
It is concave in w. A device is dismissed where no mixture explains its updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray

_STEPS_MAX = 2000
"""Away from a tie a few dozen steps decide; at a tie the device gets the benefit."""


@dataclass(frozen=True)
class MixtureSums:
    """X and G over the rounds so far, of the classes that the reference has."""

    x: tuple[float, ...] = ()
    g: tuple[tuple[float, ...], ...] = ()
    shares: tuple[float, ...] = ()
    """The reference's own mixture."""

    def added(
        self,
        products: FloatArray,
        squares: FloatArray,
        shares: FloatArray,
        *,
        scale: float,
        k0: float,
    ) -> MixtureSums:
        """Add a round: <y, h_c> of each class, <h_c, h_c'> of each pair, and sigma."""
        x, g = products * (k0 / scale**2), squares * (k0 / scale) ** 2
        if self.x:
            x, g = x + np.array(self.x), g + np.array(self.g)
        return MixtureSums(tuple(x.tolist()), tuple(map(tuple, g.tolist())), tuple(shares.tolist()))

    @property
    def likelihoods(self) -> FloatArray:
        """l of each class alone, and of the reference's own mixture last; empty before round 1."""
        if not self.x:
            return np.zeros(0)
        x, g, own = np.array(self.x), np.array(self.g), np.array(self.shares)
        return np.append(x - np.diag(g) / 2, own @ x - own @ g @ own / 2)

    @property
    def likelihood(self) -> float:
        """The log of the mean of e^l over these few mixtures: a supermartingale without data."""
        each = self.likelihoods
        if not len(each):
            return 0.0
        most = float(each.max())
        return most + float(np.log(np.mean(np.exp(each - most))))

    def all_at_most(self, bound: float) -> bool:
        """Return whether l_w is at most ``bound`` for every mixture w.

        Steps from one class to another climb to the maximum. As l is concave, its gradient bounds
        what is left to climb: the search ends as soon as either side is certain.
        """
        each = self.likelihoods
        if not len(each) or each.max() > bound:
            return not len(each) and bound >= 0
        x, g = np.array(self.x), np.array(self.g)
        w = np.zeros(len(x))
        w[each[:-1].argmax()] = 1.0
        for _ in range(_STEPS_MAX):
            gw = g @ w
            gradient = x - gw
            value = float(w @ x - w @ gw / 2)
            best = int(gradient.argmax())
            if value > bound:
                return False
            if value + float(gradient[best] - gradient @ w) <= bound:
                return True
            worst = int(np.where(w > 0, gradient, np.inf).argmin())
            curvature = float(g[best, best] - 2 * g[best, worst] + g[worst, worst])
            slope = float(gradient[best] - gradient[worst])
            if slope <= 0:
                break
            step = w[worst] if slope >= curvature * w[worst] else slope / curvature
            w[best] += step
            w[worst] = 0.0 if step == w[worst] else w[worst] - step
        return False
