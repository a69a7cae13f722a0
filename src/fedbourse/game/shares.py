"""The equilibrium of any convex cost: the total budget at which all shares sum to one.

Every owner's share s(P) falls in the total budget P, from 1 towards 0, and a cap only cuts it to
min(cap / P, s(P)), which falls too. So their sum crosses 1 once, whatever the costs and caps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import NoEquilibrium
from fedbourse.game.roots import falling_root
from fedbourse.game.rules import all_but

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.game.rules import Game


def equilibrium_budgets(game: Game, start: float = 1.0) -> FloatArray:
    """Return everybody's equilibrium budget."""
    return budgets_at(game, equilibrium_total(game, start))[0]


def budgets_at(game: Game, total: float) -> tuple[FloatArray, float]:
    """Return everybody's budget at the equilibrium's total, and a factor near 1.

    A double holds the total to sixteen digits, and where many owners stand close to the threshold
    their shares hang on the seventeenth. If one owner holds more than half, the others' shares must
    sum to what it leaves, so they are scaled to that, by the factor.
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
