"""How much any owner could gain by another budget: the certificate that every equilibrium carries.

It is about one owner who changes its budget once, while all others keep theirs. What owners gain
by making others change theirs is another question: see ``study deviations``.
"""

from __future__ import annotations

import math

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.array_spans import blocks, on_every_core
from fedbourse.game.best_response import best_responses
from fedbourse.game.column_files import loaded
from fedbourse.game.columns import FloatArray, per_owner
from fedbourse.game.costs import Cost, Linear, PrivacyCost
from fedbourse.game.game import Game, PayFor, all_but

_EPS = float(np.finfo(float).eps)


def regret(
    values: object,
    budgets: object,
    *,
    reward: float,
    cost: str | PrivacyCost | Cost = "linear",
    entry_cost: object = 0.0,
    caps: object = None,
    samples: object = 1.0,
    pay_for: PayFor = "budget",
) -> float:
    """Return the largest gain that any owner could make by changing its own budget.

    Exact for the linear cost without caps. Otherwise an upper bound by concavity: the slope of the
    owner's utility at its budget times the distance to its best response, where that is smaller.

    >>> regret([1.0, 1.0], [0.25, 0.25], reward=1.0)
    0.0
    """
    game = Game.of(
        values,
        reward=reward,
        cost=cost,
        entry_cost=entry_cost,
        caps=caps,
        samples=samples,
        pay_for=pay_for,
    )
    plan = per_owner("budgets", loaded("budgets", budgets, "budget"), len(game.values))
    plan = plan * game.units
    over = np.flatnonzero(plan > game.caps)
    if len(over):
        i = int(over[0])
        cap, budget = game.caps[i] / game.units[i], plan[i] / game.units[i]
        raise InvalidGame(f"budgets[{i}] must be at most its cap {cap:g}; found {budget:g}")
    return float(regrets(game, plan).max())


def largest_linear_regret(values: FloatArray, budgets: FloatArray, reward: float) -> float:
    """Return the largest regret of the linear cost without caps and entry costs, block by block."""
    total = float(budgets.sum())
    largest = int(np.argmax(budgets))
    rivals = all_but(budgets, largest)

    def work(start: int, stop: int) -> float:
        worst = 0.0
        for low, high in blocks(start, stop):
            others = total - budgets[low:high]
            if low <= largest < high:
                others[largest - low] = rivals
            gain = _linear_gain(values[low:high], budgets[low:high], others, total, reward)
            worst = max(worst, float(gain.max()))
        return worst

    return max(on_every_core(work, len(values)))


def tolerance(reward: float, participants: int) -> float:
    """Return the largest regret at which a profile counts as an equilibrium: 1e-9 R / K^2.

    The square matters: with many owners each share is of order 1/K and each utility of order
    1/K^2, so that a bound in R alone would pass profiles in which a tenth of the owners is missing.
    """
    return 1e-9 * reward / max(participants, 1) ** 2


def regrets(game: Game, budgets: FloatArray) -> FloatArray:
    """Return what each owner could gain by changing its own budget, or by leaving or entering."""
    with np.errstate(over="ignore"):
        total = float(budgets.sum())
    if math.isinf(total):
        raise InvalidGame("budgets must sum to a finite number; found inf")
    if total == 0:  # with no competitor the smallest budget takes the whole reward
        return np.maximum(0.0, game.reward - game.entry)
    return regrets_against(game, budgets, _others(budgets, total), total)


def regrets_against(
    game: Game, budgets: FloatArray, others: FloatArray, total: float
) -> FloatArray:
    """Return the same for some of the owners, given each one's sum of all others' budgets."""
    with np.errstate(all="ignore"):
        if isinstance(game.cost, Linear) and not game.capped:
            gain = _linear_gain(game.values, budgets, others, total, game.reward)
        else:
            gain = _convex_gain(game, budgets, others, total)
        # Whoever takes part may leave and save its entry cost; whoever does not must pay it.
        now = game.gross_utilities(budgets, total)
        rounding = 4 * _EPS * (game.reward * budgets / total + game.cost.cost(game.values, budgets))
        leaving = np.where(game.entry > 0, game.entry - now - rounding, 0.0)
        result: FloatArray = np.where(
            budgets > 0, np.fmax(gain, leaving), np.maximum(0.0, gain - game.entry)
        )
    return result


def _others(budgets: FloatArray, total: float) -> FloatArray:
    """Return the sum of the others' budgets, for each owner; only the largest can cancel."""
    others: FloatArray = total - budgets
    largest = int(np.argmax(budgets))
    others[largest] = all_but(budgets, largest)
    return np.maximum(others, 0.0)


def _linear_gain(
    v: FloatArray, budgets: FloatArray, others: FloatArray, total: float, reward: float
) -> FloatArray:
    """Return (sqrt(v P) - sqrt(R Q / P))^2 where a response exists, else what staying costs."""
    with np.errstate(all="ignore"):
        gain = (np.sqrt(v * total) - math.sqrt(reward) * np.sqrt(others / total)) ** 2
        return np.where(v * others < reward, gain, budgets * v - reward * (budgets / total))


def _convex_gain(game: Game, budgets: FloatArray, others: FloatArray, total: float) -> FloatArray:
    responses = best_responses(game, others)
    slope = game.reward * (others / total) / total - game.cost.marginal(game.values, budgets)
    bound = np.abs(slope) * np.abs(responses - budgets)
    better = game.gross_utilities(responses, responses + others)
    now = game.gross_utilities(budgets, total)
    rounding = 8 * _EPS * (game.reward + game.cost.cost(game.values, budgets))
    gain = np.fmin(bound, np.maximum(0.0, better - now) + rounding)
    # With no competitor a smaller budget is always better: all of the cost could be saved.
    return np.where(others > 0, gain, game.cost.cost(game.values, budgets))
