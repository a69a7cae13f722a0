"""Equilibria where taking part costs something before the first unit of budget.

An owner's utility in an equilibrium of total budget P falls in P, so it takes part at a profit only
while P is at most its own limit. Start with two owners, go through the others from the highest
limit down, and admit each whose limit still holds once it is in; skip the others, do not stop. The
result is an equilibrium if outsiders do not gain by entering nor insiders by leaving: the
certificate decides. Where the two owners of the highest limits lead to none, other pairs may.
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np

from fedbourse.errors import NoEquilibrium
from fedbourse.game.certificate import regrets, tolerance
from fedbourse.game.columns import BoolArray, FloatArray, IntArray
from fedbourse.game.costs import Linear, PaperExponential
from fedbourse.game.game import Game, equilibrium_budgets
from fedbourse.game.roots import falling_roots

PAIRS = 300
"""Starting pairs that are tried: every pair of the 25 owners with the highest limits."""

# With equal linear costs of entry up to this share of the reward, a cheapest pair that fails proves
# that there is no equilibrium: sqrt(k/R) = (3 - sqrt 5)/2.
_PROOF_LIMIT = ((3.0 - math.sqrt(5.0)) / 2.0) ** 2


def equilibrium_with_entry(game: Game) -> FloatArray:
    """Return everybody's equilibrium budget (0 for outsiders), or raise ``NoEquilibrium``."""
    able = np.flatnonzero((game.entry < game.reward) & (game.caps > 0))
    if len(able) == 0:
        return np.zeros_like(game.values)
    if len(able) == 1:
        raise NoEquilibrium(
            f"only owner {able[0]} could profit from the reward {game.reward:g} after its entry "
            "cost, and one owner alone has no best response"
        )
    if np.partition(game.entry[able], 1)[:2].sum() >= game.reward:
        raise NoEquilibrium(
            f"no equilibrium: the two lowest entry costs alone use up the reward {game.reward:g}, "
            "and whoever could profit alone would enter"
        )
    limits = _limits(game.only(able))
    queue = np.lexsort((game.values[able], -limits))
    able, limits = able[queue], limits[queue]
    pairs = ((i, j) for j in range(len(able)) for i in range(j))  # of the first owners first
    for pair in islice(pairs, PAIRS):
        inside = _fill(game.only(able), limits, pair)
        if inside is not None:
            members = able[inside]
            budgets = np.zeros_like(game.values)
            budgets[members] = equilibrium_budgets(game.only(members))
            if regrets(game, budgets).max() <= tolerance(game.reward, len(inside)):
                return budgets
        elif pair == (0, 1) and (proof := _proof_of_none(game)):
            raise NoEquilibrium(proof)
    count = len(able) * (len(able) - 1) // 2
    raise NoEquilibrium(
        f"no equilibrium found for reward {game.reward:g} and these entry costs: "
        f"{min(count, PAIRS)} of {count} starting pairs tried, and each time an owner gains by "
        "entering or leaving"
    )


def _limits(game: Game) -> FloatArray:
    """Return the largest total budget at which each owner still earns its entry cost.

    Free entry has no limit: an owner's share then falls to 0 smoothly.
    """

    def earns(totals: FloatArray) -> BoolArray:
        return game.gross_utilities(game.shares(totals) * totals, totals) >= game.entry

    return np.where(game.entry > 0, falling_roots(earns, game.values.shape), np.inf)


def _fill(game: Game, limits: FloatArray, pair: tuple[int, int]) -> IntArray | None:
    """Return who takes part when ``pair`` starts, or None where the pair itself does not fit."""
    inside = np.array(pair)
    lowest = float(limits[inside].min())
    if not _fits(game, inside, lowest):
        return None
    queue = np.delete(np.arange(len(limits)), pair)
    while len(queue):
        run = _longest_run(game, inside, queue, limits, lowest)
        inside, queue = np.append(inside, queue[:run]), queue[run:]
        lowest = float(limits[inside].min())
        if len(queue) and not _fits(game, inside, float(limits[queue[0]])):
            break  # the total is above this limit already, and so above all that follow
        queue = queue[1:]
    return inside


def _longest_run(
    game: Game, inside: IntArray, queue: IntArray, limits: FloatArray, lowest: float
) -> int:
    """Return how many owners at the head of the queue can all be let in: gallop, then bisect."""

    def fits(run: int) -> bool:
        members = np.append(inside, queue[:run])
        return _fits(game, members, min(lowest, float(limits[queue[run - 1]])))

    good, bad = 0, 1
    while bad <= len(queue) and fits(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, len(queue) + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _fits(game: Game, members: IntArray, total: float) -> bool:
    """Say whether the members' own equilibrium has at most this total budget."""
    return math.isinf(total) or bool(game.only(members).shares(total).sum() <= 1.0 + 1e-12)


def _proof_of_none(game: Game) -> str:
    """Say why there can be no equilibrium once the first pair does not fit, if that is proved."""
    if game.capped or np.ptp(game.entry):
        return ""
    entry = float(game.entry[0])
    if isinstance(game.cost, Linear) and entry <= _PROOF_LIMIT * game.reward:
        return (
            f"no equilibrium: the two cheapest owners cannot both earn the entry cost {entry:g} "
            f"from the reward {game.reward:g}, and each would enter if the other stayed out"
        )
    if isinstance(game.cost, PaperExponential) and game.reward < 2 * math.sqrt(math.e):
        return (
            f"no equilibrium: exp(v r) costs 1 at the start, and below a reward of 2 sqrt(e) = "
            f"{2 * math.sqrt(math.e):.4f} no two owners can both earn that; found {game.reward:g}"
        )
    return ""
