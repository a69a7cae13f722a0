"""The activity rule: one cost must explain all tick replies of an owner.

An owner whose cost is convex, perhaps with a cap, replies to a total P with the budget r at which
the marginal pay m = R (1 - s)/P, s = r/P, meets its marginal cost. Marginal costs rise with the
budget, so of any two replies the larger budget has the larger m:

    (r_a - r_b) (m_a - m_b) >= 0.

It follows that shares fall as P rises, and that a zero at P holds at every larger total. Two kinds
of replies say less than m: a zero says that the marginal cost is at least R/P; the card's floor
(the smallest budget it buys) says that it is at least m, and that the floor is worth its pay R/P.

Where the card fixes linear costs, one value and one cap must explain all replies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedbourse.errors import InvalidGame

_ROUNDING = 1e-9
"""How far two replies may lie apart by rounding: a part of R/P for margins, of budgets for them."""


@dataclass(frozen=True)
class Reply:
    """A tick reply: a budget in reply to an announced total."""

    tick: int
    total_budget: float
    budget: float

    def margins(self, reward: float, floor: float) -> tuple[float, float]:
        """Return the smallest and the largest marginal cost that explain this reply."""
        price = reward / self.total_budget
        if not self.budget:
            return price, math.inf
        margin = price * (1.0 - self.budget / self.total_budget)
        return (margin, price) if self.budget <= floor else (margin, margin)

    def slack(self, reward: float) -> float:
        """Return the rounding in a margin."""
        return _ROUNDING * reward / self.total_budget


def contradiction(
    reply: Reply,
    earlier: Sequence[Reply],
    *,
    reward: float,
    floor: float = 0.0,
    linear: bool = False,
) -> str | None:
    """Return why no owner with one convex cost gives all these replies; None where one does.

    >>> reply, earlier = Reply(1, 2.0, 0.5), [Reply(0, 1.0, 0.0)]
    >>> contradiction(reply, earlier, reward=10.0).partition(": ")[2]
    'a zero holds at every larger total'
    """
    for before in earlier:
        smaller, larger = sorted((before, reply), key=lambda each: each.budget)
        if math.isclose(smaller.budget, larger.budget, rel_tol=_ROUNDING):
            continue
        slack = smaller.slack(reward) + larger.slack(reward)
        if smaller.margins(reward, floor)[0] > larger.margins(reward, floor)[1] + slack:
            return (
                f"{reply.budget:g} rho at a total of {reply.total_budget:g} contradicts "
                f"{before.budget:g} rho at a total of {before.total_budget:g} "
                f"(tick {before.tick}): {_why(smaller, larger)}"
            )
    return _not_linear([*earlier, reply], reward, floor) if linear else None


def _why(smaller: Reply, larger: Reply) -> str:
    if not smaller.budget:
        return "a zero holds at every larger total"
    if larger.total_budget > smaller.total_budget and (
        larger.budget / larger.total_budget > smaller.budget / smaller.total_budget
    ):
        return "a share never rises with the total"
    return "a larger budget must be worth it at the margin"


def value_bounds(
    replies: Sequence[Reply], *, reward: float, floor: float = 0.0
) -> tuple[float, float]:
    """Return the smallest and the largest value that explain an owner's replies to one task.

    For linear costs. The two are equal where the value is known. An owner who stayed out has no
    largest one, and the largest budget of one who sold may be a cap of its own.

    >>> value_bounds([Reply(0, 2.0, 1.0), Reply(1, 1.0, 0.75)], reward=8.0)
    (2.0, 2.0)
    """
    if reason := _not_linear(list(replies), reward, floor):
        raise InvalidGame(reason)
    low, high = _linear_bounds(replies, reward, floor, slack=0.0)
    if low < high:
        return low, high
    middle = (low + high) / 2  # one value, but for rounding
    return middle, middle


def _not_linear(replies: list[Reply], reward: float, floor: float) -> str | None:
    """Return why no single value, with a cap, explains all replies of an owner."""
    least, most = _linear_bounds(replies, reward, floor, slack=1.0)
    if least <= most:
        return None
    last = replies[-1]
    return (
        f"{last.budget:g} rho at a total of {last.total_budget:g} contradicts earlier ticks: the "
        f"card fixes linear costs, and the replies say both at least {least:g} and at most "
        f"{most:g} for a unit of budget"
    )


def _linear_bounds(
    replies: Sequence[Reply], reward: float, floor: float, *, slack: float
) -> tuple[float, float]:
    """Return between which values an owner's lies; ``slack`` says how much rounding to allow."""
    cap = max(reply.budget for reply in replies)
    least, most = 0.0, math.inf
    for reply in replies:
        low, high = reply.margins(reward, floor)
        if not reply.budget or not math.isclose(reply.budget, cap, rel_tol=_ROUNDING):
            least = max(least, low - slack * reply.slack(reward))
        # At its cap an owner would sell more: its value is at most the margin.
        most = min(most, high + slack * reply.slack(reward))
    return least, most
