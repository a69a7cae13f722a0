"""Algorithm 1: the buyer's side of training, round by round.

The model takes one step a round along the weighted mean of the updates that came
(``aggregation``). Loss and accuracy come from the buyer's own records; owners never report any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.learning.aggregation import AGGREGATIONS, aggregate
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray, IntArray
    from fedbourse.learning.checkpoint import Checkpoint
    from fedbourse.learning.engines.engine import Engine, Updates
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Records


@dataclass(frozen=True)
class RoundResult:
    """The buyer's evaluation of the model after one round."""

    number: int
    updates: int
    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Run:
    """A training run, finished or as far as it got."""

    parameters: FloatArray
    delivered: IntArray
    """The number of rounds in which each owner sent an update."""
    rounds: tuple[RoundResult, ...]

    @property
    def accuracy(self) -> float:
        """The accuracy on the buyer's own records after the last round."""
        return self.rounds[-1].accuracy


def train(
    engine: Engine,
    model: Model,
    validation: Records,
    *,
    step_size: float,
    rounds: int,
    aggregation: str = "equal",
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
    on_round: Callable[[RoundResult, Updates], None] | None = None,
) -> Run:
    """Train for a number of rounds; with a checkpoint, go on exactly where the last run stopped.

    ``seed`` starts the model; the noise is the engine's. A round without an update leaves the
    model as it is. ``on_round`` is called with each round and its updates.
    """
    step_size = number("step_size", step_size, above=0)
    rounds = whole_number("rounds", rounds, at_least=1)
    AGGREGATIONS.choose(aggregation)
    run = checkpoint.load() if checkpoint is not None else None
    if run is None:
        owners = len(engine.scales)
        run = Run(model.start(seed=seed), np.zeros(owners, dtype=np.int64), ())
    elif run.parameters.shape != (model.dimension,) or len(run.rounds) > rounds:
        raise InvalidFile(
            f"the checkpoint holds {len(run.rounds)} rounds of {run.parameters.shape} parameters; "
            f"this training has {rounds} rounds of {model.dimension}"
        )
    for k in range(len(run.rounds), rounds):
        updates = engine.ask(k, run.parameters)
        scales = engine.scales[updates.owners]
        step = aggregate([updates.vectors], scales, aggregation, dimension=model.dimension).mean
        parameters = run.parameters - step_size * step
        delivered = run.delivered.copy()
        delivered[updates.owners] += 1
        result = evaluate_round(
            k, model, parameters, validation, updates=len(updates.owners), step_size=step_size
        )
        run = Run(parameters, delivered, (*run.rounds, result))
        if on_round is not None:
            # Before the checkpoint: what it does may be done twice, but is never left out.
            on_round(result, updates)
        if checkpoint is not None:
            checkpoint.save(run, last=k == rounds - 1)
    return run


def evaluate_round(
    number: int,
    model: Model,
    parameters: FloatArray,
    validation: Records,
    *,
    updates: int,
    step_size: float,
) -> RoundResult:
    """Evaluate the model after a round, or refuse one that has diverged."""
    with np.errstate(all="ignore"):  # a model that has diverged is told of below
        loss = model.loss(parameters, validation)
        accuracy = model.accuracy(parameters, validation)
    if not (np.isfinite(parameters).all() and np.isfinite(loss)):
        raise InvalidInput(
            f"training diverged in round {number}: the model or its loss is no longer finite; "
            f"choose a smaller step_size than {step_size:g}, or a larger reward"
        )
    return RoundResult(number=number, updates=updates, loss=loss, accuracy=accuracy)
