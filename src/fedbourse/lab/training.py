"""Real trainings with the budgets that mechanisms buy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.game.columns import FloatArray
    from fedbourse.study.trials import Mean, TrialTask


def noise_factor_of(task: TrialTask, *, seed: int) -> float:
    """Return a, what a unit of budget leaves of noise in the training of a task."""
    from fedbourse.study.trials import trial

    return float(trial(task, seed=seed).training.noise_factor)


def measured_accuracy(task: TrialTask, sold: Sequence[FloatArray], seed: int) -> Mean:
    """Train with each draw's budgets, and return the mean accuracy on the buyer's records.

    Where nobody sells, the accuracy is that of the commonest class.
    """
    from fedbourse.study.trials import Mean, Sale, trial

    accuracies = []
    for place, budgets in enumerate(sold):
        sellers = np.flatnonzero(budgets)
        sale = Sale(sellers, budgets[sellers]) if len(sellers) else None
        draw = trial(task, seed=seed + place, sale=sale)
        accuracies.append(draw.measure(1.0, "precision") if len(sellers) else draw.chance)
    return Mean.of(accuracies)
