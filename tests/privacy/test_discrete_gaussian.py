"""The sampler's law is exact: by arithmetic, next to every comparison, and in what it draws."""

import math
import tracemalloc
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from examples import examples
from fedbourse.errors import FedbourseError, InvalidNumber
from fedbourse.privacy import discrete_gaussian
from fedbourse.privacy.discrete_gaussian import (
    SIGMA_MAX,
    SIGMA_MIN,
    DiscreteGaussian,
    system_words,
)
from fedbourse.privacy.lazy_uniform import LazyUniform, RandomWords, exp_bounds
from fedbourse.testing.opendp_gaussian import opendp_gaussian

ALMOST_NEVER = 1e-9  # the chance that a right sampler fails a test of randomness
SIGMAS = [0.3, 0.7, 1.0, 1.5, 2.9, 6.0, 1e3, 2.0**31.7, 2.0**45, SIGMA_MAX]
any_sigma = st.one_of(st.floats(0.1, 20), st.floats(-10, 52).map(lambda x: 2.0**x))


def seeded(seed: int) -> RandomWords:
    """Return words that are the same again for the same seed: no device has such."""
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(0, 2**64, count, dtype=np.uint64)


def these(*words: int) -> RandomWords:
    left = iter(words)
    return lambda count: np.array([next(left) for _ in range(count)], np.uint64)


def no_words(count: int) -> np.ndarray:
    raise AssertionError("no more bits are needed here")


def shape(sigma: float) -> tuple[int, int, int]:
    """Return Laplace scale, blocks to a scale, and width of a block."""
    scale = 2 ** max(0, round(math.log2(sigma)))
    blocks = min(scale, 4)
    return scale, blocks, scale // blocks


def whole_numbers_only(sigma: float, words: np.ndarray) -> list[int]:
    """Draw as Canonne, Kamath and Steinke do, by whole numbers alone, from the same words."""
    scale, blocks, width = shape(sigma)
    variance = Fraction(sigma) ** 2
    draws = []
    for first, second, third in zip(*words.reshape(3, -1).tolist(), strict=True):
        uniform, block = LazyUniform(first, bits=64, words=no_words), 0
        while uniform.below_exp(Fraction(block + 1, blocks)):
            block += 1
        place = second % width
        x = block * width + place
        gamma = Fraction(place, scale) + (x - variance / scale) ** 2 / (2 * variance)
        kept = LazyUniform(third >> 11, bits=53, words=no_words).below_exp(gamma)
        if kept and not (second >> 63 and x == 0):
            draws.append(-x if second >> 63 else x)
    return draws


# The law.


@examples(100)
@given(any_sigma, st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1)), min_size=2))
def test_what_is_proposed_and_kept_is_the_gaussian_by_exact_arithmetic(sigma, drawn) -> None:
    """The chance of x is that of its block, times that of being kept: exp(-x^2 / 2 sigma^2)."""
    gaussian = DiscreteGaussian(sigma)
    _, blocks, width = shape(sigma)
    constants = set()
    for block, part in drawn:
        place = min(int(part * width), width - 1)
        x = block * width + place
        gamma = gaussian.exponent(x, place)
        assert gamma >= 0
        constants.add(Fraction(block, blocks) + gamma - Fraction(x**2) / (2 * Fraction(sigma) ** 2))
    assert len(constants) == 1


@pytest.mark.parametrize("sigma", SIGMAS)
def test_arrays_of_doubles_draw_what_whole_numbers_draw(sigma: float) -> None:
    words = seeded(1)(3 * 250)
    draws = DiscreteGaussian(sigma)._batch(250, these(*words.tolist()))
    assert draws.tolist() == whole_numbers_only(sigma, words)
    assert len(draws) > 40


@pytest.mark.parametrize("sigma", SIGMAS)
def test_were_every_comparison_too_close_the_same_would_be_drawn(sigma, monkeypatch) -> None:
    usual = DiscreteGaussian(sigma).draw(150, seeded(2))
    monkeypatch.setattr(discrete_gaussian, "_SLACK", 2.0)
    assert (DiscreteGaussian(sigma).draw(150, seeded(2)) == usual).all()


