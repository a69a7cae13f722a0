"""One device and one task: a question goes in, and an answer that may be sent comes out.

Whatever carries the questions (the market's service, a Flower federation, a test), clip, noise and
spend lie here, and nothing about them is taken from whoever asks.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbourse.errors import InvalidInput, Refused
from fedbourse.privacy.filter import Question
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
    """Answers the questions of one task from one owner's records, and never beyond its terms."""

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

        ``records`` is called for the first question that is not refused, and never before; whatever
        it returns, the question is answered. ``noise`` is exact where it is not given; of noise for
        many owners, this device's is the one at ``seat``. ``form`` is how answers are spelled.
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

    def answer(self, *, terms: str, round: int, parameters: bytes) -> bytes:
        """Return the answer to a question, as little-endian numbers: charged, drawn and stored.

        ``terms`` is the digest of what the asker thinks was agreed. A question that was answered
        before gets the same answer. A refusal costs nothing, and no record has been read for it:
        from then on nothing is refused, as that would tell something about the records.
        """
        model = self._checked(parameters)
        question = Question(
            self.terms.task, terms, round, hashlib.sha256(bytes(parameters)).hexdigest()
        )
        cost = float(self._noise.costs[self._seat])
        kept = self._guard.check(question, cost=cost)
        if kept is not None:
            return kept
        # Before the charge: a file that is gone should cost nothing.
        own = self._records().federation
        mean = self._model.clipped_means(model, own, clip=self.terms.clip)

        def draw() -> bytes:
            drawn = self._noise.release(mean, np.array([self._seat]), round)
            return drawn.astype(self._form).tobytes()

        return self._guard.answer(question, draw, cost=cost)

    def _checked(self, parameters: bytes) -> FloatArray:
        """Refuse what is no model of this task."""
        size = 8 * self.terms.dimension
        if not isinstance(parameters, bytes) or len(parameters) != size:
            found = len(parameters) if isinstance(parameters, bytes) else type(parameters).__name__
            raise Refused(
                "no-model",
                f"a model is {self.terms.dimension} doubles, {size} bytes; found {found}",
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
