"""Answers that share no code with the solver: the paper read aloud, fractions, and brute force."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def algorithm_2(values: Sequence[float], reward: float) -> list[float]:
    """The paper's Algorithm 2 as it is printed, but for the strict `<` of THEORY."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    members = order[:2]
    for i in order[2:]:
        if not values[i] < (values[i] + sum(values[j] for j in members)) / len(members):
            break
        members.append(i)
    total = sum(values[j] for j in members)
    k = len(members)
    budgets = [0.0] * len(values)
    for i in members:
        budgets[i] = (k - 1) * reward / total * (1 - (k - 1) * values[i] / total)
    return budgets


def exact_shares(values: Sequence[float]) -> list[Fraction]:
    """Every owner's equilibrium share of the linear game in exact arithmetic."""
    exact = [Fraction(v) for v in values]
    order = sorted(range(len(exact)), key=lambda i: exact[i])
    members, total = order[:2], exact[order[0]] + exact[order[1]]
    for i in order[2:]:
        if not exact[i] < (exact[i] + total) / len(members):
            break
        members.append(i)
        total += exact[i]
    shares = [Fraction(0)] * len(exact)
    for i in members:
        shares[i] = 1 - exact[i] * (len(members) - 1) / total
    return shares


COSTS: dict[str, Callable[[float, float], float]] = {
    "linear": lambda v, r: v * r,
    "quadratic": lambda v, r: v * r * r,
    "exponential": lambda v, r: math.expm1(min(v * r, 700.0)),
}


def brute_force_regret(
    values: Sequence[float],
    budgets: Sequence[float],
    reward: float,
    cost: Callable[[float, float], float],
    entry: float = 0.0,
) -> float:
    """The largest gain by deviating, found by trying budgets: golden section on each owner."""
    worst = 0.0
    for i, v in enumerate(values):
        others = math.fsum(b for j, b in enumerate(budgets) if j != i)

        def utility(r: float, v: float = v, others: float = others) -> float:
            return reward * r / (r + others) - cost(v, r) - entry if r > 0 else 0.0

        best = max(0.0, _golden(utility, 0.0, _too_much(v, reward, cost)))
        worst = max(worst, best - utility(budgets[i]))
    return worst


def _too_much(v: float, reward: float, cost: Callable[[float, float], float]) -> float:
    r = 1.0
    while cost(v, r) < reward:
        r *= 2
    while cost(v, r / 2) > reward:
        r /= 2
    return r


def _golden(f: Callable[[float], float], low: float, high: float) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = f(a), f(b)
    for _ in range(120):
        if fa < fb:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = f(b)
        else:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = f(a)
    return max(fa, fb)
