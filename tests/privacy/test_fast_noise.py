"""Fast noise: the scale of exact noise, without gaps, from a cipher that nobody can repeat."""

import builtins
import os
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from examples import examples
from fedbourse.errors import InvalidInput, MissingExtra
from fedbourse.privacy import ExactNoise, FastNoise, Terms
from fedbourse.privacy.noise import charged_sensitivity

ALMOST_NEVER = 1e-9  # the chance that a right mechanism fails a test of randomness
ORDINARY = Terms(task="task", rho=0.1, rounds=500, dimension=20_000, samples=1000)
any_terms = st.builds(
    Terms,
    task=st.just("task"),
    rho=st.floats(1e-4, 1e3),
    rounds=st.integers(1, 100),
    dimension=st.integers(1, 50),
    samples=st.integers(1, 10**6),
    clip=st.floats(1e-6, 1e6),
)


def released(noise: FastNoise, update: np.ndarray) -> np.ndarray:
    return noise.release(update[None, :], np.array([0]), 0)[0]


@given(any_terms)
def test_all_updates_together_never_cost_more_than_the_budget(terms: Terms) -> None:
    noise = FastNoise([terms])
    assert noise.costs[0] <= terms.round_rho
    assert Fraction(float(noise.costs[0])) * terms.rounds <= Fraction(terms.rho)
    # In exact arithmetic, from the scale that is drawn and the distance that is charged.
    grid = noise._mechanisms[0].grid
    distance, scale = Fraction(charged_sensitivity(terms, grid)), Fraction(float(noise.scales[0]))
    assert distance**2 / (2 * scale**2) <= Fraction(terms.round_rho)
    two_draws = 2 * (Fraction(noise._mechanisms[0].draw_steps) * Fraction(grid)) ** 2  # type: ignore[attr-defined]
    assert two_draws >= scale**2


@given(any_terms)
def test_a_coarser_grid_is_charged_and_costs_next_to_nothing(terms: Terms) -> None:
    fast, exact = FastNoise([terms]), ExactNoise([terms])
    assert fast._mechanisms[0].grid == exact._mechanisms[0].grid * 2**11
    assert exact.scales[0] < fast.scales[0] < exact.scales[0] * (1 + 1e-5)
    assert fast.scales[0] >= terms.scale  # rounding is charged, never forgotten


def widest_layer() -> float:
    """Return what the draws of the ziggurat's widest layer, the lowest, are multiples of."""
    from randomgen import UserBitGenerator

    lowest = np.random.Generator(UserBitGenerator(lambda _: 2**51 << 9, 64))
    return lowest.standard_normal() / 2**51


LEAST = Terms(task="task", rho=2.0**-20, rounds=1, dimension=2, samples=1000)


@pytest.mark.parametrize("clip", [1.0, 1.999])
def test_every_step_is_drawn_in_very_many_ways_even_at_the_least_budget(clip: float) -> None:
    """Were there gaps, an update in one would rule out a neighbour for certain."""
    steps = FastNoise([replace(LEAST, clip=clip)])._mechanisms[0].draw_steps  # type: ignore[attr-defined]
    width = widest_layer()
    assert 3.6 < width * 2**52 < 3.92
    reached = np.rint(np.random.default_rng(0).uniform(1, 3.65 * steps, 10_000))
    for step in (*reached, 1.0, 2.0):
        first = np.ceil((step - 0.5) / (steps * width)) + 2
        ways = 2.0**18
        assert np.rint(steps * (first * width)) == step
        assert np.rint(steps * ((first + ways) * width)) == step


def test_noise_is_two_draws_that_are_rounded_by_themselves() -> None:
    class Fixed:
        draws = (np.array([9.1, -0.3]), np.array([0.7, 1.1]))

        def __init__(self) -> None:
            self.left = list(self.draws)

        def standard_normal(self, dimension: int) -> np.ndarray:
            return self.left.pop(0)[:dimension].copy()

    noise = FastNoise([LEAST])
    noise._generator = fixed = Fixed()
    device = noise._mechanisms[0]
    whole = sum(np.rint(device.draw_steps * draw) for draw in Fixed.draws)  # type: ignore[attr-defined]
    assert (released(noise, np.zeros(2)) == whole * device.grid).all()
    assert not fixed.left


