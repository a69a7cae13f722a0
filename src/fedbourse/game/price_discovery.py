"""Price discovery: the same equilibrium without anybody revealing a value.

The market announces a total budget P. Each owner replies with the budget r that is best for it at
that total, a share s = r/P; the market sees only how many replies are above 0 and what their shares
sum to, and moves P until the shares sum to 1. Shares fall as P rises, so every tick narrows a
bracket: P is too small where the shares sum to more than 1, and large enough where they do not.

For the linear cost the move

    P <- P (k - 1) / (k - sum of shares)

is Newton's method on a convex, piecewise linear function: it ends after finitely many ticks, and
on the way the excess of the shares times the slope falls to a quarter or less with every move (the
two ratios sum to at most 1). Where it does not, the replies are not those of linear costs (caps,
floors, other costs), and the bracket is closed by false position (the Illinois rule), with a
bisection wherever two moves in a row did not halve it.

Discovery has **converged** where the bracket is at most ``CONVERGED`` of P. Converged or not, a
task settles at the lowest announced total whose replies sum to at most it (``qualifying``): there
the reward buys each unit of budget for at least the price that owners replied to.

``best_response_dynamics`` is what does *not* work: owners who all respond at once to each other's
last budgets overshoot, and for five or more equal owners the budgets swing ever wider.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from fedbourse.errors import InvalidGame, NoEquilibrium
from fedbourse.game.best_response import best_responses
from fedbourse.game.columns import FloatArray, per_owner
from fedbourse.game.costs import Cost, Linear, PrivacyCost, cost_named
from fedbourse.game.game import Game, checked_reward
from fedbourse.units import number, whole_number

CONVERGED = 1e-6
"""The width of the bracket, as a part of P, at which discovery ends."""
TICKS_MAX = 60
"""Ticks after which a task settles by rule, whether or not the bracket is that narrow."""
_NARROW = math.log1p(CONVERGED)
_PROBE = 1e-12  # how far beside a Newton estimate P is announced, so that the bracket closes
_ROUNDING = 1e-9  # an excess below it, for each owner, may be rounding
_PATIENCE = 25  # ticks after which every move is a bisection: 60 are enough for any bracket
_RANGE = 1e-300, 1e300  # where totals stay, whatever the replies
_total_of = attrgetter("total_budget")
_STEP = 4.0  # how much farther than the last move P goes while the bracket has only one end


@dataclass(frozen=True)
class TickSum:
    """What the market sees of one tick."""

    total_budget: float
    """P, as announced."""
    positive: int
    """k: replies above 0."""
    share_sum: float
    """The sum of r/P over all replies."""

    @property
    def too_small(self) -> bool:
        """Say whether owners want more than this total."""
        return self.share_sum > 1.0

    @property
    def newton(self) -> float | None:
        """Return the root of the tangent for linear costs; None where it has none."""
        if self.positive < 2 or self.share_sum >= self.positive:
            return None
        return self.total_budget * (self.positive - 1) / (self.positive - self.share_sum)

    @property
    def steepness(self) -> float:
        """Return the excess of the shares times the slope, which Newton's moves quarter."""
        slope = max(self.positive - self.share_sum, 0.0) / self.total_budget
        return abs(self.share_sum - 1.0) * slope


