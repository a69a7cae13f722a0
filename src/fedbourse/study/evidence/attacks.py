"""What a deviating device sends instead of its records' clipped mean gradient.

Each attack is a function of what the device sees in a round. Its noise is drawn as agreed: noise of
another size is what monitoring looks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records

if TYPE_CHECKING:
    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.models import Model
    from fedbourse.learning.records import Pool

FEW = 10
"""So many records, amplified, can stand for all that were agreed."""
_CANDIDATES = 10
"""Of so many times the records that are needed, the ones that differ most are chosen."""
_SMOOTHING = 0.9
_STEADY = 0.3
"""The part of the clip that climbing on the score sends: with more it moves the model off."""


@dataclass(frozen=True, eq=False)
class RoundView:
    """What a deviating device sees in a round."""

    parameters: FloatArray
    last_parameters: FloatArray | None = None
    last_sent: FloatArray | None = None
    """Its own update of the round before, noise included."""
    last_gain: float = 0.0
    """What that update added to its X: seen only where scores are shown during training."""
    reference: FloatArray | None = None
    """h, for a puppet of the buyer."""


Gradient = Callable[[RoundView], "FloatArray"]
"""What a device sends in a round, before its noise."""


@dataclass(frozen=True, eq=False)
class DeviatingDevice:
    """What a deviating device has: records, the model's shape, and chance."""

    records: Records
    spare: Pool
    """Records that no owner was dealt, for devices whose records are of another kind."""
    buyer: Records
    """Of which only public statistics are used: base rates, and the mean of each feature."""
    model: Model
    clip: float
    step_size: float
    weight: float
    """Its own part of the total budget, and so of each step of the model."""
    rng: np.random.Generator

    def labelled(self, labels: FloatArray) -> Records:
        """Return its records with other labels."""
        return Records(self.records.features, labels, self.records.classes)

    def mean_of(self, records: Records) -> Gradient:
        """Return the clipped mean gradient of records, divided by the m that was agreed."""
        samples = np.array([len(self.records)])
        one = Federation(records, np.array([0, len(records)]), samples=samples)
        return lambda view: self.model.clipped_means(view.parameters, one, clip=self.clip)[0]

    def amplified(self, direction: FloatArray) -> FloatArray:
        """Return a direction with the norm that no honest gradient exceeds."""
        length = float(np.linalg.norm(direction))
        scaled: FloatArray = direction * (self.clip / length) if length else direction
        return scaled

    def candidates(self) -> Records:
        """Return some spare records at random."""
        count = min(len(self.spare), _CANDIDATES * len(self.records))
        return self.spare.take(self.rng.permutation(len(self.spare))[:count])

    @cached_property
    def base_rates(self) -> FloatArray:
        """The part of the buyer's records that each class has."""
        counts = np.bincount(self.buyer.labels.astype(np.int64), minlength=self.buyer.classes)
        rates: FloatArray = counts / counts.sum()
        return rates

    def guess(self, parameters: FloatArray) -> FloatArray:
        """Return the gradient of one average record with the base rates for its label."""
        classes = self.buyer.classes
        average = np.repeat(self.buyer.features.mean(axis=0)[None], classes, axis=0)
        average[:, -1] = 1
        records = Records(average, np.arange(classes, dtype=np.float64), classes)
        one_each = Federation(records, np.arange(classes + 1))
        rows = self.model.clipped_means(parameters, one_each, clip=self.clip)
        gradient: FloatArray = self.base_rates @ rows
        return gradient


Attack = Callable[[DeviatingDevice], Gradient]


def own(device: DeviatingDevice) -> Gradient:
    """Do the work."""
    return device.mean_of(device.records)


def nothing(device: DeviatingDevice) -> Gradient:
    """Send noise alone."""
    return lambda view: np.zeros_like(view.parameters)


