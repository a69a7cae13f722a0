"""The equilibrium of owners whose values come in chunks.

The linear cost takes one reading; where the cutoff lies within a bin of nearly equal owners, one or
two more that look at this bin alone. For other costs see ``convex_stream``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fedbourse.game.costs import Cost, Linear
from fedbourse.game.game import checked_reward
from fedbourse.game.outofcore.convex_stream import certified_regret, convex_equilibrium, values_of
from fedbourse.game.outofcore.participant_sketch import ParticipantSketch
from fedbourse.game.outofcore.refinement import Refinement
from fedbourse.game.outofcore.stream import Stream
from fedbourse.game.profile import Equilibrium, linear_equilibrium


def solve_stream(stream: Stream, *, reward: float, cost: Cost) -> Equilibrium:
    """Return the equilibrium of all owners of a stream, without caps and entry costs."""
    amount = checked_reward(reward)
    if not isinstance(cost, Linear):
        return convex_equilibrium(stream, amount, cost)
    sketch = sketch_stream(stream)
    participants = sketch.participants()
    if not (sketch.binned and stream.again):
        return linear_equilibrium(participants, reward=amount)
    return linear_equilibrium(
        replace(participants, read=partial(values_of, stream)),
        reward=amount,
        certify=partial(certified_regret, stream, cost),
    )


def sketch_stream(stream: Stream) -> ParticipantSketch:
    """Read a stream once, and again only where the cutoff lies within a bin."""
    sketch = ParticipantSketch(read_again=stream.again)
    for chunk in stream.chunks():
        sketch.add(chunk.values, names=chunk.names, source=chunk.source)
    while stream.again and (undecided := sketch.undecided_bin()) is not None:
        refinement = Refinement(undecided)
        for block in values_of(stream):
            refinement.add(block)
        sketch.refine(refinement)
    return sketch
