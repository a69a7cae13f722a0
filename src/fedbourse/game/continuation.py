"""Equilibria at one reward after another, each found from the one before it.

A best reward needs thousands of equilibria of the same owners, each close to the last. Where a
cost has no closed form of the share, solving each from nothing takes a thousand calls of the cost.
Here a few do: every owner's marginal cost is replaced by a line through its last budget,

    R (P - r) / P^2 = c'(r0) + k (r - r0),    so    r = (R/P - c'(r0) + k r0) / (R/P^2 + k),

cut off at 0 and at its cap; the total P at which these budgets sum to P needs no call; and c' at
the new budgets gives new lines. The slopes k come from the last two budgets, so that no second
derivative is needed. A fixed point meets every owner's first-order condition, so it is the
equilibrium; where there is none after a few steps, the general solver is asked.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedbourse.game.columns import FloatArray
from fedbourse.game.costs import NO_SHARE
from fedbourse.game.game import Game, budgets_at, equilibrium_total

_STEPS = 40
"""Lines that are tried; five are usual."""
_TOTAL_STEPS = 60
_FAR = 1.4
"""The largest change of ln P in one of them."""
_CONVERGED = 1e-11
"""A relative change of a budget that counts as none: the one after it is far smaller."""
_ROUNDING = 1e-15
"""The same, of an owner close to the cutoff, as a part of the total budget."""
_PLATEAU = 1e-9
"""The same, where changes get no smaller any more: what is left is rounding."""
_ALIKE = 1e-7
"""How far, as a part of R/P, a marginal cost may be from what one more unit of budget earns."""
_TELLING = 1e-9
"""The relative change of a budget that tells its slope."""
_PROBE = 1e-4
"""The relative distance at which the first slopes are measured."""


class Continuation:
    """The budgets of the owners of one game without entry costs, at whatever reward."""

    def __init__(self, game: Game) -> None:
        self._game = game
        self._first_unit = self._marginal(np.zeros_like(game.values))
        self._total = 1.0
        self._budgets: FloatArray | None = None
        self._slopes = np.zeros_like(game.values)
        self._marginals = self._first_unit

    def budgets(self, reward: float) -> FloatArray:
        """Return everybody's equilibrium budget."""
        with np.errstate(all="ignore"):
            if self._budgets is not None and self._follow(reward):
                inside = reward / self._total * (1.0 - NO_SHARE) > self._first_unit
                return np.where(inside, self._budgets, 0.0)
            return self._start(reward)

    def _start(self, reward: float) -> FloatArray:
        """Ask the general solver, and measure the slopes there."""
        game = replace(self._game, reward=reward)
        self._budgets = None  # what is left if there is no equilibrium
        self._total = equilibrium_total(game, self._total)
        budgets = budgets_at(game, self._total)[0]
        steps = _PROBE * np.maximum(budgets, 1e-3 * self._total / len(budgets))
        self._marginals = self._marginal(budgets)
        self._slopes = np.maximum(0.0, (self._marginal(budgets + steps) - self._marginals) / steps)
        self._budgets = budgets
        return budgets

    def _follow(self, reward: float) -> bool:
        """Move to the equilibrium at another reward, if lines lead there."""
        budgets, marginals, slopes = self._budgets, self._marginals, self._slopes
        assert budgets is not None
        total, last = self._total, math.inf
        for _ in range(_STEPS):
            step = self._on_lines(budgets, marginals, slopes, reward, total)
            if step is None:
                return False
            total, ahead = step
            moved = np.abs(ahead - budgets)
            marginals_ahead = self._marginal(ahead)
            steep = (marginals_ahead - marginals) / (ahead - budgets)
            telling = moved > _TELLING * (ahead + total)  # else rounding is most of it
            slopes = np.where(telling, np.maximum(0.0, steep), slopes)
            budgets, marginals = ahead, marginals_ahead
            most = float((moved / (ahead + _ROUNDING / _CONVERGED * total)).max())
            if most <= _CONVERGED or last <= 2.0 * most <= 2.0 * _PLATEAU:
                if not self._is_equilibrium(budgets, marginals, reward, total):
                    return False
                self._budgets, self._marginals, self._slopes = budgets, marginals, slopes
                self._total = total
                return bool(np.isfinite(marginals).all() and np.isfinite(slopes).all())
            last = most
        return False

    def _is_equilibrium(
        self, budgets: FloatArray, marginals: FloatArray, reward: float, total: float
    ) -> bool:
        """Say whether nobody would move: along lines that are too steep nobody does, anywhere."""
        price = reward / total
        gains = price * (1.0 - budgets / total) - marginals  # of one more unit of budget
        most = np.minimum(self._game.caps, total) if self._game.capped else total
        down, up = np.where(budgets > 0, gains, 0.0), np.where(budgets < most, gains, 0.0)
        return bool(down.min() >= -_ALIKE * price and up.max() <= _ALIKE * price)

    def _on_lines(
        self,
        budgets: FloatArray,
        marginals: FloatArray,
        slopes: FloatArray,
        reward: float,
        total: float,
    ) -> tuple[float, FloatArray] | None:
        """Return the total at which the shares on these lines sum to 1, and the budgets, by Newton.

        The shares fall in the total, so that a bracket keeps the steps in bounds.
        """
        caps, capped = self._game.caps, self._game.capped
        at_zero = marginals - slopes * budgets
        low, high, last = 0.0, math.inf, math.inf
        for _ in range(_TOTAL_STEPS):
            price = reward / total
            width = price / total + slopes
            raw = (price - at_zero) / width
            result = np.clip(raw, 0.0, np.minimum(caps, total) if capped else total)
            shares = result / total
            excess = float(shares.sum()) - 1.0
            low, high = (total, high) if excess > 0 else (low, total)
            inner = np.where(raw == result, price / total * (2.0 * shares - 1.0) / width, 0.0)
            slope = float((inner - shares).sum())
            ahead = total * math.exp(min(max(-excess / slope, -_FAR), _FAR)) if slope < 0 else low
            if not low < ahead < high:
                ahead = _between(low, high)
            step = abs(ahead - total) / total
            if not step < math.inf:
                return None
            if step <= _ROUNDING or last <= step <= _CONVERGED:  # only rounding is left
                return ahead, result
            total, last = ahead, step
        return None

    def _marginal(self, budgets: FloatArray) -> FloatArray:
        return self._game.cost.marginal(self._game.values, budgets)


def _between(low: float, high: float) -> float:
    """Return a number between two, where one of them may be 0 or infinite."""
    if high == math.inf:
        return 2.0 * low
    return math.sqrt(low * high) if low > 0 else 0.5 * high
