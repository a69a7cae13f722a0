"""Algorithm 1: the buyer's side of training, round by round.

The model takes one step a round along the weighted mean of the answers that came. Weights are
``equal`` (the paper's plain mean) or ``precision`` (by 1/sigma^2: the least noise that answers
allow, but those who sell privacy cheaply count for more). Either way they sum to 1 over the answers
received. Loss and accuracy come from the buyer's own records; owners never report any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbourse.errors import InvalidFile, InvalidInput
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray, IntArray
    from fedbourse.learning.checkpoint import Checkpoint
    from fedbourse.learning.engines.engine import Answers, Engine
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Records

Weights = Literal["equal", "precision"]
WEIGHTS: tuple[Weights, ...] = ("equal", "precision")


@dataclass(frozen=True)
class Round:
    """What the buyer saw of one round, after its step."""

    number: int
    answers: int
    loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Run:
    """A training run, finished or as far as it got."""

    parameters: FloatArray
    answered: IntArray
    """The rounds that each owner answered."""
    rounds: tuple[Round, ...]

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
    weights: Weights = "equal",
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
    on_round: Callable[[Round, Answers], None] | None = None,
) -> Run:
    """Train for a number of rounds; with a checkpoint, go on exactly where the last run stopped.

    ``seed`` starts the model; the noise is the engine's. A round without an answer leaves the model
    as it is. ``on_round`` hears of each round, and who answered it.
    """
    step_size = number("step_size", step_size, above=0)
    rounds = whole_number("rounds", rounds, at_least=1)
    if weights not in WEIGHTS:
        raise InvalidInput(f"weights must be one of {', '.join(WEIGHTS)}; found {weights!r:.60}")
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
        answers = engine.ask(k, run.parameters)
        parameters = run.parameters - step_size * weighted_mean(answers, engine.scales, weights)
        answered = run.answered.copy()
        answered[answers.owners] += 1
        seen = evaluate_round(
            k, model, parameters, validation, answers=len(answers.owners), step_size=step_size
        )
        run = Run(parameters, answered, (*run.rounds, seen))
        if on_round is not None:
            on_round(seen, answers)  # before the checkpoint: what it does is done twice, not never
        if checkpoint is not None:
            checkpoint.save(run, last=k == rounds - 1)
    return run


def evaluate_round(
    number: int,
    model: Model,
    parameters: FloatArray,
    validation: Records,
    *,
    answers: int,
    step_size: float,
) -> Round:
    """Return what the buyer sees of the model after a round, or refuse one that has diverged."""
    with np.errstate(all="ignore"):  # a model that has diverged is told of below
        loss = model.loss(parameters, validation)
        accuracy = model.accuracy(parameters, validation)
    if not (np.isfinite(parameters).all() and np.isfinite(loss)):
        raise InvalidInput(
            f"training diverged in round {number}: the model or its loss is no longer finite; "
            f"choose a smaller step_size than {step_size:g}, or a larger reward"
        )
    return Round(number=number, answers=answers, loss=loss, accuracy=accuracy)


def weighted_mean(answers: Answers, scales: FloatArray, weights: Weights) -> FloatArray:
    """Return the mean of the answers received, the weights summing to 1 over them."""
    if not len(answers.owners):
        return np.zeros(answers.vectors.shape[1])
    if weights == "equal":
        mean: FloatArray = answers.vectors.mean(axis=0)
        return mean
    # Relative to the least noise, so that no square overflows.
    relative = scales[answers.owners] / scales[answers.owners].min()
    precisions: FloatArray = relative**-2.0
    weighted: FloatArray = precisions @ answers.vectors / precisions.sum()
    return weighted
