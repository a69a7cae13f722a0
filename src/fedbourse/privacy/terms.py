"""What one owner sells to one task: the privacy side of the terms that both sign."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property

from fedbourse.errors import InvalidInput
from fedbourse.privacy.zcdp import noise_scale
from fedbourse.units import number, whole_number

_COUNT_MAX = 2.0**53  # beyond it a double does not hold every whole number


@dataclass(frozen=True)
class Terms:
    """A budget for one record, spent evenly over the rounds of a task.

    >>> terms = Terms(task="late flights", rho=0.1, rounds=500, dimension=116, samples=1000)
    >>> terms.scale, terms.sensitivity
    (0.1, 0.002)
    """

    task: str
    """The name or hash of the task."""
    rho: float
    """The budget that is sold, in zCDP."""
    rounds: int
    """T, the largest number of updates that the owner sends."""
    dimension: int
    """d, the length of an update."""
    samples: int
    """m, the records that each update is the mean of."""
    clip: float = 1.0
    """L, the norm that each record's gradient is clipped to."""

    def __post_init__(self) -> None:
        if not isinstance(self.task, str) or not self.task:
            raise InvalidInput(f"task must be a name; found {self.task!r:.60}")
        object.__setattr__(self, "rho", number("rho", self.rho, above=0))
        object.__setattr__(self, "clip", number("clip", self.clip, above=0))
        for name in ("rounds", "dimension", "samples"):
            count = number(name, getattr(self, name), at_least=1, at_most=_COUNT_MAX)
            object.__setattr__(self, name, whole_number(name, count, at_least=1))

    @property
    def sensitivity(self) -> float:
        """Return 2 L / m: how far exchanging one record moves an update, before any rounding."""
        return 2.0 * self.clip / self.samples

    @cached_property
    def scale(self) -> float:
        """Return the noise of each coordinate that spends rho over all rounds."""
        return noise_scale(self.rho, clip=self.clip, samples=self.samples, iterations=self.rounds)

    @cached_property
    def round_rho(self) -> float:
        """Return what one update may cost: rho / T, rounded down so that T of them stay within."""
        cost = self.rho / self.rounds
        while Fraction(cost) * self.rounds > Fraction(self.rho):
            cost = math.nextafter(cost, 0.0)
        return cost

    @cached_property
    def exact_rho(self) -> Fraction:
        """Return rho as the fraction that it is."""
        return Fraction(self.rho)

    @cached_property
    def exact_round_rho(self) -> Fraction:
        """Return what one update may cost as the fraction that it is."""
        return Fraction(self.round_rho)

    @cached_property
    def digest(self) -> str:
        """Return the hash that pins these terms: any change of any field changes it."""
        body = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(body.encode()).hexdigest()