@dataclass(frozen=True)
class PriceDiscovery:
    """The market's side: the total that it announces now, and the ticks that led there."""

    total_budget: float
    """P, to be announced next; the qualifying total once discovery has converged."""
    ticks: tuple[TickSum, ...] = ()
    newton: bool = True
    """Whether the replies so far may be those of linear costs."""

    @classmethod
    def start(
        cls, *, cost: str | PrivacyCost | Cost = "linear", total_budget: float
    ) -> PriceDiscovery:
        """Announce a first total; any will do."""
        first = number("total_budget", total_budget, above=0, error=InvalidGame)
        return cls(first, newton=isinstance(cost_named(cost), Linear))

    @property
    def low(self) -> TickSum | None:
        """The tick with the largest total that is too small."""
        return max((t for t in self.ticks if t.too_small), key=_total_of, default=None)

    @property
    def qualifying(self) -> TickSum | None:
        """The tick with the lowest total whose replies sum to at most it: where a task settles."""
        return min((t for t in self.ticks if not t.too_small), key=_total_of, default=None)

    @property
    def converged(self) -> bool:
        """Say whether the bracket is narrow enough."""
        low, high = self.low, self.qualifying
        return low is not None and high is not None and _width(low, high) <= _NARROW

    def move(self, *, positive: int, share_sum: float) -> PriceDiscovery:
        """Return the next announcement, given how many replied and what their shares sum to."""
        whole_number("positive", positive, at_least=0, error=InvalidGame)
        number("share_sum", share_sum, at_least=0, error=InvalidGame)
        return self.after(TickSum(self.total_budget, positive, share_sum))

    def after(self, tick: TickSum) -> PriceDiscovery:
        """Return the discovery after a tick, whichever total was announced at it."""
        # Where owners have gone since, earlier totals were not the moves of these sums.
        proposed = tick.total_budget == self.total_budget
        newton = self.newton and (not proposed or self._falls(tick))
        after = replace(self, ticks=(*self.ticks, tick), newton=newton)
        if after.converged and after.qualifying is not None:
            return replace(after, total_budget=after.qualifying.total_budget)
        least, most = _RANGE
        return replace(after, total_budget=min(max(after._next(tick), least), most))

    def _falls(self, tick: TickSum) -> bool:
        """Say whether the last move did what Newton's does for linear costs.

        The tangent of a convex curve never overshoots its root, from whichever side.
        """
        before = self.ticks[-1] if self.ticks else None
        if before is None or before.newton is None:
            return True
        if not math.isclose(tick.total_budget, before.newton, rel_tol=_ROUNDING):
            return True  # it was not Newton's move: owners have left, and the sums were different
        if abs(tick.share_sum - 1.0) <= _ROUNDING * tick.positive:
            return True
        if not before.too_small:
            return tick.too_small
        return tick.too_small and tick.steepness <= before.steepness / 4

    def _next(self, tick: TickSum) -> float:
        """Return the total to announce after a tick that did not end the discovery."""
        low, high = self.low, self.qualifying
        guess = tick.newton if self.newton else None
        here = tick.total_budget
        if low is None:
            return here / self._stride if guess is None else min(guess, here) * (1 - _PROBE)
        if high is None:
            return here * self._stride if guess is None else max(guess, here) * (1 + _PROBE)
        if guess is not None:
            # On the last linear piece the guess is the root: it is announced from both sides.
            beside = guess * (1 - _PROBE if tick is high else 1 + _PROBE)
            if low.total_budget < beside < high.total_budget:
                return beside
        part = 0.5 if self.newton or len(self.ticks) > _PATIENCE else _false_position(self.ticks)
        return low.total_budget * math.exp(part * _width(low, high))

    @property
    def _stride(self) -> float:
        """By which factor P moves while one end of the bracket is missing: ever farther."""
        if len(self.ticks) < 2:
            return _STEP
        last = self.ticks[-1].total_budget / self.ticks[-2].total_budget
        return _STEP * max(last, 1 / last)


def _width(low: TickSum, high: TickSum) -> float:
    """Return the width of a bracket in ln P."""
    return math.log(high.total_budget / low.total_budget)


