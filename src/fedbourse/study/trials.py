"""Real trainings at chosen rewards: what the studies of accuracy are made of."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbourse.game import ACCURACY_MODELS, Accuracy, Training, Uniform, equilibrium
from fedbourse.learning.aggregation import AGGREGATIONS
from fedbourse.learning.data import load
from fedbourse.learning.engines import LocalEngine
from fedbourse.learning.models import Model, model_named
from fedbourse.learning.partition import Federation, partition
from fedbourse.learning.reference import majority_accuracy
from fedbourse.learning.rounds import Run, train
from fedbourse.privacy.noise import Noise, NoNoise, SimulatedNoise
from fedbourse.privacy.terms import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.game.columns import FloatArray, IntArray
    from fedbourse.learning.records import Pool, Records

Whose = Literal["owners", "public"]
_VALIDATION_MAX = 5000  # of the buyer's records


@dataclass(frozen=True)
class Mean:
    """A mean, and how far the true one may lie from it (Student's t, 95 %)."""

    value: float
    margin: float
    """Infinite for a single number."""
    count: int

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Mean:
        """Return the mean of independent numbers with its interval."""
        from scipy.special import stdtrit

        count = len(numbers)
        if count == 1:
            return cls(float(numbers[0]), math.inf, 1)
        error = float(np.std(numbers, ddof=1)) / math.sqrt(count)
        return cls(float(np.mean(numbers)), float(stdtrit(count - 1, 0.975)) * error, count)


@dataclass(frozen=True)
class TrialTask:
    """What is trained, for whom: everything that a trial depends on but its reward and seed."""

    data: str
    owners: int = 100
    """How many are interested."""
    values: tuple[float, float] = (1.0, 5.0)
    samples: int | None = None
    """Records of each owner; by default what suits the data."""
    partition: str = "iid"
    model: str | None = None
    rounds: int = 50
    step_size: float = 1.0
    clip: float = 1.0


@dataclass(frozen=True, eq=False)
class Sale:
    """Who of the owners sells which budget, at a reward of 1."""

    participants: IntArray
    budgets: FloatArray

    @classmethod
    def in_equilibrium(cls, values: FloatArray) -> Sale:
        """Return what owners of these values sell in the paper's game."""
        solution = equilibrium(values, reward=1.0)
        return cls(solution.participants, solution.budgets)


@dataclass(frozen=True, eq=False)
class Trial:
    """One draw of values and records, ready to be trained at any reward."""

    task: TrialTask
    seed: int
    whose: Whose
    model: Model
    federation: Federation
    """The records of those who take part."""
    validation: Records
    reference: Records
    """Those of the buyer's records that updates are compared with."""
    participants: IntArray
    unit_budgets: FloatArray
    """Budgets at a reward of 1; with linear costs all budgets are proportional to the reward."""
    training: Training
    chance: float

    def ceiling(self, aggregation: str) -> float:
        """Train without noise, and return the accuracy on the buyer's records."""
        terms = self.terms(1.0)
        return self._trained(terms, NoNoise(terms), aggregation).accuracy

    def measure(self, reward: float, aggregation: str, *, repeats: int = 1) -> float:
        """Train at a reward, with fresh noise each time, and return the mean accuracy."""
        runs = [self.train(reward, aggregation, repeat=k) for k in range(repeats)]
        return float(np.mean([run.accuracy for run in runs]))

    def train(self, reward: float, aggregation: str, *, repeat: int = 0) -> Run:
        """Train at a reward; every reward, weighting and repeat has noise of its own."""
        terms = self.terms(reward)
        entropy = [
            self.seed,
            int(self.whose == "public"),
            list(AGGREGATIONS).index(aggregation),
            repeat,
            *struct.unpack("II", struct.pack("d", reward)),
        ]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        return self._trained(terms, SimulatedNoise(terms, seed=seed), aggregation)

    def _trained(self, terms: list[Terms], noise: Noise, aggregation: str) -> Run:
        return train(
            LocalEngine(self.model, self.federation, terms, noise),
            self.model,
            self.validation,
            step_size=self.task.step_size,
            rounds=self.task.rounds,
            aggregation=aggregation,
            seed=self.seed,
        )

    def terms(self, reward: float) -> list[Terms]:
        """Return what each participant sells at a reward."""
        return [
            Terms(
                "study", float(rho), self.task.rounds, self.model.dimension, int(m), self.task.clip
            )
            for rho, m in zip(self.unit_budgets * reward, self.federation.sizes, strict=True)
        ]

    def precisions(self, reward: float) -> FloatArray:
        """Return what the models of accuracy know of those who take part."""
        return self.training.precisions(self.unit_budgets * reward, self.participants)

    def predicted(self, reward: float, *, ceiling: float) -> dict[str, float]:
        """Return what each accuracy model predicts, from the accuracies at both ends."""
        ends = {"chance": min(self.chance, ceiling - 1e-6), "ceiling": ceiling}
        return {
            name: Accuracy(name, **ends).of(self.precisions(reward), self.task.owners)
            for name in ACCURACY_MODELS
        }

    @property
    def turning_reward(self) -> float:
        """The reward at which the model ``precision`` sees as much noise as signal."""
        return 1.0 / float(self.precisions(1.0).sum())


def trial(
    task: TrialTask,
    *,
    seed: int,
    whose: Whose = "owners",
    cheapest: float | None = None,
    reference_records: int = 1000,
    sale: Sale | None = None,
) -> Trial:
    """Draw values and deal records.

    The pool is cut in two: one half plays the public records of a pilot, the other the owners'.
    ``whose`` says which are trained on; owners, values and noise of the two are independent, but
    with one seed the same records of the buyer's evaluate both, as they would in a trade. One of
    the owners acts as if its value were ``cheapest``, where that is given. With a ``sale`` no
    values are drawn: its owners sell its budgets.
    """
    source = load(task.data, seed=seed)
    samples = task.samples or source.default_samples
    if sale is None:
        values = Uniform(*task.values).rvs(
            size=(task.owners,), random_state=np.random.default_rng([seed, 7, whose == "public"])
        )
        if cheapest is not None:
            values[0] = cheapest
        sale = Sale.in_equilibrium(values)
    halves = np.array_split(np.random.default_rng([seed, 8]).permutation(len(source.pool)), 2)
    federation = partition(
        _Half(source.pool, np.sort(halves[whose == "public"])),
        owners=len(sale.participants),
        samples=samples,
        scheme=task.partition,
        seed=seed,
        name=f"half of {task.data}",
    )
    buyer = source.buyer.take(np.arange(min(len(source.buyer), _VALIDATION_MAX)))
    reference = source.buyer.take(np.arange(len(source.buyer))[-reference_records:])
    model = model_named(
        task.model or source.default_model,
        features=buyer.features.shape[1],
        classes=buyer.classes,
    )
    return Trial(
        task=task,
        seed=seed,
        whose=whose,
        model=model,
        federation=federation,
        validation=buyer,
        reference=reference,
        participants=sale.participants,
        unit_budgets=sale.budgets,
        training=Training(
            dimension=model.dimension,
            step_size=task.step_size,
            iterations=task.rounds,
            samples=samples,
            clip=task.clip,
        ),
        chance=majority_accuracy(buyer),
    )


@dataclass(frozen=True, eq=False)
class _Half:
    """Some records of a pool, built only when they are taken."""

    pool: Pool
    rows: IntArray

    @property
    def classes(self) -> int:
        return self.pool.classes

    @property
    def labels(self) -> FloatArray:
        return self.pool.labels[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: IntArray) -> Records:
        return self.pool.take(self.rows[rows])
