"""The same equilibrium without anybody revealing a value.

The market announces a total budget P. Each owner answers with the share s(P) of it that would be
its best; the market sees only how many answers are above 0 and what they sum to, and moves P until
the shares sum to 1. For the linear cost the move

    P <- P (k - 1) / (k - sum of shares)

is Newton's method on a convex, piecewise linear function: it ends after finitely many rounds, and
on the way the excess of the shares times the slope falls to a quarter or less with every move (the
two ratios sum to at most 1). Where it does not, the answers are not those of linear costs (caps,
other costs, owners who stay silent), and the market goes on with a bracket and false position (the
Illinois rule), which needs the same two sums, and that shares fall as P rises.

``best_reply_rounds`` is what does *not* work: owners who all reply at once to each other's last
budgets overshoot, and for five or more equal owners the budgets swing ever wider.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.columns import per_owner
from fedbourse.game.costs import Cost, Linear, PrivacyCost, cost_named
from fedbourse.game.reply import best_replies
from fedbourse.game.rules import Game, checked_reward
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray

SETTLED = 1e-12
"""Relative move of P at which it stands still."""
_FITS = 1e-6  # how far the shares' sum may lie from 1, for each owner, where P stands still
_ROUNDING = 1e-9  # an excess below it, for each owner, may be rounding


@dataclass(frozen=True)
class _End:
    """One end of the bracket: ln P, and the logarithm of the shares' sum there."""

    log_total: float
    log_sum: float


@dataclass(frozen=True)
class Discovery:
    """The market's side: the total that it announces now, and how it got there."""

    total_budget: float
    """P, as announced."""
    rounds: int = 0
    """Rounds of answers so far."""
    settled: bool = False
    """P stands still: the answers to it are the equilibrium's shares."""
    _newton: bool = True
    _steepness: float | None = None  # excess of shares times slope before the last Newton move
    _low: _End | None = None  # the last total known to be too small
    _high: _End | None = None  # the last known to be too large
    _moved: Literal["low", "high", ""] = ""

    @classmethod
    def start(cls, *, cost: str | PrivacyCost | Cost = "linear", total_budget: float) -> Discovery:
        """Announce a first total; any will do."""
        first = number("total_budget", total_budget, above=0, error=InvalidGame)
        return cls(first, _newton=isinstance(cost_named(cost), Linear))

    @classmethod
    def read(cls, text: str) -> Discovery:
        """Return what ``written`` wrote."""
        parts = json.loads(text)
        ends = {name: _End(**parts[name]) for name in ("_low", "_high") if parts[name]}
        return cls(**(parts | ends))

    def written(self) -> str:
        """Return the whole state as text, to go on with later."""
        return json.dumps(asdict(self))

    def move(self, *, positive: int, share_sum: float) -> Discovery:
        """Return the next announcement, given how many answered and what their shares sum to."""
        whole_number("positive", positive, at_least=0, error=InvalidGame)
        number("share_sum", share_sum, at_least=0, at_most=positive, error=InvalidGame)
        after = self._narrowed(math.log(max(share_sum, 0.01)))  # silence has no logarithm
        if self._newton and not self._falls(positive, share_sum):
            after = replace(after, _newton=False)
        steepness = None
        if not after._newton:
            total = after._between()
        elif positive < 2:
            total = self.total_budget / 4
        elif share_sum >= positive:  # a total so small that every share rounds to 1
            total = self.total_budget * 4
        else:
            total = self.total_budget * (positive - 1) / (positive - share_sum)
            steepness = abs(share_sum - 1.0) * (positive - share_sum) / self.total_budget
            if share_sum < 1:  # coming from the right, Newton may land anywhere on the left
                steepness = math.inf
        after = replace(after, _steepness=steepness)
        # Where answers contradicted each other, a bracket can close around a wrong total.
        fits = abs(share_sum - 1.0) <= _FITS * max(positive, 1)
        still = abs(total - self.total_budget) <= SETTLED * self.total_budget
        if still and not fits:
            after = replace(after, _low=None) if share_sum < 1 else replace(after, _high=None)
            total, still = after._between(), False
        return replace(after, total_budget=total, rounds=self.rounds + 1, settled=still)

    def _falls(self, positive: int, share_sum: float) -> bool:
        """Say whether the last Newton move did what it does for linear costs."""
        excess = share_sum - 1.0
        if self._steepness is None or abs(excess) <= _ROUNDING * positive:
            return True
        slope = max(positive - share_sum, 0.0) / self.total_budget
        return excess > 0 and excess * slope <= self._steepness / 4

    def _narrowed(self, log_sum: float) -> Discovery:
        """Replace one end; where the other has stayed twice, halve its height (Illinois)."""
        here = _End(math.log(self.total_budget), log_sum)
        if log_sum >= 0:
            stale = self._high if self._high and self._moved == "low" and not self._newton else None
            high = replace(stale, log_sum=stale.log_sum / 2) if stale else self._high
            return replace(self, _low=here, _high=high, _moved="low")
        stale = self._low if self._low and self._moved == "high" and not self._newton else None
        low = replace(stale, log_sum=stale.log_sum / 2) if stale else self._low
        return replace(self, _low=low, _high=here, _moved="high")

    def _between(self) -> float:
        """Return the total at which a straight line through both ends, in logarithms, is 0."""
        if self._low is None:
            return self.total_budget / 4
        if self._high is None:
            return self.total_budget * 4
        low, high = self._low, self._high
        part = low.log_sum / (low.log_sum - high.log_sum)
        return math.exp(low.log_total + part * (high.log_total - low.log_total))


