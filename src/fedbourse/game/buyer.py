"""The buyer's side of the game: what a reward buys, and what that is worth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedbourse.errors import NoEquilibrium
from fedbourse.game.accuracy import Accuracy, CustomAccuracy
from fedbourse.game.columns import FloatArray, IntArray
from fedbourse.game.continuation import Continuation
from fedbourse.game.costs import Cost, Custom, Exponential, Linear
from fedbourse.game.entry import equilibrium_with_entry
from fedbourse.game.equilibrium import equilibrium
from fedbourse.game.game import Game, PayFor, equilibrium_budgets, equilibrium_total
from fedbourse.game.profile import Equilibrium
from fedbourse.game.quadrature import FEW, budget_quadrature
from fedbourse.game.reward.search import Probe
from fedbourse.game.training import Training


@dataclass(frozen=True)
class Buyer:
    """All that a best reward depends on, except the owners' values."""

    training: Training
    accuracy_value: float
    """What an accuracy of 1 is worth, in units of reward: the paper's lambda."""
    accuracy: Accuracy | CustomAccuracy
    cost: Cost
    entry_cost: object
    caps: object
    pay_for: PayFor

    @property
    def gain(self) -> float:
        """Return the worth of perfect training over a guess: no reward above it can pay."""
        return self.accuracy_value * self.accuracy.range

    @property
    def scaling(self) -> float | None:
        """Return g where all budgets grow as R^(1/g); None where they do not."""
        free = isinstance(self.entry_cost, (int, float)) and self.entry_cost == 0
        return self.cost.degree if free and self.caps is None else None

    @property
    def formula(self) -> Accuracy | None:
        """Return the accuracy model if it is ours, whose utility is concave where budgets scale."""
        return self.accuracy if isinstance(self.accuracy, Accuracy) else None

    def equilibrium(self, values: object, reward: float) -> Equilibrium:
        """Return the equilibrium of owners with these values at a reward."""
        result = equilibrium(values, reward=reward, **self._game_options)
        self.training.check_owners(result.owners)
        return result

    @property
    def _game_options(self) -> dict[str, Any]:
        return {
            "cost": self.cost,
            "entry_cost": self.entry_cost,
            "caps": self.caps,
            "samples": self.training.samples,
            "pay_for": self.pay_for,
        }

    def precisions(self, profile: Equilibrium) -> tuple[FloatArray, FloatArray | None]:
        """Return precisions of participants' updates, and of how many owners each, if not one."""
        factor = self.training.noise_factor
        if profile.count <= FEW or not isinstance(factor, float) or self.formula is None:
            return self.training.precisions(profile.budgets, profile.participants), None
        budgets, multiplicities = budget_quadrature(profile)
        return budgets / factor, multiplicities

    def prober(self, values: object) -> Callable[[float], Probe]:
        """Return the buyer's utility as a function of the reward, stage two solved at each.

        The rewards looked at may go up to ``gain``.
        """
        if self.scaling is not None:
            base = self.equilibrium(values, 1.0)
            return self.scaled_probe(base, *self.precisions(base))
        everybody = Game.of(values, reward=self.gain, **self._game_options)
        owners = len(everybody.values)
        self.training.check_owners(owners)
        able = _who_may_take_part(everybody)
        game = everybody.only(able)
        budgets_at = _solver(game)

        def probe(reward: float) -> Probe:
            try:
                budgets = budgets_at(reward)
            except NoEquilibrium:
                return Probe(reward, -math.inf, b"none")
            inside = np.flatnonzero(budgets)
            precisions = self.training.precisions(
                budgets[inside] / game.units[inside], able[inside]
            )
            utility = self.utility(precisions, None, owners, reward)
            return Probe(reward, utility, inside.tobytes())

        return probe

    def scaled_probe(
        self, base: Equilibrium, precisions: FloatArray, multiplicities: FloatArray | None
    ) -> Callable[[float], Probe]:
        """Return the same where budgets scale; ``base`` is the equilibrium at a reward of 1."""
        who = np.ones(base.count, np.int64).tobytes()  # the same at every reward
        power = 1.0 / (self.scaling or 1.0)

        def probe(reward: float) -> Probe:
            scaled = precisions * reward**power
            return Probe(reward, self.utility(scaled, multiplicities, base.owners, reward), who)

        return probe

    def nothing(self, owners: int) -> float:
        """Return the buyer's utility where nobody takes part and nothing is paid."""
        return self.utility(np.empty(0), None, owners, 0.0)

    def utility(
        self, precisions: FloatArray, multiplicities: FloatArray | None, owners: int, reward: float
    ) -> float:
        """Return the worth of the model less what was paid; with nobody to pay, nothing is."""
        paid = reward if len(precisions) else 0.0
        return self.accuracy_value * self.accuracy.of(precisions, owners, multiplicities) - paid


def _solver(game: Game) -> Callable[[float], FloatArray]:
    """Return everybody's equilibrium budgets as a function of the reward."""
    if game.entry.any():
        return lambda reward: equilibrium_with_entry(replace(game, reward=reward))
    if isinstance(game.cost, Custom):
        return Continuation(game).budgets
    total = 1.0  # of the last reward: the next one's is near

    def budgets(reward: float) -> FloatArray:
        nonlocal total
        result = equilibrium_budgets(replace(game, reward=reward), start=total)
        total = float(result.sum())
        return result

    return budgets


def _who_may_take_part(game: Game) -> IntArray:
    """Return the owners who may take part at any reward up to the game's own.

    For linear and exponential costs without caps, whoever stays out at the largest reward stays out
    at every smaller one, and an equal entry cost only keeps out more owners of high value.
    """
    if game.capped or np.ptp(game.entry) or not isinstance(game.cost, (Linear, Exponential)):
        return np.arange(len(game.values))
    free = replace(game, entry=np.zeros_like(game.entry))
    return np.flatnonzero(free.shares(equilibrium_total(free)))
