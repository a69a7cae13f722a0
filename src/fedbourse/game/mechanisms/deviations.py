"""What an owner gains by acting as if its value were another one, or under several names.

A search over reports, not a proof: what it finds is a lower bound on what can be gained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fedbourse.game.columns import FloatArray
from fedbourse.game.mechanisms.protocol import Mechanism, Purchase, run_mechanism

FACTORS = tuple(float(factor) for factor in np.geomspace(1 / 8, 8, 25))
"""Reports that are tried, in true values."""
NAMES = (2, 3, 5, 9)
"""Numbers of names that are tried."""
_NEIGHBOURS = 12
"""How many other owners' values are tried as reports, just below and just above each."""
_BESIDE = 1e-9


@dataclass(frozen=True)
class Gain:
    """The best deviation that a search found."""

    amount: float
    """What it brings beyond acting according to the own value; 0 where nothing does better."""
    owner: int | None = None
    report: float | None = None
    names: int = 1


NO_GAIN = Gain(0.0)


def best_misreport(
    mechanism: Mechanism,
    values: FloatArray,
    purchase: Purchase,
    *,
    owners: Iterable[int] | None = None,
    seed: int = 0,
) -> Gain:
    """Return the most that one of the owners gains by acting as if its value were another one.

    >>> from fedbourse import MECHANISMS
    >>> game = np.array([1.0, 1.2, 1.4]), Purchase(reward=10.0)
    >>> round(best_misreport(MECHANISMS["proportional"], *game, owners=[1]).amount, 2)
    0.14
    >>> best_misreport(MECHANISMS["second-price"], *game).amount
    0.0
    """
    truthful = run_mechanism(mechanism, values, purchase, seed=seed).utilities(values)
    best = NO_GAIN
    for owner in range(len(values)) if owners is None else owners:
        reports = values.copy()
        for report in _reports(values, owner):
            reports[owner] = report
            outcome = run_mechanism(mechanism, reports, purchase, seed=seed)
            gain = float(outcome.utilities(values)[owner] - truthful[owner])
            if gain > best.amount:
                best = Gain(gain, owner, report)
    return best


def best_names(
    mechanism: Mechanism,
    values: FloatArray,
    purchase: Purchase,
    *,
    owners: Iterable[int] | None = None,
    names: Iterable[int] = NAMES,
    factors: Iterable[float] = FACTORS[::3],
    seed: int = 0,
) -> Gain:
    """Return the most that one owner gains by taking part under several names.

    All names act as if they had one value, which need not be the owner's, and each has the owner's
    cap; a unit of budget of any of them costs the owner the same.
    """
    truthful = run_mechanism(mechanism, values, purchase, seed=seed).utilities(values)
    best, trials = NO_GAIN, [(count, factor) for count in names for factor in factors]
    for owner in range(len(values)) if owners is None else owners:
        own = float(values[owner])
        for count, factor in trials:
            reports, wanted = _under_names(values, purchase, owner, (count, factor * own))
            outcome = run_mechanism(mechanism, reports, wanted, seed=seed)
            utility = outcome.payments[-count:].sum() - own * outcome.budgets[-count:].sum()
            gain = float(utility - truthful[owner])
            if gain > best.amount:
                best = Gain(gain, owner, factor * own, count)
    return best


def _under_names(
    values: FloatArray, purchase: Purchase, owner: int, names: tuple[int, float]
) -> tuple[FloatArray, Purchase]:
    """Return the reports, and the purchase, with an owner's names in its place: the last ones."""
    count, report = names
    caps = purchase.cap
    if isinstance(caps, np.ndarray):
        caps = np.append(np.delete(caps, owner), np.full(count, caps[owner]))
    reports = np.append(np.delete(values, owner), np.full(count, report))
    return reports, replace(purchase, cap=caps)


def _reports(values: FloatArray, owner: int) -> list[float]:
    """Return what an owner might say: multiples of its value, and what others have."""
    others = np.delete(values, owner)
    nearest = others[np.argsort(np.abs(np.log(others / values[owner])))[:_NEIGHBOURS]]
    beside = [value * side for value in nearest.tolist() for side in (1 - _BESIDE, 1 + _BESIDE)]
    return [float(values[owner] * factor) for factor in FACTORS if factor != 1.0] + beside
