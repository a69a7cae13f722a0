"""The equilibrium of the owners' game: who takes part, with which budget, for what pay."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.certificate import largest_linear_regret, regrets, tolerance
from fedbourse.game.costs import Cost, Linear, PrivacyCost, cost_named
from fedbourse.game.entry import equilibrium_with_entry
from fedbourse.game.rules import (
    Game,
    PayFor,
    checked_reward,
    pays_for_information,
)
from fedbourse.game.shares import equilibrium_budgets
from fedbourse.game.support import Participants, Support, array_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray, IntArray


_SMALLEST = 1e-290  # below, doubles have fewer digits than a certificate needs


@dataclass(frozen=True)
class _Profile:
    participants: IntArray
    budgets: FloatArray
    payments: FloatArray
    utilities: FloatArray
    regret: float

    def __post_init__(self) -> None:
        for array in (self.participants, self.budgets, self.payments, self.utilities):
            array.flags.writeable = False


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """A profile of budgets from which no owner gains by deviating, with its certificate.

    ``participants`` are positions in the values given, rising; ``budgets``, ``payments`` and
    ``utilities`` stand in the same order. The arrays are computed when first asked for, from
    numbers that the equilibrium holds itself, and cannot be written to.
    """

    owners: int
    """n, all owners, taking part or not."""
    reward: float
    total_budget: float
    """P, the sum of all budgets."""
    threshold: float | None
    """Linear cost without entry costs: an owner takes part exactly when its value lies below this.
    Where pay is for information, values are meant per unit of it: v / m^2."""
    method: str
    _solve: Callable[[], _Profile] = field(repr=False)

    @cached_property
    def _profile(self) -> _Profile:
        return self._solve()

    @property
    def participants(self) -> IntArray:
        """Return the positions of those who take part."""
        return self._profile.participants

    @property
    def budgets(self) -> FloatArray:
        """Return each participant's budget r, in zCDP."""
        return self._profile.budgets

    @property
    def payments(self) -> FloatArray:
        """Return each participant's pay; they sum to the reward unless nobody takes part."""
        return self._profile.payments

    @property
    def utilities(self) -> FloatArray:
        """Return each participant's pay less its costs."""
        return self._profile.utilities

    @property
    def regret(self) -> float:
        """Return the largest gain that any owner, taking part or not, has from deviating."""
        return self._profile.regret

    def dense(self) -> FloatArray:
        """Return the budgets of all owners as one array, 0 for those who do not take part."""
        if len(self.participants) and self.participants[-1] >= self.owners:
            raise InvalidGame(
                f"dense() needs owners at positions 0 to {self.owners - 1}; "
                f"found position {self.participants[-1]}"
            )
        result = np.zeros(self.owners)
        result[self.participants] = self.budgets
        return result


def equilibrium(
    values: object,
    *,
    reward: float,
    cost: str | PrivacyCost | Cost = "linear",
    entry_cost: object = 0.0,
    caps: object = None,
    samples: object = 1.0,
    pay_for: PayFor = "budget",
) -> Equilibrium:
    """Return the equilibrium of owners with these privacy values who share ``reward``.

    ``entry_cost`` and ``caps`` are one number or one for each owner. With ``pay_for="information"``
    an owner is paid in proportion to samples^2 times its budget, the weight of its answers;
    otherwise ``samples`` plays no part.

    >>> equilibrium([1.0, 1.0, 2.0], reward=8.0).dense()
    array([2., 2., 0.])
    """
    known = cost_named(cost)
    free = isinstance(entry_cost, (int, float)) and entry_cost == 0
    support = Support()
    if isinstance(known, Linear) and caps is None and free and not pays_for_information(pay_for):
        support.add(values)
        return linear_equilibrium(support, reward=reward)
    game = Game.of(
        values,
        reward=reward,
        cost=known,
        entry_cost=entry_cost,
        caps=caps,
        samples=samples,
        pay_for=pay_for,
    )
    if isinstance(known, Linear) and not game.entry.any() and not game.capped:
        support.add(game.values)
        return linear_equilibrium(support, reward=reward, units=game.units)
    return _solved(game)


