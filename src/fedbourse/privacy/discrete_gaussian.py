"""The discrete Gaussian, exact and vectorised.

P(x) is proportional to exp(-x^2 / (2 sigma^2)) over all whole numbers x, where sigma is the
rational number that its double is. The algorithm is that of Canonne, Kamath and Steinke (2020):
propose x from a discrete Laplace distribution of scale b, keep it with probability
exp(-(|x| - c)^2 / (2 sigma^2)), c = sigma^2 / b. A probability is computed in doubles; where its
53 random bits lie so close to it that rounding could decide, exact arithmetic decides, on more bits
where these are too few. So rounding has no part in the law. What that rests on is proved in
docs/theory/exact-noise.md.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

from fedbourse.errors import FedbourseError
from fedbourse.privacy.lazy_uniform import LazyUniform, RandomWords, exp_bounds
from fedbourse.units import number

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
WordArray = npt.NDArray[np.uint64]

SIGMA_MIN, SIGMA_MAX = 2.0**-500, 2.0**52
"""Between these nothing overflows, neither a double's exponent nor 64 bits."""

_SLACK = 2.0**-40
"""How far u must lie from p in doubles to decide: 2^9 times the error that is proved."""
_BLOCKS = 4  # to a Laplace scale
_BLOCK_LIMIT = 2**10  # the chance of a block beyond it is below 2^-369
_CHUNK = 2**14  # proposals at a time, so that they stay in the cache
_EXP_ERROR = Fraction(1, 2**50)
"""The most that exp may be off, relatively, where it is tested; the proof needs 2^-42."""
_BIN_BITS = 16
_UNDECIDED = 255  # more than any bin counts


