"""Noise for models of a million parameters: a cipher's randomness, on the grid of exact noise.

Continuous normal draws are rounded to the grid, so that an answer shows nothing below it. Unlike
the discrete Gaussian this is not proven to cost what it says: the draws themselves are doubles.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import MissingExtra
from fedbourse.privacy.noise import GridGaussian, check_shape, one_dimension

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedbourse.privacy.noise import FloatArray, IntArray
    from fedbourse.privacy.terms import Terms


class FastNoise:
    """Normal noise from ChaCha20, keyed by the system; some hundred times faster than exact noise.

    It has no seed.
    """

    def __init__(self, terms: Sequence[Terms]) -> None:
        """Prepare one mechanism for each owner's terms."""
        one_dimension(terms)
        self._devices = [GridGaussian(t) for t in terms]
        self.scales = np.array([device.scale for device in self._devices])
        self.costs = np.array([device.cost for device in self._devices])
        self._generator, self._process = _generator(), os.getpid()

    def release(self, answers: FloatArray, owners: IntArray, number: int) -> FloatArray:
        """Add fresh noise; ``number`` plays no part."""
        check_shape(answers, len(owners), self._devices[0].dimension)
        if self._process != os.getpid():  # forked: its parent must not draw the same
            self._generator, self._process = _generator(), os.getpid()
        noisy = np.empty(answers.shape)
        for i, owner in enumerate(owners.tolist()):
            device = self._devices[owner]
            steps = device.steps(answers[i]) + device.scale / device.grid * (
                self._generator.standard_normal(device.dimension)
            )
            np.multiply(np.rint(steps), device.grid, out=noisy[i])
        return noisy


def _generator() -> Any:
    try:
        from randomgen import ChaCha
    except ImportError:
        raise MissingExtra(
            "fast noise needs randomgen: pip install 'fedbourse[fast-noise]'"
        ) from None
    return np.random.Generator(ChaCha(key=int.from_bytes(os.urandom(32)), rounds=20))
