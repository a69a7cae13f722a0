"""Faults to plant in an honest device, to see an audit catch them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from fedbourse.privacy.noise import FloatArray

FAULT_DESCRIPTIONS = {
    "half-sigma": "half the noise",
    "low-sigma": "noise 10 % low",
    "reused-noise": "the same noise in every round",
    "reused-between-runs": "the same noise in every run",
    "double-sensitivity": "a record that counts twice",
}
NOISE_SHARES = {"half-sigma": 0.5, "low-sigma": 0.9}
"""The part of the claimed noise that is left."""

Draw = Callable[[], FloatArray]


def _scaled(share: float) -> Callable[[Draw], Draw]:
    return lambda draw: lambda: share * draw()


def _reused_noise(draw: Draw) -> Draw:
    def repeat() -> FloatArray:
        noise = draw()
        return np.repeat(noise[:1], len(noise), axis=0)

    return repeat


NOISE_FAULTS: dict[str, Callable[[Draw], Draw]] = {
    "half-sigma": _scaled(NOISE_SHARES["half-sigma"]),
    "low-sigma": _scaled(NOISE_SHARES["low-sigma"]),
    "reused-noise": _reused_noise,
    "reused-between-runs": cache,
}
"""Each makes faulty noise of honest noise."""
