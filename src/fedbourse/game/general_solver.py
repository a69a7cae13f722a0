"""Games solved in memory: by the shares that sum to 1, whatever the cost, caps and entry costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.certificate import regrets, regrets_against
from fedbourse.game.columns import FloatArray
from fedbourse.game.costs import Linear
from fedbourse.game.entry import equilibrium_with_entry
from fedbourse.game.game import Game, budgets_at, equilibrium_total, plain_game
from fedbourse.game.participants import OwnerTable
from fedbourse.game.profile import Equilibrium, Profile, check_regret, labels


@dataclass(frozen=True)
class Population:
    """All owners, where a game holds only those of them who may take part."""

    owners: int
    """All of them."""
    table: OwnerTable
    """Those in the game."""
    sources: dict[str, int]
    cheapest: float
    """No owner outside the game has a value below this."""


def solve_game(game: Game, population: Population | None = None) -> Equilibrium:
    """Return the equilibrium of any game, from the total budget at which all shares sum to 1.

    ``population`` describes owners who are not in the game because they stay out of it.
    """
    has_entry_costs = bool(game.entry.any())
    if has_entry_costs:
        budgets, root, factor = equilibrium_with_entry(game), 0.0, 1.0
        method = f"{game.cost.name}, entry costs: highest limits first, certified"
    else:
        root = equilibrium_total(game)
        budgets, factor = budgets_at(game, root)
        method = f"{game.cost.name}: root of the shares' sum"
        if np.count_nonzero(budgets) < 2:
            raise InvalidGame(
                f"values from {game.values.min():g} to {game.values.max():g} are too far apart for "
                "a float to hold the second owner's share"
            )
    inside = np.flatnonzero(budgets)
    total = float(budgets.sum())
    worst = float(regrets(game, budgets).max())
    positions, who, owners = inside, None, len(game.values)
    if population is not None:
        worst = max(worst, _outsiders_regret(game, population.cheapest, total))
        positions, who = labels(population.table.only(budgets > 0), population.sources)
        owners = population.owners
    check_regret(worst, game.reward, len(inside))
    members = game.only(inside)
    scale = total if len(inside) else 1.0
    profile = Profile(
        participants=positions,
        budgets=budgets[inside] / members.units,
        payments=game.reward * (budgets[inside] / scale),
        utilities=members.gross_utilities(budgets[inside], scale) - members.entry,
        regret=worst,
        who=who,
        values=None if (game.units != 1).any() else members.values,
    )
    by_value = not (game.capped or has_entry_costs or (game.units != 1).any())
    return Equilibrium(
        owners=owners,
        count=len(inside),
        reward=game.reward,
        total_budget=float(profile.budgets.sum()),
        cutoff=game.reward / total
        if isinstance(game.cost, Linear) and not has_entry_costs
        else None,
        method=method,
        cheapest=None,
        _solve=profile,
        _budgets_of=partial(_budgets_of, game, root, factor) if by_value else None,
        _values=partial(list, [members.values]) if by_value else None,
    )


def _budgets_of(game: Game, root: float, factor: float, values: FloatArray) -> FloatArray:
    shares = game.cost.share(values, root, game.reward)
    return root * np.where(values == game.values.min(), shares, shares * factor)


def _outsiders_regret(game: Game, cheapest: float, total: float) -> float:
    """Return what the cheapest of those who are not in the game would gain by entering."""
    if math.isinf(cheapest):
        return 0.0
    alone = plain_game(np.array([cheapest]), game.cost, game.reward)
    return float(regrets_against(alone, np.zeros(1), np.array([total]), total)[0])
