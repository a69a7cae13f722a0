"""One device and one task: a round request goes in, and an update that may be sent comes out.

Whatever carries the requests (the market's service, a Flower federation, a test), clip, noise and
spend lie here, and nothing about them is taken from the requests.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbourse.errors import InvalidInput, Refused
from fedbourse.privacy.filter import RoundRequest
from fedbourse.privacy.noise import ExactNoise

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray
    from fedbourse.learning.device_records import DeviceRecords
    from fedbourse.learning.models import Model
    from fedbourse.privacy.filter import Filter
    from fedbourse.privacy.noise import Noise
    from fedbourse.privacy.terms import Terms


class Device:
    """Computes the updates of one task from one owner's records, never beyond its terms."""

    def __init__(
        self,
        terms: Terms,
        model: Model,
        records: Callable[[], DeviceRecords],
        guard: Filter,
        *,
        noise: Noise | None = None,
        seat: int = 0,
        form: Literal["float64", "float32"] = "float64",
    ) -> None:
        """Guard a task that the filter has agreed to.

        ``records`` is called for the first request that is not refused, and never before; whatever
        it returns, an update is sent. ``noise`` is exact by default; of noise for many owners, this
        device's is the one at ``seat``. ``form`` is how updates are encoded.
        """
        if terms.dimension != model.dimension:
            raise InvalidInput(
                f"the terms agree to dimension {terms.dimension}; the model has {model.dimension}"
            )
        self.terms = terms
        self._model, self._load, self._guard = model, records, guard
        self._noise, self._seat = noise or ExactNoise([terms]), seat
        self._own: DeviceRecords | None = None
        self._form = {"float64": "<f8", "float32": "<f4"}[form]

    def update(self, *, terms: str, round: int, parameters: bytes) -> bytes:
        """Return the update of a round, as little-endian numbers: charged, drawn and stored.

        ``terms`` is the digest of what the requester thinks was agreed. A repeated request gets the
        same update. A refusal costs nothing, and no record has been read for it: from then on
        nothing is refused, as that would tell something about the records.
        """
        model = self._checked(parameters)
        round_request = RoundRequest(
            self.terms.task, terms, round, hashlib.sha256(bytes(parameters)).hexdigest()
        )
        cost = float(self._noise.costs[self._seat])
        stored = self._guard.check(round_request, cost=cost)
        if stored is not None:
            return stored
        # Before the charge: a file that is gone should cost nothing.
        own = self._records().federation
        mean = self._model.clipped_means(model, own, clip=self.terms.clip)

        def draw() -> bytes:
            update = self._noise.release(mean, np.array([self._seat]), round)
            return update.astype(self._form).tobytes()

        return self._guard.update(round_request, draw, cost=cost)

    def _checked(self, parameters: bytes) -> FloatArray:
        """Refuse what is not a model of this task."""
        size = 8 * self.terms.dimension
        if not isinstance(parameters, bytes) or len(parameters) != size:
            length = len(parameters) if isinstance(parameters, bytes) else type(parameters).__name__
            raise Refused(
                "no-model",
                f"a model is {self.terms.dimension} doubles, {size} bytes; found {length}",
            )
        model: FloatArray = np.frombuffer(parameters, dtype="<f8").astype(np.float64)
        if not np.isfinite(model).all():
            raise Refused("no-model", "a model must be finite; found NaN or infinity")
        return model

    def _records(self) -> DeviceRecords:
        if self._own is None:
            own = self._load()
            if own.samples != self.terms.samples:
                raise InvalidInput(
                    f"the terms divide by {self.terms.samples} records; the records were chosen "
                    f"for {own.samples}"
                )
            self._own = own
        return self._own
