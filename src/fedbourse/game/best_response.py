"""An owner's best response to the others' total budget."""

from __future__ import annotations

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.columns import BoolArray, FloatArray
from fedbourse.game.costs import Cost, Linear, PrivacyCost
from fedbourse.game.game import Game, checked_reward
from fedbourse.game.roots import falling_roots
from fedbourse.units import number


def best_response(
    value: float,
    others_total: float,
    *,
    reward: float,
    cost: str | PrivacyCost | Cost = "linear",
    entry_cost: float = 0.0,
    cap: float | None = None,
) -> float:
    """Return the budget that is best for one owner when the others' budgets sum to others_total.

    >>> best_response(1.0, 1.0, reward=4.0)
    1.0
    """
    value = number("value", value, above=0, error=InvalidGame)
    others = number("others_total", others_total, at_least=0, error=InvalidGame)
    if others == 0:
        checked_reward(reward)
        raise InvalidGame(
            "others_total must be above 0; found 0: with no competitor a smaller budget is always "
            "better, so there is no best response"
        )
    caps = None if cap is None else [cap, cap]
    game = Game.of([value, value], reward=reward, cost=cost, entry_cost=entry_cost, caps=caps)
    budget = best_responses(game, np.full(2, others))
    gain = game.gross_utilities(budget, budget + others) - game.entry
    return float(budget[0]) if gain[0] > 0 else 0.0


def best_responses(game: Game, others: FloatArray) -> FloatArray:
    """Return each owner's best budget once it takes part, entry costs left aside.

    The owner's utility is concave, so a cap cuts the best budget off and changes nothing else.
    Where the others' budgets are 0 there is no best response, and the result is 0.
    """
    with np.errstate(all="ignore"):
        if isinstance(game.cost, Linear):
            # sqrt(R Q / v) - Q, written as a quotient so that nothing cancels.
            room = np.maximum(0.0, game.reward - game.values * others)
            root = np.sqrt(game.reward) * np.sqrt(others / game.values)
            budgets = np.where(others > 0, others / game.values * room / (root + others), 0.0)
        else:
            budgets = _solve(game, others)
    return np.minimum(budgets, game.caps)


def _solve(game: Game, others: FloatArray) -> FloatArray:
    """Solve R Q / (Q + r)^2 = c'(v, r), all owners at once."""

    def too_small(r: FloatArray) -> BoolArray:
        both = others + r
        return game.reward / both * (others / both) > game.cost.marginal(game.values, r)

    wanted = game.reward / others > game.cost.marginal(game.values, np.zeros_like(others))
    return np.where(wanted & (others > 0), falling_roots(too_small, others.shape), 0.0)
