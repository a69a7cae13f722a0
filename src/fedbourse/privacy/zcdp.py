"""Gaussian noise that spends a zCDP budget exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from fedbourse.errors import InvalidNumber
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    import numpy.typing as npt


@overload
def noise_scale(rho: float, *, clip: float, samples: float, iterations: int) -> float: ...
@overload
def noise_scale(
    rho: npt.NDArray[np.float64],
    *,
    clip: float,
    samples: float | npt.NDArray[np.float64],
    iterations: int,
) -> npt.NDArray[np.float64]: ...


def noise_scale(
    rho: float | npt.NDArray[np.float64],
    *,
    clip: float,
    samples: float | npt.NDArray[np.float64],
    iterations: int,
) -> float | npt.NDArray[np.float64]:
    """Return the standard deviation of the noise in each coordinate of each answer.

    An answer is the mean of ``samples`` gradients, each clipped to norm ``clip``: exchanging ONE
    RECORD moves it by at most 2 clip / samples. Gaussian noise of this scale then costs
    rho / iterations of zCDP an answer, rho in all. A whole owner's data is samples^2 times dearer.

    >>> noise_scale(0.1, clip=1.0, samples=1000, iterations=500)
    0.1
    """
    clip = number("clip", clip, above=0)
    iterations = whole_number("iterations", iterations, at_least=1)
    try:
        budgets, records = np.asarray(rho, float), np.asarray(samples, float)
        np.broadcast_shapes(budgets.shape, records.shape)
    except (TypeError, ValueError):
        raise InvalidNumber("rho and samples must be numbers, or arrays of one length") from None
    for name, array in (("rho", budgets), ("samples", records)):
        wrong = array[~((array > 0) & np.isfinite(array))]
        if wrong.size:
            raise InvalidNumber(f"{name} must be a finite number above 0; found {wrong[0]:g}")
    # Two roots, not the root of a quotient, which overflows for the smallest budgets.
    scale = clip / records * (np.sqrt(2.0 * iterations) / np.sqrt(budgets))
    return scale if scale.ndim else float(scale)
