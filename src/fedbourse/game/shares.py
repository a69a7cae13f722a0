"""The equilibrium of any convex cost: the total budget at which all shares sum to one.

Every owner's share s(P) falls in the total budget P, from 1 towards 0, and a cap only cuts it to
min(cap / P, s(P)), which falls too. So their sum crosses 1 once, whatever the costs and caps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.errors import NoEquilibrium
from fedbourse.game.roots import falling_root

if TYPE_CHECKING:
    from fedbourse.game.rules import Game


def equilibrium_total(game: Game, start: float = 1.0) -> float:
    """Return the total budget at which all owners' shares sum to 1; look first at ``start``."""
    able = int((game.caps > 0).sum())
    if able < 2:
        raise NoEquilibrium(
            f"only {able} owner{'s' * (able != 1)} may spend anything (a cap above 0); "
            "an equilibrium needs two who compete"
        )
    return falling_root(lambda total: float(game.shares(total).sum()) - 1.0, start)
