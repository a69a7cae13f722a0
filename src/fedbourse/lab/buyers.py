"""Buyers: what training is worth to them, and the reward and lot that they choose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game import Purchase, run_mechanism
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fedbourse.game import Distribution, Mechanism
    from fedbourse.lab.profiles import ValueDraw

_REWARDS = np.geomspace(2e-3, 0.5, 12)
"""Rewards that are tried first, in gains."""
_LOTS = np.geomspace(0.03, 100, 12)
"""Lots that are tried first, in budgets whose noise is as large as the sampling variance."""
_FINER = 4
"""How often the search is repeated around its best, with steps half as large."""


@dataclass(frozen=True, kw_only=True)
class LabBuyer:
    """A buyer of the lab."""

    gain: float = 10.0
    """G, what perfect training is worth."""
    noise_factor: float = 0.01
    """a: what a budget r leaves of noise is a / r."""
    sampling: float = 1.0
    """s, the sampling variance of an owner's updates."""
    reward: float | None = None
    """R; None for the one that is best for the buyer on average, for each mechanism."""
    lot: float | None = None
    """The budget of a lot; None for the best."""

    def __post_init__(self) -> None:
        for name in ("gain", "noise_factor", "sampling"):
            number(name, getattr(self, name), above=0)
        for name in ("reward", "lot"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), above=0)

    @property
    def name(self) -> str:
        """What tables call this buyer."""
        fixed = "" if self.reward is None else f", R={self.reward:g}"
        return f"G={self.gain:g}, s={self.sampling:g}{fixed}"

    def purchase(
        self, mechanism: Mechanism, prior: Distribution, pilot: Sequence[ValueDraw]
    ) -> Purchase:
        """Return what this buyer asks of a mechanism, chosen on draws of their own."""
        scale = self.noise_factor / self.sampling
        start = Purchase(
            reward=self.reward or self.gain / 20,
            lot=self.lot or scale,
            gain=self.gain,
            noise_factor=self.noise_factor,
            sampling=self.sampling,
            prior=prior,
        )
        rewards, lots = [start.reward], [start.lot]
        if self.reward is None and _matters("reward", mechanism, start, pilot):
            rewards = (_REWARDS * self.gain).tolist()
        if self.lot is None and _matters("lot", mechanism, start, pilot):
            lots = (_LOTS * scale).tolist()
        return _best(mechanism, start, pilot, rewards, lots)


def _matters(
    name: str, mechanism: Mechanism, purchase: Purchase, pilot: Sequence[ValueDraw]
) -> bool:
    """Say whether an outcome depends on the reward, or on the lot."""
    for factor in (0.1, 10.0):
        other = replace(purchase, **{name: getattr(purchase, name) * factor})
        for draw in pilot[:3]:
            one, two = (
                run_mechanism(mechanism, draw.values, replace(each, cap=draw.cap))
                for each in (purchase, other)
            )
            if not np.array_equal(one.budgets, two.budgets):
                return True
    return False


def _best(
    mechanism: Mechanism,
    start: Purchase,
    pilot: Sequence[ValueDraw],
    rewards: list[float],
    lots: list[float],
) -> Purchase:
    """Search a grid for the largest mean utility, and finer grids around its best."""
    if len(rewards) == len(lots) == 1:
        return replace(start, reward=rewards[0], lot=lots[0])

    def utility(purchase: Purchase) -> float:
        total = 0.0
        for draw in pilot:
            asked_for = replace(purchase, cap=draw.cap)
            total += asked_for.utility(run_mechanism(mechanism, draw.values, asked_for))
        return total

    def best_of(rewards: Iterable[float], lots: Sequence[float]) -> Purchase:
        grid = [replace(start, reward=reward, lot=lot) for reward in rewards for lot in lots]
        return max(grid, key=utility)

    best = best_of(rewards, lots)
    steps = [float(each[1] / each[0]) if len(each) > 1 else 1.0 for each in (rewards, lots)]
    for _ in range(_FINER):
        steps = [step**0.5 for step in steps]
        around = [
            [value] if step == 1.0 else [value / step, value, value * step]
            for value, step in zip((best.reward, best.lot), steps, strict=True)
        ]
        best = best_of(*around)
    return best