def test_terms_whose_noise_would_have_gaps_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"at least 9\.54e-07 for fast noise .* found 9e-07"):
        FastNoise([replace(LEAST, rho=9e-7)])
    with pytest.raises(InvalidInput, match=r"at most 2\.15e\+09 steps of its grid; 1073741824 sam"):
        FastNoise([replace(LEAST, samples=2**30)])
    FastNoise([replace(LEAST, rho=1.0, samples=10**8)])


@examples(30)
@given(any_terms, st.data())
def test_what_leaves_is_a_multiple_of_the_grid(terms: Terms, data) -> None:
    noise = FastNoise([terms])
    raw = np.array(data.draw(st.lists(st.floats(-1, 1), min_size=terms.dimension,
                                      max_size=terms.dimension)))  # fmt: skip
    update = raw * terms.clip / max(1.0, np.linalg.norm(raw))
    steps = released(noise, update) / noise._mechanisms[0].grid
    assert (steps == np.rint(steps)).all()


def test_noise_is_normal_of_the_right_scale_and_without_memory() -> None:
    noise = FastNoise([ORDINARY])
    first, second = (released(noise, np.zeros(ORDINARY.dimension)) for _ in range(2))
    for drawn in (first, second):
        scaled = drawn / noise.scales[0]
        assert stats.kstest(scaled, "norm").pvalue > ALMOST_NEVER
        total = float((scaled**2).sum())
        low, high = stats.chi2.interval(1 - ALMOST_NEVER, ORDINARY.dimension)
        assert low < total < high
    assert abs(stats.pearsonr(first, second).statistic) < 6 / ORDINARY.dimension**0.5
    assert abs(stats.pearsonr(first[1:], first[:-1]).statistic) < 6 / ORDINARY.dimension**0.5


def test_two_devices_never_draw_the_same() -> None:
    terms = Terms(task="task", rho=1, rounds=1, dimension=8, samples=10)
    drawn = {released(FastNoise([terms]), np.zeros(8)).tobytes() for _ in range(20)}
    assert len(drawn) == 20


def test_a_forked_process_draws_other_noise() -> None:
    terms = Terms(task="task", rho=1, rounds=1, dimension=8, samples=10)
    noise = FastNoise([terms])
    noise.release(np.zeros((1, 8)), np.array([0]), 0)
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(begin, released(noise, np.zeros(8)).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(end, 64)
    os.close(end)
    os.close(begin)
    assert len(theirs) == 64
    assert theirs != released(noise, np.zeros(8)).tobytes()


@pytest.mark.parametrize(
    "wrong",
    [np.array([[np.nan, 0.0]]), np.array([[np.inf, 0.0]]), np.array([[2.0, 0.0]]),
     np.array([[1e200, 1e200]]), np.zeros((1, 3)), np.zeros(2), np.zeros((1, 2), np.float32)],
)  # fmt: skip
def test_a_wrong_update_gets_no_noise(wrong) -> None:
    noise = FastNoise([Terms(task="task", rho=1, rounds=1, dimension=2, samples=10)])
    with pytest.raises(InvalidInput):
        noise.release(wrong, np.array([0]), 0)


def test_terms_below_the_grid_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least"):
        FastNoise([Terms(task="task", rho=1e-9, rounds=10_000, dimension=2, samples=10)])


def test_terms_of_different_dimensions_make_no_task() -> None:
    made = [Terms(task="task", rho=1, rounds=1, dimension=d, samples=10) for d in (2, 3)]
    with pytest.raises(InvalidInput, match="one dimension"):
        FastNoise(made)


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args, **options):
        if name == "randomgen":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"fedbourse\[fast-noise\]"):
        FastNoise([Terms(task="task", rho=1, rounds=1, dimension=2, samples=10)])


def test_the_library_is_chacha20() -> None:
    from randomgen import ChaCha

    drawn = ChaCha(key=0, counter=0, rounds=20).random_raw(4).astype("<u8").tobytes()
    # The key stream of an all-zero key, RFC 8439, appendix A.1.
    assert drawn.hex() == "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    bits = FastNoise([Terms(task="task", rho=1, rounds=1, dimension=2, samples=10)])._generator
    assert bits.bit_generator.state["state"]["rounds"] == 20
