"""The equilibrium of the owners' game: who takes part, with which budget, for what pay."""

from __future__ import annotations

from fedbourse.errors import InvalidGame
from fedbourse.game.costs import Cost, Linear, PrivacyCost, cost_named
from fedbourse.game.profile import Equilibrium, linear_equilibrium
from fedbourse.game.rules import Game, PayFor, pays_for_information
from fedbourse.game.scan import scan
from fedbourse.game.solved import solved_equilibrium
from fedbourse.game.stream import Stream, stream_or_column
from fedbourse.game.streamed import streamed_equilibrium
from fedbourse.game.support import Support


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
    return solved_equilibrium(game)