def nobody(owners: int) -> Equilibrium:
    """Return the equilibrium of a reward of 0: everybody stays silent."""
    nothing = np.zeros(0)
    profile = _Profile(np.zeros(0, np.int64), nothing, nothing, nothing, 0.0)
    return Equilibrium(owners, 0.0, 0.0, None, "no reward", partial(_given, profile))


def linear_equilibrium(
    support: Support, *, reward: float, units: FloatArray | None = None
) -> Equilibrium:
    """Return the linear cost's equilibrium of all owners that a support has seen.

    Where one unit of an owner's budget counts as ``units``, the support holds v / units.
    """
    amount = checked_reward(reward)
    found = support.participants()
    tau = found.threshold.tau
    total = amount / tau
    if not (_SMALLEST < tau < np.inf and _SMALLEST < total < np.inf):
        raise InvalidGame(
            f"the total budget, reward {amount:g} / threshold {tau:g}, lies beyond what a float "
            "can hold; measure values or reward in other units"
        )
    smallest = found.threshold.margin / found.threshold.total  # the dearest participant's share
    if not smallest * amount > 0:
        raise InvalidGame(
            f"an owner's pay lies below what a float can hold: values from "
            f"{found.threshold.cheapest:g} to {found.threshold.dearest:g} are too far apart"
        )
    solve = partial(_linear_profile, found, amount, total, units)
    return Equilibrium(
        owners=support.owners,
        reward=amount,
        total_budget=total if units is None else float(solve().budgets.sum()),
        threshold=tau,
        method="linear, exact: Algorithm 2 without a sort",
        _solve=solve,
    )


def _linear_profile(
    found: Participants, reward: float, total: float, units: FloatArray | None
) -> _Profile:
    """Return s = (D + (K-1)(v_K - v)) / sum of v, in which nothing cancels, and what follows."""
    limit = found.threshold
    positions = array_of(found.positions)
    shares = limit.dearest - found.values
    shares *= limit.count - 1
    shares += limit.margin
    shares /= limit.total
    budgets = total * shares
    # Of all outsiders the cheapest would gain most by entering: (sqrt R - sqrt(v P))^2, if at all.
    short = max(0.0, math.sqrt(reward) - math.sqrt(found.cheapest_outsider) * math.sqrt(total))
    worst = max(largest_linear_regret(found.values, budgets, reward), short**2)
    _check(worst, reward, limit.count)
    return _Profile(
        participants=positions,
        budgets=budgets if units is None else budgets / units[positions],
        payments=reward * shares,
        utilities=reward * shares**2,
        regret=worst,
    )


def _solved(game: Game) -> Equilibrium:
    """Solve any game by shares, from the largest total budget at which they sum to 1."""
    if game.entry.any():
        budgets = equilibrium_with_entry(game)
        method = f"{game.cost.name}, entry costs: highest limits first, certified"
    else:
        budgets = equilibrium_budgets(game)
        method = f"{game.cost.name}: root of the shares' sum"
        if np.count_nonzero(budgets) < 2:
            raise InvalidGame(
                f"values from {game.values.min():g} to {game.values.max():g} are too far apart for "
                "a float to hold the second owner's share"
            )
    inside = np.flatnonzero(budgets)
    total = float(budgets.sum())
    worst = float(regrets(game, budgets).max())
    _check(worst, game.reward, len(inside))
    exact_price = isinstance(game.cost, Linear) and not game.entry.any()
    chosen = game.only(inside)
    scale = total if len(inside) else 1.0
    profile = _Profile(
        participants=inside,
        budgets=budgets[inside] / game.units[inside],
        payments=game.reward * (budgets[inside] / scale),
        utilities=chosen.gross_utilities(budgets[inside], scale) - chosen.entry,
        regret=worst,
    )
    return Equilibrium(
        owners=len(game.values),
        reward=game.reward,
        total_budget=float(profile.budgets.sum()),
        threshold=game.reward / total if exact_price else None,
        method=method,
        _solve=partial(_given, profile),
    )


def _check(regret: float, reward: float, participants: int) -> None:
    """Let no profile pass without its certificate."""
    if not regret <= tolerance(reward, participants):
        raise NoEquilibrium(
            f"the profile found is no equilibrium: an owner would gain {regret:.3g} by deviating, "
            f"more than {tolerance(reward, participants):.3g}; is the cost convex throughout?"
        )


def _given(profile: _Profile) -> _Profile:
    return profile
