"""The owners' game, and its equilibrium for any convex cost: all shares sum to one.

Every owner's share s(P) falls in the total budget P, from 1 towards 0, and a cap only cuts it to
min(cap / P, s(P)), which falls too. So their sum crosses 1 once, whatever the costs and caps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.column_files import loaded
from fedbourse.game.columns import FloatArray, per_owner, positive, refuse_first
from fedbourse.game.costs import Cost, Custom, PrivacyCost, Totals, cost_named
from fedbourse.game.roots import falling_root
from fedbourse.units import number

PayFor = Literal["budget", "information"]
"""What pay is in proportion to: the budget r (the paper), or the information m^2 r."""


@dataclass(frozen=True)
class Game:
    """Owners with values, entry costs and caps share a reward in proportion to their budgets."""

    values: FloatArray
    reward: float
    cost: Cost
    entry: FloatArray
    """What taking part costs each owner before the first unit of budget."""
    caps: FloatArray
    """Each owner's largest budget; infinite where there is none."""
    units: FloatArray
    """What a unit of each owner's budget counts as: 1 where pay is for the budget, m^2 where it is
    for information. Values, caps and all budgets of the game are in these units."""

    @classmethod
    def of(
        cls,
        values: object,
        *,
        reward: object,
        cost: str | PrivacyCost | Cost = "linear",
        entry_cost: object = 0.0,
        caps: object = None,
        samples: object = 1.0,
        pay_for: PayFor = "budget",
    ) -> Game:
        """Check everything once and return the game."""
        family = cost_named(cost)
        amount = checked_reward(reward)
        column = positive("values", loaded("values", values, "value"))
        if len(column) < 2:
            raise InvalidGame(too_few(len(column)))
        if isinstance(family, Custom):
            family.check_on_grid(column, amount)
        entry_cost = loaded("entry_cost", entry_cost)
        entry = per_owner("entry_cost", entry_cost, len(column)) + family.entry
        caps = np.inf if caps is None else loaded("caps", caps, "cap")
        limits = per_owner("caps", caps, len(column), infinite=True)
        units = np.ones(len(column))
        if pays_for_information(pay_for):
            records = per_owner("samples", loaded("samples", samples), len(column))
            refuse_first("samples", records, records == 0, "above 0 where pay is for information")
            units = records**2
            column, limits = family.per_unit(column, units), limits * units
        return cls(column, amount, family, entry, limits, units)

    @property
    def capped(self) -> bool:
        """Say whether any owner has a largest budget."""
        return bool(np.isfinite(self.caps).any())

    def only(self, owners: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Game:
        """Return the game of some of the owners."""
        return replace(
            self,
            values=self.values[owners],
            entry=self.entry[owners],
            caps=self.caps[owners],
            units=self.units[owners],
        )

    def shares(self, total: Totals) -> FloatArray:
        """Return each owner's share of the total budget, were it to take part; falls in total."""
        shares = self.cost.share(self.values, total, self.reward)
        with np.errstate(over="ignore"):
            return np.minimum(shares, self.caps / total) if self.capped else shares

    def excess(self, total: float) -> float:
        """Return by how much all shares sum to more than 1; no digit is lost to a large one."""
        shares = self.shares(total)
        largest = int(np.argmax(shares))
        if shares[largest] < 0.5:
            return float(shares.sum()) - 1.0
        return all_but(shares, largest) - self.rest(largest, total)

    def rest(self, owner: int, total: float) -> float:
        """Return the part of the total that an owner would leave to the others: 1 - s."""
        rest = float(self.cost.rest(self.values[owner : owner + 1], total, self.reward)[0])
        return max(rest, 1.0 - float(self.caps[owner]) / total)

    def gross_utilities(self, budgets: FloatArray, total: Totals) -> FloatArray:
        """Return pay less privacy cost, entry costs left aside."""
        with np.errstate(all="ignore"):
            return self.reward * (budgets / total) - self.cost.cost(self.values, budgets)


def equilibrium_budgets(game: Game, start: float = 1.0) -> FloatArray:
    """Return everybody's equilibrium budget."""
    return budgets_at(game, equilibrium_total(game, start))[0]


def budgets_at(game: Game, total: float) -> tuple[FloatArray, float]:
    """Return everybody's budget at the equilibrium's total, and a factor near 1.

    A double holds the total to sixteen digits, and where many owners stand close to the cutoff
    their shares depend on the seventeenth. If one owner holds more than half, the others' shares
    must sum to what it leaves, so they are scaled to that, by the factor.
    """
    shares, factor = game.shares(total), 1.0
    largest = int(np.argmax(shares))
    others = all_but(shares, largest)
    if shares[largest] >= 0.5 and others > 0:
        own, factor = shares[largest], game.rest(largest, total) / others
        shares = np.minimum(shares * factor, game.caps / total)
        shares[largest] = own
    return shares * total, factor


def equilibrium_total(game: Game, start: float = 1.0) -> float:
    """Return the total budget at which all owners' shares sum to 1; look first at ``start``."""
    able = int((game.caps > 0).sum())
    if able < 2:
        raise NoEquilibrium(
            f"only {able} owner{'s' * (able != 1)} may spend anything (a cap above 0); "
            "an equilibrium needs two who compete"
        )
    return falling_root(game.excess, start)


def plain_game(values: FloatArray, cost: Cost, reward: float) -> Game:
    """Return the game of owners whose values are checked, without caps and entry costs."""
    ones = np.ones(len(values))
    return Game(values, reward, cost, entry=0.0 * ones, caps=np.inf * ones, units=ones)


def all_but(numbers: FloatArray, one: int) -> float:
    """Return the sum of all numbers but one, which may be much larger than the others."""
    return float(numbers[:one].sum() + numbers[one + 1 :].sum())


def pays_for_information(pay_for: str) -> bool:
    """Say whether pay is for information, not for the budget."""
    if pay_for not in ("budget", "information"):
        raise InvalidGame(f"pay_for must be 'budget' or 'information'; found {pay_for!r:.60}")
    return pay_for == "information"


def checked_reward(reward: object) -> float:
    """Return the reward as a float above 0."""
    return number("reward", reward, above=0, error=InvalidGame)


def too_few(owners: int) -> str:
    """Say that a game needs two owners."""
    alone = " (one owner alone has no best response)" if owners else ""
    return f"a game needs at least two owners; found {owners}{alone}"