def _false_position(ticks: Iterable[TickSum]) -> float:
    """Return where in the bracket to announce next: the part of its width above its lower end.

    That is where a straight line through both ends, in logarithms, is 0. Where one end stays for
    long since the curve is bent, its height is halved (the Illinois rule); where two moves in a row
    did not halve the bracket, its middle is taken.
    """
    low: TickSum | None = None
    high: TickSum | None = None
    stayed = stalls = 0
    width = math.inf
    for tick in ticks:
        both = low is not None and high is not None
        if tick.too_small:
            low = tick if low is None else max(low, tick, key=_total_of)
            stayed = max(stayed, 0) + 1 if both else 0
        else:
            high = tick if high is None else min(high, tick, key=_total_of)
            stayed = min(stayed, 0) - 1 if both else 0
        if low is not None and high is not None:
            before, width = width, _width(low, high)
            stalls = stalls + 1 if 2 * width > before * (1 + _ROUNDING) else 0
    assert low is not None
    assert high is not None
    above = math.log(low.share_sum) * 0.5 ** max(-stayed - 1, 0)
    below = -math.log(max(high.share_sum, 0.01)) * 0.5 ** max(stayed - 1, 0)
    if stalls >= 2 or not above + below:
        return 0.5
    return min(max(above / (above + below), 1e-3), 1 - 1e-3)


@dataclass(frozen=True, eq=False)
class DiscoveryResult:
    """The outcome of a discovery: the totals announced, and the replies to the qualifying one."""

    budgets: FloatArray
    total_budget: float
    """The qualifying total; the budgets sum to at most it."""
    ticks: int
    totals: tuple[float, ...]
    """The total announced at each tick."""
    converged: bool


def share_at(
    value: float,
    total_budget: float,
    *,
    reward: float,
    cost: str | PrivacyCost | Cost = "linear",
) -> float:
    """Return an owner's reply to an announced total: the share of it that is best for the owner.

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
    ticks_max: int = TICKS_MAX,
) -> DiscoveryResult:
    """Run a whole discovery: owners with these values reply, the market moves.

    An owner with a cap never replies with more than it. Where the bracket has not closed after
    ``ticks_max`` ticks, the budgets are those of the qualifying tick all the same.

    >>> discover([1.0, 1.0, 2.0], reward=8.0).ticks
    4
    """
    game = Game.of(values, reward=reward, cost=cost, caps=caps)
    if game.cost.entry:
        raise InvalidGame(f"discovery needs a cost without an entry cost; found {game.cost.name}")
    whole_number("ticks_max", ticks_max, at_least=1, error=InvalidGame)
    market = PriceDiscovery.start(
        cost=game.cost, total_budget=game.reward if start is None else start
    )
    while not market.converged and len(market.ticks) < ticks_max:
        shares = game.shares(market.total_budget)
        market = market.move(positive=int(np.count_nonzero(shares)), share_sum=float(shares.sum()))
    tick = market.qualifying
    if tick is None:
        raise NoEquilibrium(
            f"after {ticks_max} ticks owners still want more than every total announced"
        )
    return DiscoveryResult(
        budgets=game.shares(tick.total_budget) * tick.total_budget,
        total_budget=tick.total_budget,
        ticks=len(market.ticks),
        totals=tuple(each.total_budget for each in market.ticks),
        converged=market.converged,
    )


def best_response_dynamics(
    values: object,
    budgets: object,
    *,
    reward: float,
    cost: str | PrivacyCost | Cost = "linear",
    rounds: int = 50,
    damping: float = 1.0,
) -> FloatArray:
    """Return everybody's budgets, a row a round, when all respond at once to the last round's.

    ``damping`` is the part of the way to its best response that each owner goes. Row 0 is
    ``budgets``. This diverges in most games; it is a demonstration, not a tool.
    """
    game = Game.of(values, reward=reward, cost=cost)
    damping = number("damping", damping, above=0, at_most=1, error=InvalidGame)
    history = [per_owner("budgets", budgets, len(game.values))]
    for _ in range(whole_number("rounds", rounds, at_least=1)):
        now = history[-1]
        responses = best_responses(game, np.maximum(now.sum() - now, 0.0))
        history.append(now + damping * (responses - now))
    return np.array(history)
