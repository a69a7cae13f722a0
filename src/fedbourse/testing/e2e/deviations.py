"""Devices that send something else than their records' gradient, with the noise that they sold.

Each is planted in a forked device only, whose updates then pass every test of their size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedbourse.game.columns import FloatArray


def no_data() -> None:
    """Send noise alone."""
    _replace_gradients(np.zeros_like)


def echo() -> None:
    """Send the model's last step back, as long as a gradient may be."""
    models: list[FloatArray] = []

    def last_step(model: FloatArray) -> FloatArray:
        if not models or (models[-1] != model).any():
            models.append(model)
        step = models[-2] - model if len(models) > 1 else np.zeros_like(model)
        return step / max(float(np.linalg.norm(step)), 1e-300)

    _replace_gradients(last_step)


def _replace_gradients(gradient: Callable[[FloatArray], FloatArray]) -> None:
    """Let every model that a device builds have this gradient, whatever its records are."""
    from fedbourse.learning.device import Device

    begin = Device.__init__

    class Other:
        def __init__(self, model: Any) -> None:
            self.dimension = model.dimension

        def clipped_means(self, model: FloatArray, _records: object, *, clip: float) -> FloatArray:
            return clip * gradient(model)[None]

    def begin_with_another(device: Any, terms: Any, model: Any, *more: Any, **options: Any) -> None:
        begin(device, terms, Other(model), *more, **options)  # type: ignore[arg-type]

    Device.__init__ = begin_with_another  # type: ignore[assignment,method-assign]


DEVIATIONS = {deviation.__name__: deviation for deviation in (no_data, echo)}