def shuffled(device: DeviatingDevice) -> Gradient:
    """Deal the labels to the records at random."""
    return device.mean_of(device.labelled(device.rng.permutation(device.records.labels)))


def constant(device: DeviatingDevice) -> Gradient:
    """Give every record the commonest label."""
    commonest = np.bincount(device.records.labels.astype(np.int64)).argmax()
    return device.mean_of(device.labelled(np.full(len(device.records), float(commonest))))


def half(device: DeviatingDevice) -> Gradient:
    """Use half of the agreed records."""
    return device.mean_of(device.records.take(np.arange(len(device.records) // 2)))


def ten(device: DeviatingDevice) -> Gradient:
    """Use ten records as if they were all."""
    few = device.records.take(np.arange(min(FEW, len(device.records))))
    mean = device.mean_of(few)
    return lambda view: mean(view) * (len(device.records) / len(few))


def other_classes(device: DeviatingDevice) -> Gradient:
    """Use true records, all of the rarer half of the classes."""
    rare = np.argsort(device.base_rates, kind="stable")[: max(1, device.buyer.classes // 2)]
    rows = np.flatnonzero(np.isin(device.spare.labels, rare))
    chosen = device.rng.permutation(rows)[: len(device.records)]
    return device.mean_of(device.spare.take(chosen))


def another_group(device: DeviatingDevice) -> Gradient:
    """Use true records that lie far out along the direction in which records differ most."""
    records = device.candidates()
    features = device.buyer.features - device.buyer.features.mean(axis=0)
    direction = np.linalg.eigh(features.T @ features)[1][:, -1]
    farthest = np.argsort(-(records.features @ direction), kind="stable")
    return device.mean_of(records.take(farthest[: len(device.records)]))


def base_rate_guess(device: DeviatingDevice) -> Gradient:
    """Send what public statistics alone say of the gradient."""
    return lambda view: device.guess(view.parameters)


def echo(smoothing: float) -> Attack:
    """Send the model's own last steps back, half as long as a gradient may be."""

    def attack(device: DeviatingDevice) -> Gradient:
        memory: list[FloatArray] = []

        def gradient(view: RoundView) -> FloatArray:
            if view.last_parameters is None:
                return np.zeros_like(view.parameters)
            step = view.last_parameters - view.parameters
            memory[:] = [smoothing * memory[0] + step if memory else step]
            return device.amplified(memory[0]) / 2

        return gradient

    return attack


def guess_then_echo(device: DeviatingDevice) -> Gradient:
    """Begin with the guess; then send the others' smoothed steps, as long as may be.

    The model's step is public, and so is every budget's part of it: what is left without the
    device's own update is the others' weighted mean.
    """
    memory: list[FloatArray] = []

    def gradient(view: RoundView) -> FloatArray:
        if view.last_parameters is None or view.last_sent is None:
            return device.amplified(device.guess(view.parameters))
        step = (view.last_parameters - view.parameters) / device.step_size
        others = step - device.weight * view.last_sent
        memory[:] = [_SMOOTHING * memory[0] + others if memory else others]
        return device.amplified(memory[0])

    return gradient


def feedback(*, with_guess: bool) -> Attack:
    """Climb on the score: each update, weighed by what it gained, points along h on average."""

    def attack(device: DeviatingDevice) -> Gradient:
        memory: list[FloatArray] = []

        def gradient(view: RoundView) -> FloatArray:
            if view.last_sent is None:
                direction = device.guess(view.parameters) * with_guess
            else:
                gained = view.last_gain * view.last_sent
                memory[:] = [_SMOOTHING * memory[0] + gained if memory else gained]
                direction = memory[0]
            return device.amplified(direction) * _STEADY

        return gradient

    return attack


def puppet(device: DeviatingDevice) -> Gradient:
    """Send the reference's own gradient, which the buyer has let it know."""

    def gradient(view: RoundView) -> FloatArray:
        assert view.reference is not None
        return view.reference

    return gradient
