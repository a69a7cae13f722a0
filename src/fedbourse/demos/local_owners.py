"""The owners of ``fedbourse demo``: who has which records, and what privacy is worth to each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.embedded.simulated_devices import SimulatedOwners
from fedbourse.errors import InvalidData, InvalidInput
from fedbourse.game import Uniform
from fedbourse.learning.engines.local import sometimes_away
from fedbourse.learning.partition import partition
from fedbourse.privacy.noise import ExactNoise, SimulatedNoise
from fedbourse.privacy.zcdp import DELTA, rho_for
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.demos.local import DemoSettings
    from fedbourse.game.columns import IntArray
    from fedbourse.learning.partition import Federation
    from fedbourse.learning.sources import Source
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms

_USUAL_OWNERS = 200
_NEXT_TO_NOTHING = 0.1
"""The value of an owner without data, as a part of the lowest value of the others."""


@dataclass(frozen=True)
class DealtRecords:
    """How the source's records are dealt out to the owners, of whom the first few have no data."""

    source: Source
    interested: int
    samples: int
    scheme: str
    without_data: int
    seed: int

    def to(self, chosen: IntArray) -> Federation:
        """Return the records of these owners; those without data make no use of theirs."""
        return partition(
            self.source.pool,
            owners=len(chosen),
            samples=self.samples,
            scheme=self.scheme,
            seed=self.seed,
            groups=self.source.groups,
            name=self.source.name,
        )


def deal(settings: DemoSettings, source: Source, seed: int) -> DealtRecords:
    """Refuse more owners than the data can serve, and return how records are dealt out."""
    samples = source.default_samples if settings.samples is None else settings.samples
    samples = whole_number("samples", samples, at_least=1)
    scheme = settings.partition or ("iid" if source.groups is None else "groups")
    if scheme.startswith("unequal"):
        raise InvalidInput("a card fixes one number of records for all; partition unequal does not")
    interested = _interested(settings.owners, source, samples, scheme)
    without_data = whole_number("without_data", settings.without_data, at_least=0)
    if without_data >= interested:
        raise InvalidInput(
            f"without_data must be fewer than the {interested} owners; found {without_data}"
        )
    return DealtRecords(source, interested, samples, scheme, without_data, seed)


def simulated_owners(settings: DemoSettings, dealt: DealtRecords, seed: int) -> SimulatedOwners:
    """Return the owners; to those without data, privacy is worth next to nothing."""
    values = Uniform(*settings.values).rvs(
        size=(dealt.interested,), random_state=np.random.default_rng([seed, 3])
    )
    values[: dealt.without_data] = _NEXT_TO_NOTHING * settings.values[0]
    dropout = number("dropout", settings.dropout, at_least=0, at_most=1)

    def noise(terms: Sequence[Terms]) -> Noise:
        return ExactNoise(terms) if settings.noise == "exact" else SimulatedNoise(terms, seed=seed)

    return SimulatedOwners(
        values=values,
        lifetime_caps=np.full(dealt.interested, cap_of(settings)),
        records=dealt.to,
        noise=noise,
        without_data=np.arange(dealt.interested) < dealt.without_data,
        available=sometimes_away(dropout, seed=seed) if dropout else None,
    )


def cap_of(settings: DemoSettings) -> float:
    """Return every owner's lifetime cap, in rho."""
    return rho_for(epsilon=settings.cap_epsilon, delta=DELTA)


def _interested(owners: int | None, source: Source, samples: int, scheme: str) -> int:
    """Return the number of owners, and refuse more than the data can serve."""
    able = len(source.pool) // samples
    if scheme == "groups" and source.groups is not None:
        able = int(np.count_nonzero(np.bincount(source.groups[source.groups >= 0]) >= samples))
    count = min(_USUAL_OWNERS, able)
    if owners is not None:
        count = whole_number("owners", owners, at_least=2)
    if count > able or able < 2:
        raise InvalidData(
            f"{source.name} can serve {able} owners of {samples} records, and "
            + (f"{count} were asked for" if able > 1 else "a trade needs two")
        )
    return count