@pytest.mark.parametrize("sigma", [0.3, 2.9, 2.0**40])
def test_what_exp_errs_within_the_slack_has_no_part_in_the_law(sigma, monkeypatch) -> None:
    usual = DiscreteGaussian(sigma).draw(30_000, seeded(3))
    bias_exp(monkeypatch, 2.0**-41)
    assert (DiscreteGaussian(sigma).draw(30_000, seeded(3)) == usual).all()
    assert not wrong_decisions(DiscreteGaussian(sigma))


# Next to every comparison.


def bias_exp(monkeypatch: pytest.MonkeyPatch, bias: float) -> None:
    honest = np.exp
    monkeypatch.setattr(np, "exp", lambda x, out=None: np.multiply(honest(x), 1 + bias, out=out))


def wrong_decisions(gaussian: DiscreteGaussian) -> int:
    """Count false decisions about proposals whose 53 bits lie 0 to 2^40 from their chance."""
    _, _, width = shape(gaussian.sigma)
    offsets = [0, *(sign * 2**k for k in range(0, 41, 2) for sign in (-1, 1))]
    wrong = 0
    for block in range(12):
        for place in {0, width // 3, width - 1}:
            x = block * width + place
            chance = exp_bounds(gaussian.exponent(x, place), bits=117)[0]
            near = [(chance >> 64) + offset for offset in offsets]
            near = [bits for bits in near if 0 <= bits < 2**53]
            kept = gaussian._coins(
                np.full(len(near), x), np.full(len(near), place), np.array(near, np.uint64),
                lambda count: np.full(count, 2**63, np.uint64),
            )  # fmt: skip
            right = [(bits << 64 | 2**63) < chance for bits in near]
            wrong += sum(got != want for got, want in zip(kept.tolist(), right, strict=True))
    return wrong


@pytest.mark.parametrize("sigma", SIGMAS)
def test_every_decision_next_to_a_chance_is_right(sigma: float) -> None:
    assert wrong_decisions(DiscreteGaussian(sigma)) == 0


@pytest.mark.parametrize("bias", [2.0**-20, -(2.0**-20), 2.0**-35])
@pytest.mark.parametrize("sigma", [0.7, 2.0**31.7])
def test_a_small_bias_of_a_coin_is_caught(sigma, bias, monkeypatch) -> None:
    gaussian = DiscreteGaussian(sigma)
    bias_exp(monkeypatch, bias)
    assert wrong_decisions(gaussian) > 5


@pytest.mark.parametrize("bias", [2.0**-20, -(2.0**-20), 2.0**-45])
def test_an_inaccurate_exp_is_caught_before_anything_is_drawn(bias, monkeypatch) -> None:
    bias_exp(monkeypatch, bias)
    discrete_gaussian._check_exp.cache_clear()
    with pytest.raises(FedbourseError, match=r"exp is not accurate: exp\(-.*\) gives"):
        DiscreteGaussian(1.0)
    monkeypatch.undo()
    DiscreteGaussian(1.0)


def test_a_slack_below_the_error_is_caught(monkeypatch) -> None:
    monkeypatch.setattr(discrete_gaussian, "_SLACK", 0.0)
    assert sum(wrong_decisions(DiscreteGaussian(sigma)) for sigma in SIGMAS) > 5


def wrong_counts(geometric: discrete_gaussian._Geometric, blocks: int) -> int:
    """Count false numbers of words at, below and above each threshold."""
    wrong = 0
    for k in range(1, 40 * blocks):
        chance = exp_bounds(Fraction(k, blocks), bits=128)[0]
        word = chance >> 64
        near = np.array([word - 1, word, word + 1], np.uint64)
        on_it = k if (word << 64 | 2**63) < chance else k - 1
        counts = geometric.draw(near, lambda count: np.full(count, 2**63, np.uint64))
        wrong += counts.tolist() != [k, on_it, k - 1]
    return wrong


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_the_geometric_part_is_right_at_each_of_its_thresholds(blocks: int) -> None:
    assert wrong_counts(discrete_gaussian._geometric(blocks), blocks) == 0


@pytest.mark.parametrize("bias", [1, 2**44])
def test_a_biased_threshold_is_caught(bias: int) -> None:
    geometric = discrete_gaussian._Geometric(4)
    geometric._thresholds[-1] += np.uint64(bias)  # of 2^64
    assert wrong_counts(geometric, 4) == 1


@examples(60)
@given(st.integers(1, 2**64 - 1), st.sampled_from([1, 2, 4]))
def test_a_word_of_zeros_goes_on_with_fresh_bits(word: int, blocks: int) -> None:
    drawn = discrete_gaussian._geometric(blocks).draw(
        np.zeros(1, np.uint64), these(word, *[2**63] * 9)
    )
    uniform = (Decimal(word) + Decimal("0.5")) / Decimal(2) ** 128
    assert drawn[0] == int(-uniform.ln() * blocks)


def test_randomness_without_end_of_zeros_is_refused() -> None:
    with pytest.raises(FedbourseError, match="random numbers are broken"):
        DiscreteGaussian(6.0).draw(1, lambda count: np.zeros(count, np.uint64))


# What is drawn.


def probabilities(sigma: float, most: int) -> np.ndarray:
    """Return the chance of each x up to most on both sides."""
    x = np.arange(-most, most + 1)
    weights = np.exp(-(x**2) / (2 * sigma**2))
    return weights / weights.sum()


def misfit(sigma: float, draws: np.ndarray) -> float:
    """Return the p-value of draws against the exact probabilities; rare values count together."""
    most = 60 + int(40 * sigma)
    expected = len(draws) * probabilities(sigma, most)
    counts = np.bincount(draws + most, minlength=2 * most + 1)
    common = expected >= 8
    observed = [*counts[common], counts[~common].sum()]
    chances = [*expected[common], expected[~common].sum()]
    if chances[-1] < 1e-3:
        assert observed.pop() == 0
        chances.pop()
    return stats.chisquare(observed, np.array(chances) * sum(observed) / sum(chances)).pvalue


SMALL = [0.3, 0.5, 0.7, 1.0, 1.5, 2.9, 6.0, 11.0]


@pytest.mark.parametrize("sigma", SMALL)
def test_small_scales_have_the_exact_probabilities(sigma: float) -> None:
    assert misfit(sigma, DiscreteGaussian(sigma).draw(200_000, seeded(4))) > ALMOST_NEVER


@pytest.mark.parametrize("sigma", SMALL)
def test_the_systems_randomness_has_them_too(sigma: float) -> None:
    assert misfit(sigma, DiscreteGaussian(sigma).draw(50_000, system_words)) > ALMOST_NEVER


def test_two_zeros_and_a_lost_centre_are_caught(monkeypatch) -> None:
    """What the tests above would see of a zero for either sign, and of another c."""
    gaussian = DiscreteGaussian(0.7)
    gaussian._centre = Fraction(0)
    assert misfit(0.7, gaussian.draw(200_000, seeded(4))) < ALMOST_NEVER
    draws = DiscreteGaussian(0.7).draw(200_000, seeded(4))
    again = np.concatenate([draws, np.zeros((draws == 0).sum(), int)])
    assert misfit(0.7, again) < ALMOST_NEVER


@pytest.mark.parametrize("sigma", [0.7, 2.9, 40.0, 2.0**31.7])
def test_opendp_draws_the_same_law(sigma: float) -> None:
    ours = DiscreteGaussian(sigma).draw(40_000, seeded(5))
    theirs = np.array(opendp_gaussian(10_000, sigma)([0] * 10_000))
    if sigma > 10:
        assert stats.ks_2samp(ours, theirs).pvalue > ALMOST_NEVER
    else:
        assert misfit(sigma, theirs) > ALMOST_NEVER
        assert misfit(sigma, ours) > ALMOST_NEVER


@pytest.mark.parametrize("sigma", [300.0, 1e6, 2.0**31.7, 2.0**45, 2.0**45 * 1.3, SIGMA_MAX])
def test_large_scales_are_normal_to_the_tails_and_uniform_in_the_last_bits(sigma: float) -> None:
    draws = DiscreteGaussian(sigma).draw(200_000, seeded(6))
    assert stats.kstest(draws[:50_000] / sigma, "norm").pvalue > ALMOST_NEVER
    total = float(((draws / sigma) ** 2).sum())
    low, high = stats.chi2.interval(1 - ALMOST_NEVER, len(draws))
    assert low < total < high
    for tail in (2.0, 3.0, 3.7):
        for side in (1, -1):
            beyond = int((side * draws > tail * sigma).sum())
            chance = float(stats.norm.sf((math.floor(tail * sigma) + 0.5) / sigma))
            assert stats.binomtest(beyond, len(draws), chance).pvalue > ALMOST_NEVER
    assert stats.chisquare(np.bincount(draws & 15)).pvalue > ALMOST_NEVER
    assert stats.binomtest(int((draws > 0).sum()), int((draws != 0).sum())).pvalue > ALMOST_NEVER
    assert abs(stats.pearsonr(draws[1:], draws[:-1]).statistic) < 6 / math.sqrt(len(draws))


@pytest.mark.parametrize("sigma", [SIGMA_MIN, 1e-30, 1e-6, 0.05])
def test_next_to_no_noise_is_zero(sigma: float) -> None:
    assert not DiscreteGaussian(sigma).draw(2000, seeded(7)).any()


# Bounds.


def test_no_draw_overflows_at_the_largest_scale() -> None:
    """The last block that is allowed, its last place: doubles and 64 bits hold it, and refuse."""
    gaussian = DiscreteGaussian(SIGMA_MAX)
    _, _, width = shape(SIGMA_MAX)
    block = discrete_gaussian._BLOCK_LIMIT - 1
    x = block * width + width - 1
    assert x < 2**61
    kept = gaussian._coins(
        np.array([x]), np.array([width - 1]), np.zeros(1, np.uint64), these(*[0] * 20, 1)
    )
    assert not kept[0]


@pytest.mark.parametrize("count", [0, 1, 2, 999])
def test_as_many_are_drawn_as_asked_for(count: int) -> None:
    draws = DiscreteGaussian(5.0).draw(count, system_words)
    assert draws.shape == (count,)
    assert draws.dtype == np.int64


def test_a_million_take_little_more_memory_than_they_are() -> None:
    gaussian = DiscreteGaussian(1e9)
    tracemalloc.start()
    draws = gaussian.draw(10**6, system_words)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert draws.nbytes == 8 * 10**6
    assert peak < draws.nbytes + 4 * 2**20


def bits_a_draw(sigma: float) -> float:
    taken = 0

    def counted(count: int) -> np.ndarray:
        nonlocal taken
        taken += count
        return system_words(count)

    DiscreteGaussian(sigma).draw(50_000, counted)
    return 64 * taken / 50_000


def test_a_draw_takes_as_many_bits_as_the_page_says() -> None:
    for sigma in (1e3, 2.0**31.1, 2.0**31.5, 2.0**31.9, 2.0**45):
        assert 280 < bits_a_draw(sigma) < 345


@pytest.mark.parametrize(
    "wrong", [0, -1.0, math.nan, math.inf, 2 * SIGMA_MAX, SIGMA_MIN / 2, "1", None, True]
)
def test_a_wrong_scale_is_refused_in_one_sentence(wrong) -> None:
    with pytest.raises(InvalidNumber, match=r"^sigma must be a (finite )?number.*; found \S+$"):
        DiscreteGaussian(wrong)


def test_draws_are_never_the_same() -> None:
    gaussian = DiscreteGaussian(1e6)
    assert len({gaussian.draw(8, system_words).tobytes() for _ in range(50)}) == 50