@dataclass(frozen=True, eq=False)
class Discovered:
    """How a discovery went: the totals announced, and the budgets that answer the last one."""

    budgets: FloatArray
    total_budget: float
    rounds: int
    totals: tuple[float, ...]


def share_at(
    value: float,
    total_budget: float,
    *,
    reward: float,
    cost: str | PrivacyCost | Cost = "linear",
) -> float:
    """Return an owner's answer to an announced total: the share of it that is best for the owner.

    >>> share_at(1.0, 2.0, reward=4.0)
    0.5
    """
    v = number("value", value, above=0, error=InvalidGame)
    total = number("total_budget", total_budget, above=0, error=InvalidGame)
    return float(cost_named(cost).share(np.array([v]), total, checked_reward(reward))[0])


def discover(
    values: object,
    *,
    reward: float,
    cost: str | PrivacyCost | Cost = "linear",
    caps: object = None,
    start: float | None = None,
    rounds_max: int = 200,
) -> Discovered:
    """Play a whole discovery: owners with these values answer, the market moves.

    An owner with a cap never answers with more than it.

    >>> discover([1.0, 1.0, 2.0], reward=8.0).rounds
    3
    """
    game = Game.of(values, reward=reward, cost=cost, caps=caps)
    if game.cost.entry:
        raise InvalidGame(f"discovery needs a cost without an entry cost; found {game.cost.name}")
    market = Discovery.start(cost=game.cost, total_budget=game.reward if start is None else start)
    totals = [market.total_budget]
    while not market.settled:
        if market.rounds >= whole_number("rounds_max", rounds_max, at_least=1):
            raise NoEquilibrium(f"the total budget has not settled after {rounds_max} rounds")
        shares = game.shares(market.total_budget)
        market = market.move(positive=int(np.count_nonzero(shares)), share_sum=float(shares.sum()))
        totals.append(market.total_budget)
    budgets = game.shares(market.total_budget) * market.total_budget
    return Discovered(budgets, market.total_budget, market.rounds, tuple(totals))


def best_reply_rounds(
    values: object,
    budgets: object,
    *,
    reward: float,
    cost: str | PrivacyCost | Cost = "linear",
    rounds: int = 50,
    damping: float = 1.0,
) -> FloatArray:
    """Return everybody's budgets, a row a round, when all reply at once to the last round's.

    ``damping`` is the part of the way to its best reply that each owner goes. The row 0 is
    ``budgets``. This diverges in most games; it is here to be seen, not to be used.
    """
    game = Game.of(values, reward=reward, cost=cost)
    damping = number("damping", damping, above=0, at_most=1, error=InvalidGame)
    history = [per_owner("budgets", budgets, len(game.values))]
    for _ in range(whole_number("rounds", rounds, at_least=1)):
        now = history[-1]
        replies = best_replies(game, np.maximum(now.sum() - now, 0.0))
        history.append(now + damping * (replies - now))
    return np.array(history)
