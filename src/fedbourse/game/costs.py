"""What a privacy budget costs its owner: the paper's three families, and any convex cost.

A cost rises with the owner's value v, is convex in the budget r, and is zero at r = 0. The share of
the total budget P that is an owner's best response to itself, s(P), solves

    R (1 - s) / P = c'(v, s P)

and falls in P. Everything that the solvers need of a cost is that function.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from fedbourse.errors import InvalidCost, InvalidGame
from fedbourse.game.columns import BoolArray, FloatArray
from fedbourse.game.roots import falling_roots
from fedbourse.registry import Choice, Registry

NO_SHARE = 1e-14
"""A share that is the difference of two numbers this close is rounding, and counts as none. (The
linear game without caps and entry costs is decided exactly elsewhere.)"""

Totals = FloatArray | float
"""One total budget for all owners, or one for each."""


# Numbers may run to 0 or infinity: the results are right at both ends.
def _quiet() -> np.errstate:
    return np.errstate(divide="ignore", over="ignore", invalid="ignore", under="ignore")


@runtime_checkable
class PrivacyCost(Protocol):
    """What a cost of your own must offer: both methods take and return arrays."""

    def cost(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return what each budget costs an owner of each value: rising, convex, zero at 0."""
        ...

    def marginal(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return the derivative of the cost in the budget."""
        ...


class Cost(ABC):
    """A cost that the solvers can use."""

    name: str
    degree: ClassVar[float | None] = None
    """Where c(v, r) = v r^degree, budgets grow as R^(1/degree) and one solve serves every R."""
    entry: ClassVar[float] = 0.0
    """What taking part costs before the first unit of budget."""
    unit_power: ClassVar[int | None] = None
    """The p for which c(v, x / u) = c(v / u^p, x), where there is one."""

    @abstractmethod
    def cost(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return what each budget costs each owner."""

    @abstractmethod
    def marginal(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return the derivative of the cost in the budget."""

    @abstractmethod
    def share(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return each owner's share s(P) of the total budget P."""

    def rest(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return 1 - s(P), with its digits where s is close to 1."""
        return 1.0 - self.share(values, total, reward)

    @_quiet()
    def per_unit(self, values: FloatArray, units: FloatArray) -> FloatArray:
        """Return the values of the same game in which one unit of budget counts as ``units``."""
        if self.unit_power is None:
            raise InvalidGame(
                f"pay_for='information' needs one of fedbourse's own costs; found {self.name}"
            )
        for _ in range(self.unit_power):
            values = values / units
        return values


class Linear(Cost):
    """c = v r, the paper's choice."""

    name = "linear"
    degree = 1.0
    unit_power = 1

    def cost(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return v r."""
        return values * budgets

    def marginal(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return v."""
        return values + 0.0 * budgets

    @_quiet()
    def share(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return max(0, 1 - v P / R)."""
        shares = 1.0 - values * (np.asarray(total, np.float64) / reward)
        return np.where(shares > NO_SHARE, shares, 0.0)

    @_quiet()
    def rest(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return v P / R, at most 1."""
        return np.minimum(1.0, values * (np.asarray(total, np.float64) / reward))


class Quadratic(Cost):
    """c = v r^2: the first unit is free at the margin, so everybody takes part."""

    name = "quadratic"
    degree = 2.0
    unit_power = 2

    @_quiet()
    def cost(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return v r^2."""
        return values * budgets * budgets

    @_quiet()
    def marginal(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return 2 v r."""
        return 2.0 * values * budgets

    @_quiet()
    def share(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return R / (R + 2 v P^2)."""
        return 1.0 / (1.0 + self._odds(values, total, reward))

    @_quiet()
    def rest(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return 2 v P^2 / (R + 2 v P^2)."""
        return 1.0 / (1.0 + 1.0 / self._odds(values, total, reward))

    def _odds(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return 2 v P^2 / R."""
        scaled: FloatArray = np.asarray(total, np.float64) / math.sqrt(reward)
        return 2.0 * values * scaled * scaled


class Exponential(Cost):
    """c = exp(v r) - 1."""

    name = "exponential"
    unit_power = 1

    @_quiet()
    def cost(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return exp(v r) - 1."""
        return np.expm1(values * budgets)

    @_quiet()
    def marginal(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return v exp(v r)."""
        return values * np.exp(values * budgets)

    @_quiet()
    def share(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return 1 - y/x with y = omega(x + 2 ln x - ln R), x = v P, where x < R; else 0."""
        x = values * total
        result = np.zeros_like(x)
        inside = (x < reward * (1.0 - NO_SHARE)) & (x > 0)
        x = x[inside]
        s = 1.0 - _omega_ratio(x, reward)
        # Small shares are a difference that lost its digits: two Newton steps on
        # ln(1 - s) + ln(R/x) - x s = 0 bring them back.
        small = s < 0.5
        xs, t = x[small], np.clip(s[small], 0.0, 0.5)
        log_ratio = np.where(
            reward < 2.0 * xs, np.log1p((reward - xs) / xs), np.log(reward) - np.log(xs)
        )
        for _ in range(2):
            t += (np.log1p(-t) + log_ratio - xs * t) / (1.0 / (1.0 - t) + xs)
        s[small] = t
        result[inside] = np.clip(s, 0.0, 1.0)
        result[values * total == 0] = 1.0  # vP underflowed: a budget that costs nothing
        return result

    @_quiet()
    def rest(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Return y/x."""
        x = values * np.asarray(total, np.float64)
        return np.where(x > 0, np.clip(_omega_ratio(x, reward), 0.0, 1.0), 0.0)


def _omega_ratio(x: FloatArray, reward: float) -> FloatArray:
    from scipy.special import wrightomega

    ratio: FloatArray = wrightomega(x + 2.0 * np.log(x) - np.log(reward)) / x
    return ratio


class PaperExponential(Exponential):
    """exp(v r), as the paper prints it: it costs 1 at r = 0, an entry cost of 1."""

    name = "paper-exponential"
    entry = 1.0


class Custom(Cost):
    """A cost of the caller's, given by its values and its derivative."""

    def __init__(self, custom: PrivacyCost) -> None:
        self.custom = custom
        self.name = type(custom).__name__

    @_quiet()
    def cost(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return the caller's cost, as an array of the right shape."""
        return self._call("cost", values, budgets)

    @_quiet()
    def marginal(self, values: FloatArray, budgets: FloatArray) -> FloatArray:
        """Return the caller's marginal cost, as an array of the right shape."""
        return self._call("marginal", values, budgets)

    @_quiet()
    def share(self, values: FloatArray, total: Totals, reward: float) -> FloatArray:
        """Solve R (1 - s)/P = c'(v, s P) for s between 0 and 1, all owners at once."""
        price = reward / np.asarray(total, np.float64)

        def too_small(s: FloatArray) -> BoolArray:
            return (s < 1) & ((1.0 - s) * price > self.marginal(values, s * total))

        shares = falling_roots(too_small, values.shape)
        first_unit = self.marginal(values, np.zeros_like(values))
        return np.where(price * (1.0 - NO_SHARE) > first_unit, shares, 0.0)

    def check_on_grid(self, values: FloatArray, reward: float) -> None:
        """Refuse a cost that is not rising in v, convex and zero at 0 over budgets in reach."""
        v = np.geomspace(values.min(), 2.0 * values.max(), 12)
        r = self._largest_budget(v[:1], reward) * np.concatenate([[0.0], np.geomspace(1e-6, 1, 49)])
        vs, rs = np.meshgrid(v, r, indexing="ij")
        cost, slope = self.cost(vs, rs), self.marginal(vs, rs)
        with _quiet():
            finite = np.isfinite(cost[:, 1:]) & np.isfinite(slope[:, 1:])
            step, rise = np.diff(rs, axis=1), np.diff(cost, axis=1)
            slack = 1e-9 * np.abs(cost[:, 1:]) + 1e-300
            bent = (slope[:, :-1] * step > rise + slack) | (rise > slope[:, 1:] * step + slack)
            fallen = np.pad(np.diff(cost, axis=0) <= 0, ((1, 0), (0, 0)))
        faults = {
            "is not a number": np.isnan(cost) | np.isnan(slope),
            "must be 0": (rs == 0) & (np.abs(cost) > 1e-12 * reward),
            "must be above 0": (rs > 0) & ~(cost > 0),
            "is not convex with this marginal cost": np.pad(bent & finite, ((0, 0), (1, 0))),
            "does not rise with the value": fallen & (rs > 0) & np.isfinite(cost),
        }
        for fault, wrong in faults.items():
            if wrong.any():
                i = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
                raise InvalidCost(
                    f"{self.name}.cost(value={vs[i]:g}, budget={rs[i]:g}) = {cost[i]:g} {fault}"
                )

    def _largest_budget(self, value: FloatArray, reward: float) -> float:
        """Return a budget that costs the cheapest owner at least the whole reward."""
        for exponent in range(0, 1000, 2):
            for budget in (2.0**-exponent, 2.0**exponent):
                low, high = self.cost(value, np.array([budget, 4 * budget]))
                if low < reward <= high:
                    return 4 * budget
        raise InvalidCost(f"{self.name}.cost never reaches the reward {reward:g}; it must grow")

    def _call(self, method: str, values: FloatArray, budgets: FloatArray) -> FloatArray:
        shape = np.broadcast_shapes(np.shape(values), np.shape(budgets))
        try:
            result = getattr(self.custom, method)(values, budgets)
            return np.broadcast_to(np.asarray(result, dtype=np.float64), shape)
        except Exception as error:  # whatever the caller's code does wrong
            raise InvalidCost(
                f"{self.name}.{method} must take and return arrays; it failed: "
                f"{type(error).__name__}: {error}"
            ) from error


COSTS: Registry[Cost | PrivacyCost] = Registry(
    "cost",
    Choice("linear", "Linear", "value times budget: the paper's first family", Linear()),
    Choice("quadratic", "Quadratic", "value times budget squared", Quadratic()),
    Choice("exponential", "Exponential", "e^(value times budget) - 1", Exponential()),
    Choice(
        "paper-exponential",
        "Exponential, as the paper prints it",
        "e^(value times budget): taking part costs 1",
        PaperExponential(),
    ),
    group="costs",
    error=InvalidCost,
)
"""Privacy costs by name; an installed package may add its own."""


def cost_named(cost: str | PrivacyCost | Cost) -> Cost:
    """Return the cost of that name, or wrap the caller's own.

    >>> cost_named("quadratic").degree
    2.0
    """
    if isinstance(cost, Cost):
        return cost
    if isinstance(cost, str) and cost in COSTS:
        return cost_named(COSTS[cost])
    if isinstance(cost, type) or not isinstance(cost, PrivacyCost):
        raise InvalidCost(
            f"cost must be one of {', '.join(COSTS)}, or an object with the methods cost and "
            f"marginal; found {cost!r:.60}"
        )
    return Custom(cost)
