"""The best reward for a buyer who knows only how values are distributed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import numpy as np

from fedbourse.errors import InvalidGame
from fedbourse.game.accuracy import Accuracy
from fedbourse.game.buyer import Buyer
from fedbourse.game.columns import FloatArray, IntArray, positive
from fedbourse.game.costs import Linear
from fedbourse.game.distribution import Distribution
from fedbourse.game.draws import linear_draws
from fedbourse.game.presentation import Chart, Columns, Line, Presentable
from fedbourse.game.reward.concave import best_rewards
from fedbourse.game.reward.search import Probe, Progress, best_by_zoom, no_progress

_AT_ONCE = 4_000_000  # values that are drawn and solved at once


@dataclass(frozen=True, repr=False)
class ExpectedOffer(Presentable):
    """The reward that is best on average over draws of the owners' values.

    Each ``..._spread`` is the standard deviation over the draws, at that reward.
    """

    reward: float
    utility: float
    utility_spread: float
    accuracy: float
    accuracy_spread: float
    participants: float
    participants_spread: float
    owners: int
    draws: int
    seed: int
    method: str
    reason: str
    """Why no reward pays, where the best reward is 0; otherwise empty."""
    outcomes: dict[str, FloatArray] = field(compare=False)
    """The utility, accuracy and participants of each draw, at that reward."""

    def _facts(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "outcomes"}

    def _rows(self) -> Columns:
        return {"draw": np.arange(self.draws), **self.outcomes}

    def _chart(self) -> Chart:
        utilities = self.outcomes["utility"]
        return Chart(
            title=f"{self.draws} draws of {self.owners} values at a reward of {self.reward:.4g}",
            x_label="the buyer's utility",
            y_label="draws",
            lines=(Line("utility", np.arange(self.draws), utilities),),
            kind="histogram",
        )


def expected_offer(
    buyer: Buyer,
    values: Distribution,
    *,
    owners: int,
    draws: int,
    seed: int,
    progress: Progress = no_progress,
) -> ExpectedOffer:
    """Return the best reward over ``draws`` draws of ``owners`` values each."""
    buyer.training.check_owners(owners)
    games = _draw(values, owners, draws, seed)
    if buyer.scaling is not None and buyer.formula is not None:
        reward, accuracies, counts = _scaled(buyer, buyer.formula, games, owners)
        method = "Newton's method on the mean over draws"
    else:
        reward, accuracies, counts = _searched(buyer, games, owners, progress)
        method = "global search on the mean over draws"
    utilities = buyer.accuracy_value * accuracies - reward
    return ExpectedOffer(
        reward=reward,
        utility=float(utilities.mean()),
        utility_spread=float(utilities.std()),
        accuracy=float(accuracies.mean()),
        accuracy_spread=float(accuracies.std()),
        participants=float(counts.mean()),
        participants_spread=float(counts.std()),
        owners=owners,
        draws=draws,
        seed=seed,
        method=method,
        reason="" if reward else "no reward pays: on average, each is worse than no reward at all",
        outcomes={
            "utility": utilities,
            "accuracy": accuracies,
            "participants": counts.astype(np.float64),
        },
    )


def _draw(values: Distribution, owners: int, draws: int, seed: int) -> Iterator[FloatArray]:
    """Yield the draws as tables of a few rows each."""
    rng = np.random.default_rng(seed)
    rows = max(1, _AT_ONCE // owners)
    for start in range(0, draws, rows):
        shape = (min(rows, draws - start), owners)
        try:
            table = np.asarray(values.rvs(size=shape, random_state=rng))
        except TypeError as error:
            raise InvalidGame(
                f"the distribution's rvs(size=, random_state=) fails: {error}"
            ) from None
        if table.shape != shape:
            raise InvalidGame(f"rvs(size={shape}) must return that shape; found {table.shape}")
        yield positive("draws", table.ravel()).reshape(shape)


def _scaled(
    buyer: Buyer, formula: Accuracy, games: Iterator[FloatArray], owners: int
) -> tuple[float, FloatArray, IntArray]:
    parts = [part for table in games for part in _unit_precisions(buyer, table)]
    counts = np.concatenate([count for _, count in parts])
    width = max(part.shape[1] for part, _ in parts)
    precisions = np.concatenate(
        [
            np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=np.inf)
            for part, _ in parts
        ]
    )
    degree = buyer.scaling or 1.0
    rewards, _ = best_rewards(
        precisions,
        counts,
        owners=owners,
        accuracy=formula,
        accuracy_value=buyer.accuracy_value,
        degree=degree,
        together=True,
    )
    reward = float(rewards[0])
    if reward == 0:
        return 0.0, np.full(len(counts), formula.chance), np.zeros_like(counts)
    quality = formula.quality(precisions * reward ** (1 / degree), counts, owners)
    return reward, formula.chance + formula.range * np.exp(quality.log), counts


def _unit_precisions(buyer: Buyer, table: FloatArray) -> Iterator[tuple[FloatArray, IntArray]]:
    """Yield the precisions at a reward of 1, and the number of participants, of every row."""
    factor = buyer.training.noise_factor
    if isinstance(buyer.cost, Linear) and isinstance(factor, float):
        # With equal records pay for information is pay for budget.
        solved = linear_draws(table)
        yield solved.unit_precisions(factor), solved.counts
        return
    for row in table:
        one = buyer.equilibrium(row, 1.0)
        precisions = buyer.training.precisions(one.budgets, one.participants)
        yield precisions[None, :], np.array([one.count])


def _searched(
    buyer: Buyer, games: Iterator[FloatArray], owners: int, progress: Progress
) -> tuple[float, FloatArray, IntArray]:
    """Search on the mean over draws: each draw's jumps are a small part of it."""
    rows = [row for table in games for row in table]
    probers = [buyer.prober(row) for row in rows]

    def at(reward: float) -> list[Probe]:
        return [probe(reward) for probe in probers]

    def mean(reward: float) -> float:
        return float(np.mean([probe.utility for probe in at(reward)]))

    best = best_by_zoom(mean, buyer.gain, progress)
    utilities = np.array([probe.utility for probe in at(best)])
    nothing = buyer.nothing(owners)
    if not utilities.mean() > nothing:
        return (
            0.0,
            np.full(len(rows), nothing / buyer.accuracy_value),
            np.zeros(len(rows), np.int64),
        )
    counts = np.array([len(probe.who) // np.int64().itemsize for probe in at(best)])
    paid = np.where(counts > 0, best, 0.0)
    return best, (utilities + paid) / buyer.accuracy_value, counts
