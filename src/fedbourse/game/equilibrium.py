"""The equilibrium of the owners' game: who takes part, with which budget, for what pay."""

from __future__ import annotations

from fedbourse.errors import InvalidGame
from fedbourse.game.array_scan import scan
from fedbourse.game.costs import Cost, Linear, PrivacyCost, cost_named
from fedbourse.game.game import Game, PayFor, pays_for_information
from fedbourse.game.general_solver import solve_game
from fedbourse.game.outofcore.participant_sketch import ParticipantSketch
from fedbourse.game.outofcore.stream import Stream, stream_or_column
from fedbourse.game.outofcore.stream_solver import solve_stream
from fedbourse.game.profile import Equilibrium, linear_equilibrium


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

    ``values`` are a column of numbers: a list, an array, a pandas, Arrow or Polars column, a frame
    of one column, a lazy frame, or a path or ``FILE:COLUMN``, as may be all other columns. Or they
    come in chunks where memory does not hold them: a list, an iterator or a function of arrays, an
    Arrow dataset of one column, a ``Stream``; or are summed up in a ``ParticipantSketch``.
    ``entry_cost`` and ``caps`` are one number or one for each owner. With ``pay_for="information"``
    an owner is paid in proportion to samples^2 times its budget, the precision of its updates;
    otherwise ``samples`` plays no part.

    >>> equilibrium([1.0, 1.0, 2.0], reward=8.0).dense()
    array([2., 2., 0.])
    """
    family = cost_named(cost)
    source = values if isinstance(values, ParticipantSketch) else stream_or_column(values)
    linear = isinstance(family, Linear)
    free = isinstance(entry_cost, (int, float)) and entry_cost == 0
    plain = caps is None and free and not pays_for_information(pay_for)
    if isinstance(source, ParticipantSketch):
        if not (plain and linear):
            raise InvalidGame(
                f"a ParticipantSketch is for the plain linear cost; found {family.name}"
                + ("" if plain else " with caps, entry costs or pay for information")
            )
        return source.result(reward)
    if isinstance(source, Stream):
        if not plain or family.entry:
            raise InvalidGame(
                "values in chunks cannot be combined with caps, entry costs or pay for "
                "information; give them as one column"
            )
        return solve_stream(source, reward=reward, cost=family)
    if linear and plain:
        return linear_equilibrium(scan(source), reward)
    game = Game.of(
        source,
        reward=reward,
        cost=family,
        entry_cost=entry_cost,
        caps=caps,
        samples=samples,
        pay_for=pay_for,
    )
    if linear and not game.entry.any() and not game.capped:
        return linear_equilibrium(scan(game.values), reward, units=game.units)
    return solve_game(game)
