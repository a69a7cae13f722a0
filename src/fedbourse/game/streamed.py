"""The equilibrium of owners whose values come in chunks.

The linear cost takes one reading; where a crowd of nearly equal owners stands at the threshold, one
or two more that look at this crowd alone. For other costs see ``readings``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from fedbourse.game.costs import Cost, Linear
from fedbourse.game.crowd import Split
from fedbourse.game.profile import Equilibrium, linear_equilibrium
from fedbourse.game.readings import certified, convex_equilibrium, values_of
from fedbourse.game.rules import checked_reward
from fedbourse.game.support import Support

if TYPE_CHECKING:
    from fedbourse.game.stream import Stream


def streamed_equilibrium(stream: Stream, *, reward: float, cost: Cost) -> Equilibrium:
    """Return the equilibrium of all owners of a stream, without caps and entry costs."""
    amount = checked_reward(reward)
    if isinstance(cost, Linear):
        support = support_of(stream)
        found = support.participants()
        if not (support.crowded and stream.again):
            return linear_equilibrium(found, reward=amount)
        return linear_equilibrium(
            replace(found, read=partial(values_of, stream)),
            reward=amount,
            certify=partial(certified, stream, cost),
        )
    return convex_equilibrium(stream, amount, cost)


def support_of(stream: Stream) -> Support:
    """Read a stream once, and again only where a crowd stands at the threshold."""
    support = Support(read_again=stream.again)
    for chunk in stream.chunks():
        support.add(chunk.values, names=chunk.names, source=chunk.source)
    while stream.again and (crowd := support.in_question()) is not None:
        counted = Split(crowd)
        for block in values_of(stream):
            counted.add(block)
        support.split(counted)
    return support
