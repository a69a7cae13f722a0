"""All owners in one process: one pass over one matrix for all of them.

Each simulated device still has a filter of its own, so that what it spends is counted and refused
by the very rules that run on a real one.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput, Refused
from fedbourse.learning.engines.engine import Updates
from fedbourse.privacy.filter import Filter, RoundRequest
from fedbourse.privacy.memory_store import MemoryStore
from fedbourse.units import number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedbourse.game.columns import BoolArray, FloatArray
    from fedbourse.learning.models import Model
    from fedbourse.learning.partition import Federation
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms


_STREAM = 0x61776179  # keeps who is away apart from whatever else is drawn from a seed


class LocalEngine:
    """Devices that live in this process."""

    def __init__(
        self,
        model: Model,
        federation: Federation,
        terms: Sequence[Terms],
        noise: Noise,
        *,
        filters: Sequence[Filter] | None = None,
        available: Callable[[int, int], BoolArray] | None = None,
        without_data: BoolArray | None = None,
    ) -> None:
        """Agree every owner's terms with its filter.

        ``filters`` are fresh ones without any other task where they are not given; ``available``
        says who of so many owners is there in a round (everybody, where it is not given).
        ``without_data`` says who sends noise alone (nobody).
        """
        _check(model, federation, terms)
        self._model, self._federation, self._terms, self._noise = model, federation, terms, noise
        self._available, self._without_data = available, without_data
        self.filters = filters or [Filter(MemoryStore(), lifetime_cap=t.rho) for t in terms]
        for guard, agreed in zip(self.filters, terms, strict=True):
            guard.agree(agreed)

    @property
    def scales(self) -> FloatArray:
        """Each owner's noise, a coordinate."""
        return self._noise.scales

    def ask(self, number: int, parameters: FloatArray) -> Updates:
        """Charge, draw, store, return: for all available owners at once.

        A device that refuses is left out like one that is away; ``Updates.refused`` says why.
        """
        parameters = self._checked(parameters)
        model = hashlib.sha256(parameters.tobytes()).hexdigest()
        owners = np.arange(len(self._terms))
        if self._available is not None:
            owners = owners[np.asarray(self._available(number, len(owners)), dtype=bool)]
        requests, updates, refused = {}, dict[int, bytes | None](), {}
        for i in owners.tolist():
            request = RoundRequest(self._terms[i].task, self._terms[i].digest, number, model)
            try:
                updates[i] = self.filters[i].charge(request, cost=float(self._noise.costs[i]))
                requests[i] = request
            except Refused as refusal:
                refused[i] = refusal
        fresh = np.array([i for i in requests if updates[i] is None], dtype=np.int64)
        if len(fresh):
            means = self._model.clipped_means(
                parameters, self._federation, clip=self._terms[0].clip
            )
            if self._without_data is not None:
                means[self._without_data] = 0.0
            vectors = self._noise.release(means[fresh], fresh, number)
            for i, vector in zip(fresh.tolist(), vectors, strict=True):
                updates[i] = self.filters[i].keep(requests[i], vector.tobytes())
        received = b"".join(update for update in updates.values() if update is not None)
        vectors = np.frombuffer(received).reshape(-1, self._model.dimension)
        return Updates(np.array(list(updates), dtype=np.int64), vectors, refused)

    def _checked(self, parameters: FloatArray) -> FloatArray:
        """Refuse what is not a model before anybody is charged for it."""
        array = np.ascontiguousarray(parameters)
        if array.dtype != np.float64 or array.shape != (self._model.dimension,):
            raise InvalidInput(
                f"a model must be {self._model.dimension} doubles; "
                f"found {array.dtype} of shape {array.shape}"
            )
        if not np.isfinite(array).all():
            raise InvalidInput("a model must be finite; found NaN or infinity")
        return array


def sometimes_away(rate: float, *, seed: int) -> Callable[[int, int], BoolArray]:
    """Return an availability for ``LocalEngine``: in each round each owner is away at this rate."""
    rate = number("rate", rate, at_least=0, at_most=1)

    def available(number: int, owners: int) -> BoolArray:
        return np.random.default_rng([_STREAM, seed, number]).random(owners) >= rate

    return available


def _check(model: Model, federation: Federation, terms: Sequence[Terms]) -> None:
    if len(terms) != federation.owners:
        raise InvalidInput(
            f"terms must be one for each of {federation.owners} owners; found {len(terms)}"
        )
    for i, (agreed, divisor) in enumerate(zip(terms, federation.divisors.tolist(), strict=True)):
        if agreed.samples != divisor:
            raise InvalidInput(
                f"owner {i} agreed to updates from {agreed.samples} records; found {divisor}"
            )
        if agreed.dimension != model.dimension or agreed.clip != terms[0].clip:
            raise InvalidInput(
                f"owner {i} agreed to dimension {agreed.dimension} and clip {agreed.clip:g}; the "
                f"task has {model.dimension} and {terms[0].clip:g}"
            )
