"""What names send in a task with evidence: gradients of records, or what somebody makes up.

A record is four normal numbers. Its class says on which side of a line it lies, with some noise;
the line lies in the plane of the first two numbers, turned by an angle.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.game.columns import FloatArray
from fedbourse.learning.partition import Federation
from fedbourse.learning.records import Records
from fedbourse.tasks.evidence import SALT_BYTES, reference_file

if TYPE_CHECKING:
    from fedbourse.learning.models import Model

FEATURES, SAMPLES, REFERENCE_RECORDS = 5, 100, 400
_CLIP = 1.0


@dataclass(frozen=True, eq=False)
class SeenRound:
    """What a device has at hand in a round."""

    name: str
    model: Model
    parameters: FloatArray
    before: FloatArray | None
    """The parameters of the round before."""

    def mean_of(self, records: Records, *, factor: float = 1.0) -> FloatArray:
        """Return the sum of the records' clipped gradients over the m that was agreed."""
        samples = np.array([SAMPLES])
        one = Federation(records, np.array([0, len(records)]), samples=samples)
        mean: FloatArray = self.model.clipped_means(self.parameters, one, clip=_CLIP)[0]
        return mean * factor


Sender = Callable[[SeenRound], FloatArray]
"""What a name sends in a round, before its noise."""


@lru_cache(maxsize=256)
def drawn_records(name: str, *, count: int = SAMPLES, angle: float = 0.0) -> Records:
    """Draw records; the same name has the same ones each time. The angle is in degrees."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    raw, turn = rng.normal(size=(count, FEATURES - 1)), math.radians(angle)
    line = 2.0 * np.array([math.cos(turn), math.sin(turn), 0.0, 0.0])
    labels = (raw @ line + rng.normal(size=count) > 0).astype(np.float64)
    return Records(np.column_stack([raw, np.ones(count)]), labels, 2)


@lru_cache(maxsize=256)
def reference_at(angle: float) -> bytes:
    """Return the reference file of records whose line is turned by an angle."""
    records = drawn_records("reference", count=REFERENCE_RECORDS, angle=angle)
    return reference_file(records, salt=bytes(SALT_BYTES))


def of_records(angle: float = 0.0) -> Sender:
    """Send the gradient of one's own records, as a device does."""
    return lambda seen: seen.mean_of(drawn_records(seen.name, angle=angle))


def of_one_class(seen: SeenRound) -> FloatArray:
    """Send the gradient of as many records as were agreed, all of one class."""
    records = drawn_records(seen.name, count=3 * SAMPLES)
    return seen.mean_of(records.take(np.flatnonzero(records.labels)[:SAMPLES]))


def nothing(seen: SeenRound) -> FloatArray:
    """Send noise alone."""
    return np.zeros_like(seen.parameters)


def amplified(factor: float) -> Sender:
    """Send the gradient of ten records, times a factor."""
    return lambda seen: seen.mean_of(drawn_records(seen.name, count=10), factor=factor)


def echo(size: float) -> Sender:
    """Send the model's own last step, at some size."""

    def send(seen: SeenRound) -> FloatArray:
        step = nothing(seen) if seen.before is None else seen.before - seen.parameters
        return step * (size / max(float(np.linalg.norm(step)), 1e-12))

    return send


def of_reference(angle: float = 0.0) -> Sender:
    """Send the gradient of the reference records."""
    records = drawn_records("reference", count=REFERENCE_RECORDS, angle=angle)
    return lambda seen: seen.mean_of(records, factor=SAMPLES / REFERENCE_RECORDS)