def system_words(count: int) -> WordArray:
    """Return random words of the operating system: there is no stream that a fork could repeat."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class DiscreteGaussian:
    """The discrete Gaussian whose sigma is the rational number that this double is."""

    def __init__(self, sigma: float) -> None:
        self.sigma = number("sigma", sigma, at_least=SIGMA_MIN, at_most=SIGMA_MAX)
        _check_exp()
        self.variance = Fraction(self.sigma) ** 2
        # b is the power of two nearest to sigma, but at least 1; it is cut into equal blocks.
        self._scale = 2 ** max(0, round(math.log2(self.sigma)))
        blocks = min(self._scale, _BLOCKS)
        self._width = self._scale // blocks
        self._centre = self.variance / self._scale
        self._geometric = _geometric(blocks)
        # About how many of the proposals are kept: for the size of the next lot, and no more.
        ratio = self.sigma / self._scale
        gauss = math.sqrt(math.pi / 2.0) * ratio * math.exp(-(ratio**2) / 2.0)
        self._rate = max(0.25, gauss * blocks * -math.expm1(-1.0 / blocks))

    def draw(self, count: int, words: RandomWords) -> IntArray:
        """Return independent draws, made of these random words alone."""
        draws = np.empty(count, np.int64)
        done = 0
        while done < count:
            left = (count - done) / self._rate
            proposals = min(_CHUNK, int(left + 3.0 * math.sqrt(left)) + 8)
            # All proposals are alike and independent: the first that are kept will do.
            batch = self._batch(proposals, words)[: count - done]
            draws[done : done + len(batch)] = batch
            done += len(batch)
        return draws

    def _batch(self, proposals: int, words: RandomWords) -> IntArray:
        """Make so many proposals, and return those that are kept: two thirds at most."""
        first, second, third = words(3 * proposals).reshape(3, proposals)
        # |x| is `place` steps into block `block`; the place is uniform, and kept like the rest.
        place = (second & np.uint64(self._width - 1)).view(np.int64)
        x = self._geometric.draw(first, words)
        x *= self._width
        x += place
        coins = self._coins(x, place, third >> np.uint64(11), words)
        negative = (second >> np.uint64(63)).astype(bool)
        coins &= ~(negative & (x == 0))  # there is one zero
        np.negative(x, out=x, where=negative)
        return x[coins]

    def _coins(
        self, x: IntArray, place: IntArray, bits: WordArray, words: RandomWords
    ) -> npt.NDArray[np.bool_]:
        """Return, for each proposal, whether it is kept, by 53 random bits each."""
        distance = x - float(self._centre)
        distance /= self.sigma
        exponent = np.square(distance, out=distance)
        exponent *= -0.5
        exponent -= place * (1.0 / self._scale)
        with np.errstate(under="ignore"):
            chance = np.exp(exponent, out=exponent)
        chance -= bits * 2.0**-53
        coins: npt.NDArray[np.bool_] = chance > 0
        for i in np.flatnonzero(np.abs(chance) <= _SLACK).tolist():
            uniform = LazyUniform(int(bits[i]), bits=53, words=words)
            coins[i] = uniform.below_exp(self.exponent(int(x[i]), int(place[i])))
        return coins

    def exponent(self, x: int, place: int) -> Fraction:
        """Return gamma: exp(-gamma) is the chance that such a proposal is kept."""
        gaussian: Fraction = (x - self._centre) ** 2 / (2 * self.variance)
        return gaussian + Fraction(place, self._scale)


class _Geometric:
    """Geometric numbers: at least k with probability exp(-k / blocks)."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        thresholds: list[int] = []  # of 2^64 exp(-k / blocks) the whole part, down to 0
        while not thresholds or thresholds[-1]:
            low, high = exp_bounds(Fraction(len(thresholds) + 1, blocks), bits=96)
            assert low >> 32 == high >> 32
            thresholds.append(low >> 32)
        self._thresholds = np.array(thresholds[::-1], np.uint64)
        # Most words are told by their first bits: all words of a bin without threshold are alike.
        starts = np.arange(2**_BIN_BITS, dtype=np.uint64) << np.uint64(64 - _BIN_BITS)
        self._bins = self._count_above(starts).astype(np.uint8)
        self._bins[self._thresholds >> np.uint64(64 - _BIN_BITS)] = _UNDECIDED

    def draw(self, uniform: WordArray, words: RandomWords) -> IntArray:
        """Return a geometric number for each of these first 64 bits of a uniform number."""
        counts: IntArray = self._bins[uniform >> np.uint64(64 - _BIN_BITS)].astype(np.int64)
        undecided = np.flatnonzero(counts == _UNDECIDED)
        counts[undecided] = self._count_above(uniform[undecided])
        for i in undecided[np.isin(uniform[undecided], self._thresholds)].tolist():
            counts[i] = self._exact(int(counts[i]), int(uniform[i]), words)
        return counts

    def _count_above(self, uniform: WordArray) -> IntArray:
        """Return how many thresholds lie above each."""
        reached = np.searchsorted(self._thresholds, uniform, side="right")
        above: IntArray = len(self._thresholds) - reached.astype(np.int64)
        return above

    def _exact(self, count: int, first_bits: int, words: RandomWords) -> int:
        """Go on from a count that is certain, on more bits."""
        uniform = LazyUniform(first_bits, bits=64, words=words)
        while uniform.below_exp(Fraction(count + 1, self._blocks)):
            count += 1
            if count >= _BLOCK_LIMIT:
                raise FedbourseError(
                    "the system's random numbers are broken: they begin with hundreds of zeros"
                )
        return count


@cache
def _geometric(blocks: int) -> _Geometric:
    return _Geometric(blocks)


@cache
def _check_exp() -> None:
    """Refuse an exp that is not accurate: all that is assumed of floating point beyond IEEE 754."""
    points = np.concatenate([[2.0**-60, 2.0**-30], np.linspace(0.0, 45.0, 255), [700.0, 1e300]])
    with np.errstate(under="ignore"):
        values = np.exp(-points)
    for point, value in zip(points.tolist(), values.tolist(), strict=True):
        low, high = exp_bounds(Fraction(point), bits=160)
        if not low * (1 - _EXP_ERROR) <= Fraction(value) * 2**160 <= high * (1 + _EXP_ERROR):
            raise FedbourseError(
                f"this machine's exp is not accurate: exp({-point!r}) gives {value!r}; "
                "no noise can be drawn with it"
            )
