"""Whom does aggregation by precision serve? The price of less noise where records differ.

Weights by precision give the least noise, and follow what owners are paid. But on owners whose
records differ the model then serves those who sell the most privacy. Three federations (alike,
skewed, very skewed) at a small and a large reward, both aggregations: the accuracy on the buyer's
own records, and on the records of those who were paid most and least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game.presentation import Chart, Line
from fedbourse.learning.aggregation import AGGREGATIONS
from fedbourse.learning.records import Records
from fedbourse.study.results import StudyRows
from fedbourse.study.trials import Mean, Trial, TrialTask
from fedbourse.study.trials import trial as draw_trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import IntArray

PARTITIONS = ("iid", "dirichlet:1", "dirichlet:0.1")
FACTORS = (1.0, 100.0)
"""Rewards, in turning rewards: noise matters at the first and hardly at the second."""


@dataclass(frozen=True)
class AggregationRow:
    """One federation at one reward under one aggregation."""

    partition: str
    factor: float
    aggregation: str
    buyer: Mean
    """Accuracy on the buyer's own records."""
    best_paid: Mean
    """Accuracy on the records of the better paid half of the participants."""
    least_paid: Mean
    top_weight: float
    """The weight of the best paid participant; 1/K where all weigh the same."""


class AggregationStudy(StudyRows[AggregationRow]):
    """Whom each aggregation serves, federation by federation."""

    def _chart(self) -> Chart:
        lines = []
        for factor, aggregation in dict.fromkeys((r.factor, r.aggregation) for r in self):
            rows = [r for r in self if (r.factor, r.aggregation) == (factor, aggregation)]
            x = np.array([row.partition for row in rows])
            y = np.array([row.buyer.value for row in rows])
            lines.append(Line(f"{aggregation}, reward {factor:g}", x, y))
        return Chart("on the buyer's records", "owners' records", "accuracy", tuple(lines))


def aggregation_study(
    task: TrialTask,
    *,
    seeds: int,
    first_seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> AggregationStudy:
    """Train every federation at both rewards with both aggregations."""
    rows = []
    for done, scheme in enumerate(PARTITIONS):
        trials = []
        for k in range(seeds):
            progress(done * seeds + k, len(PARTITIONS) * seeds)
            trials.append(draw_trial(replace(task, partition=scheme), seed=first_seed + k))
        rows += [
            _row(trials, factor, aggregation) for factor in FACTORS for aggregation in AGGREGATIONS
        ]
    progress(len(PARTITIONS) * seeds, len(PARTITIONS) * seeds)
    return AggregationStudy(tuple(rows))


def _row(trials: list[Trial], factor: float, aggregation: str) -> AggregationRow:
    buyer, best, least, top = [], [], [], []
    for trial in trials:
        run = trial.train(factor * trial.turning_reward, aggregation)
        order = np.argsort(trial.unit_budgets)
        half = len(order) // 2
        buyer.append(run.accuracy)
        least.append(trial.model.accuracy(run.parameters, _records(trial, order[:half])))
        best.append(trial.model.accuracy(run.parameters, _records(trial, order[-half:])))
        share = float(trial.unit_budgets.max() / trial.unit_budgets.sum())
        top.append(share if aggregation == "precision" else 1.0 / len(order))
    return AggregationRow(
        partition=trials[0].task.partition,
        factor=factor,
        aggregation=aggregation,
        buyer=Mean.of(buyer),
        best_paid=Mean.of(best),
        least_paid=Mean.of(least),
        top_weight=float(np.mean(top)),
    )


def _records(trial: Trial, owners: IntArray) -> Records:
    parts = [trial.federation.parts[i] for i in owners.tolist()]
    return Records(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
        parts[0].classes,
    )
