"""The equilibrium of the owners' game: who takes part, with which budget, for what pay."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.certificate import regrets
from fedbourse.game.costs import Cost, Linear, PrivacyCost, cost_named
from fedbourse.game.entry import equilibrium_with_entry
from fedbourse.game.profile import Equilibrium, Profile, check, given, linear_equilibrium
from fedbourse.game.rules import Game, PayFor, pays_for_information
from fedbourse.game.scan import scan
from fedbourse.game.shares import equilibrium_budgets
from fedbourse.game.stream import Stream, stream_or_column
from fedbourse.game.streamed import streamed_equilibrium
from fedbourse.game.support import Support

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray


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

    ``values`` are a column of numbers; or come in chunks where memory does not hold them: a list,
    an iterator or a function of arrays, an Arrow dataset of one column, a ``Stream``; or are summed
    up in a ``Support``.
    ``entry_cost`` and ``caps`` are one number or one for each owner. With ``pay_for="information"``
    an owner is paid in proportion to samples^2 times its budget, the weight of its answers;
    otherwise ``samples`` plays no part.

    >>> equilibrium([1.0, 1.0, 2.0], reward=8.0).dense()
    array([2., 2., 0.])
    """
    known = cost_named(cost)
    source = values if isinstance(values, Support) else stream_or_column(values)
    free = isinstance(entry_cost, (int, float)) and entry_cost == 0
    plain = caps is None and free and not pays_for_information(pay_for)
    if isinstance(source, Support):
        if not (plain and isinstance(known, Linear)):
            raise InvalidGame(
                f"a Support is for the plain linear cost; found {known.name}"
                + ("" if plain else " with caps, entry costs or pay for information")
            )
        return source.result(reward)
    if isinstance(source, Stream):
        if not plain or known.entry:
            raise InvalidGame(
                "values that come in chunks go without caps, entry costs and pay for information; "
                "give them as one column"
            )
        return streamed_equilibrium(source, reward=reward, cost=known)
    if isinstance(known, Linear) and plain:
        return linear_equilibrium(scan(source), reward=reward)
    game = Game.of(
        source,
        reward=reward,
        cost=known,
        entry_cost=entry_cost,
        caps=caps,
        samples=samples,
        pay_for=pay_for,
    )
    if isinstance(known, Linear) and not game.entry.any() and not game.capped:
        return linear_equilibrium(scan(game.values), reward=reward, units=game.units)
    return _solved(game)


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
    check(worst, game.reward, len(inside))
    exact_price = isinstance(game.cost, Linear) and not game.entry.any()
    chosen = game.only(inside)
    bound_to_owners = game.capped or game.entry.any() or (game.units != 1).any()
    scale = total if len(inside) else 1.0
    profile = Profile(
        participants=inside,
        budgets=budgets[inside] / game.units[inside],
        payments=game.reward * (budgets[inside] / scale),
        utilities=chosen.gross_utilities(budgets[inside], scale) - chosen.entry,
        regret=worst,
    )
    return Equilibrium(
        owners=len(game.values),
        count=len(inside),
        reward=game.reward,
        total_budget=float(profile.budgets.sum()),
        threshold=game.reward / total if exact_price else None,
        method=method,
        cheapest=None,
        _solve=partial(given, profile),
        _budgets_of=None
        if bound_to_owners
        else partial(_budgets_at, game.cost, game.reward, total),
    )


def _budgets_at(cost: Cost, reward: float, total: float, values: FloatArray) -> FloatArray:
    return total * cost.share(values, total, reward)
