"""Games solved in memory: by the shares that sum to 1, whatever the cost, caps and entry costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.certificate import regrets, regrets_against
from fedbourse.game.costs import Linear
from fedbourse.game.entry import equilibrium_with_entry
from fedbourse.game.profile import Equilibrium, Profile, check, given, labels
from fedbourse.game.rules import plain_game
from fedbourse.game.shares import budgets_at, equilibrium_total

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.game.participants import Kept
    from fedbourse.game.rules import Game


@dataclass(frozen=True)
class Beyond:
    """The owners of whom those in a game are the only ones who may take part."""

    owners: int
    """All of them."""
    kept: Kept
    """Those in the game, and where they stand."""
    sources: dict[str, int]
    cheapest: float
    """No other owner has a value below this."""


def solved_equilibrium(game: Game, beyond: Beyond | None = None) -> Equilibrium:
    """Return the equilibrium of any game, from the total budget at which all shares sum to 1.

    ``beyond`` tells of owners who are not in the game because they stay out of it.
    """
    if game.entry.any():
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
    positions, who = inside, None
    if beyond is not None:
        worst = max(worst, _outsiders_regret(game, beyond.cheapest, total))
        positions, who = labels(beyond.kept.only(budgets > 0), beyond.sources)
    check(worst, game.reward, len(inside))
    exact_price = isinstance(game.cost, Linear) and not game.entry.any()
    chosen = game.only(inside)
    bound_to_owners = game.capped or game.entry.any() or (game.units != 1).any()
    scale = total if len(inside) else 1.0
    profile = Profile(
        participants=positions,
        budgets=budgets[inside] / game.units[inside],
        payments=game.reward * (budgets[inside] / scale),
        utilities=chosen.gross_utilities(budgets[inside], scale) - chosen.entry,
        regret=worst,
        who=who,
    )
    return Equilibrium(
        owners=len(game.values) if beyond is None else beyond.owners,
        count=len(inside),
        reward=game.reward,
        total_budget=float(profile.budgets.sum()),
        threshold=game.reward / total if exact_price else None,
        method=method,
        cheapest=None,
        _solve=partial(given, profile),
        _budgets_of=None if bound_to_owners else partial(_budgets_of, game, root, factor),
        _values=None if bound_to_owners else partial(_values, game.values[inside]),
    )


def _values(values: FloatArray) -> list[FloatArray]:
    return [values]


def _budgets_of(game: Game, root: float, factor: float, values: FloatArray) -> FloatArray:
    shares = game.cost.share(values, root, game.reward)
    return root * np.where(values == game.values.min(), shares, shares * factor)


def _outsiders_regret(game: Game, cheapest: float, total: float) -> float:
    """Return what the cheapest of those who are not in the game would gain by entering."""
    if math.isinf(cheapest):
        return 0.0
    alone = plain_game(np.array([cheapest]), game.cost, game.reward)
    return float(regrets_against(alone, np.zeros(1), np.array([total]), total)[0])
