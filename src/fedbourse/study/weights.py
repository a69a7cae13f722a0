"""Whom do precision weights listen to? The price of less noise, on owners whose records differ.

Precision weights give the least noise, and they are what owners are paid. But on owners whose
records differ the model then serves those who sell the most privacy. Three federations (alike,
skewed, very skewed) at a small and a large reward, both weightings: the accuracy on the buyer's own
records, and on the records of those who were paid most and least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.learning.records import Records
from fedbourse.learning.rounds import WEIGHTS
from fedbourse.study.interval import Mean, mean_of
from fedbourse.study.trials import Task, trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import IntArray
    from fedbourse.learning.rounds import Weights
    from fedbourse.study.trials import Trial

PARTITIONS = ("iid", "dirichlet:1", "dirichlet:0.1")
FACTORS = (1.0, 100.0)
"""Rewards, in turning rewards: noise matters at the first and hardly at the second."""


@dataclass(frozen=True)
class WeightsRow:
    """One federation at one reward under one weighting."""

    partition: str
    factor: float
    weights: Weights
    buyer: Mean
    """Accuracy on the buyer's own records."""
    best_paid: Mean
    """Accuracy on the records of the better paid half of the participants."""
    least_paid: Mean
    top_weight: float
    """The weight of the best paid participant; 1/K where all weigh the same."""


def run_weights_study(
    task: Task,
    *,
    seeds: int,
    first_seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[WeightsRow]:
    """Train every federation at both rewards with both weightings."""
    rows = []
    for done, scheme in enumerate(PARTITIONS):
        drawn = []
        for k in range(seeds):
            progress(done * seeds + k, len(PARTITIONS) * seeds)
            drawn.append(trial(replace(task, partition=scheme), seed=first_seed + k))
        rows += [_row(drawn, factor, weights) for factor in FACTORS for weights in WEIGHTS]
    progress(len(PARTITIONS) * seeds, len(PARTITIONS) * seeds)
    return rows


def _row(drawn: list[Trial], factor: float, weights: Weights) -> WeightsRow:
    buyer, best, least, top = [], [], [], []
    for one in drawn:
        run = one.train(factor * one.turning_reward, weights)
        order = np.argsort(one.unit_budgets)
        half = len(order) // 2
        buyer.append(run.accuracy)
        least.append(one.model.accuracy(run.parameters, _records(one, order[:half])))
        best.append(one.model.accuracy(run.parameters, _records(one, order[-half:])))
        share = float(one.unit_budgets.max() / one.unit_budgets.sum())
        top.append(share if weights == "precision" else 1.0 / len(order))
    return WeightsRow(
        partition=drawn[0].task.partition,
        factor=factor,
        weights=weights,
        buyer=mean_of(buyer),
        best_paid=mean_of(best),
        least_paid=mean_of(least),
        top_weight=float(np.mean(top)),
    )


def _records(one: Trial, owners: IntArray) -> Records:
    parts = [one.federation.parts[i] for i in owners.tolist()]
    return Records(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        parts[0].classes,
    )
