"""Exact noise costs what its proof says; simulated noise only looks like it."""

import math
import os
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fedbourse
from examples import examples
from fedbourse.errors import InvalidInput
from fedbourse.privacy.discrete_gaussian import DiscreteGaussian
from fedbourse.privacy.noise import ExactNoise, SimulatedNoise, charged_sensitivity
from fedbourse.privacy.terms import Terms
from fedbourse.testing.opendp_gaussian import opendp_gaussian

ORDINARY = Terms(task="task", rho=0.1, rounds=500, dimension=1000, samples=1000)
ALMOST_NEVER = 1e-9  # the chance that a right mechanism fails a test of randomness


def terms_up_to(dimension: int) -> st.SearchStrategy[Terms]:
    return st.builds(
        Terms,
        task=st.just("task"),
        rho=st.floats(1e-4, 1e3),
        rounds=st.integers(1, 10**4),
        dimension=st.integers(1, dimension),
        samples=st.integers(1, 10**6),
        clip=st.floats(1e-6, 1e6),
    )


any_terms = terms_up_to(10**5)


def exact(terms: Terms):
    """Return the mechanism of one device."""
    return ExactNoise([terms])._mechanisms[0]


def released(noise, updates: list[list[float]], number: int = 0) -> np.ndarray:
    return noise.release(np.array(updates, float), np.arange(len(updates)), number)


# What every noise promises.


@pytest.fixture(params=["exact", "simulated"])
def make(request):
    if request.param == "exact":
        return ExactNoise
    return lambda terms: SimulatedNoise(terms, seed=7)


OWNERS = [Terms(task="task", rho=rho, rounds=50, dimension=3, samples=100) for rho in (0.1, 1, 10)]


def test_each_owner_gets_the_noise_of_its_own_terms(make) -> None:
    noise = make(OWNERS)
    assert noise.scales == pytest.approx([terms.scale for terms in OWNERS], rel=1e-6)
    assert noise.costs == pytest.approx([terms.round_rho for terms in OWNERS], rel=1e-6)
    for terms, cost in zip(OWNERS, noise.costs.tolist(), strict=True):
        assert cost <= terms.round_rho
        assert Fraction(cost) * terms.rounds <= Fraction(terms.rho)


def test_the_scale_is_that_of_the_noise(make) -> None:
    owners = [Terms(task="task", rho=r, rounds=50, dimension=4000, samples=100) for r in (0.1, 10)]
    noise = make(owners)
    updates = np.zeros((2, 4000))
    updates[:, 0] = 1.0
    for row, scale in zip(released(noise, updates) - updates, noise.scales, strict=True):
        squares = float(((row / scale) ** 2).sum())
        low, high = stats.chi2.ppf(ALMOST_NEVER, 4000), stats.chi2.isf(ALMOST_NEVER, 4000)
        assert low < squares < high
        assert abs(row.sum()) < scale * math.sqrt(4000) * stats.norm.isf(ALMOST_NEVER)


def test_noise_is_normal(make) -> None:
    terms = Terms(task="task", rho=0.1, rounds=50, dimension=5000, samples=100)
    noise = make([terms])
    sample = released(noise, np.zeros((1, 5000)))[0] / noise.scales[0]
    assert stats.kstest(sample, "norm").pvalue > ALMOST_NEVER
    assert abs(stats.pearsonr(sample[1:], sample[:-1]).statistic) < 6 / math.sqrt(5000)


def test_owners_and_rounds_get_different_noise(make) -> None:
    noise = make([OWNERS[0], OWNERS[0]])
    rows = np.concatenate([released(noise, np.zeros((2, 3)), number) for number in range(3)])
    assert len(np.unique(rows, axis=0)) == 6


def test_some_owners_may_send_updates_in_any_order_or_nobody(make) -> None:
    noise = make(OWNERS)
    some = noise.release(np.zeros((2, 3)), np.array([2, 0]), 0)
    assert some.shape == (2, 3)
    assert some.dtype == np.float64
    assert noise.release(np.zeros((0, 3)), np.array([], dtype=np.int64), 0).shape == (0, 3)


@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 3), (3, 4), (3, 3, 1), (0, 3)])
def test_updates_of_the_wrong_shape_are_refused(make, shape) -> None:
    with pytest.raises(InvalidInput, match=r"must have the shape \(3, 3\)"):
        make(OWNERS).release(np.zeros(shape), np.arange(3), 0)


def test_terms_of_different_dimensions_make_no_task(make) -> None:
    wider = Terms(task="task", rho=1.0, rounds=50, dimension=4, samples=100)
    with pytest.raises(InvalidInput, match=r"one dimension; found \[3, 4\]"):
        make([OWNERS[0], wider])
    with pytest.raises(InvalidInput, match="one dimension"):
        make([])


def test_updates_are_left_as_they_were(make) -> None:
    updates = np.full((3, 3), 0.25)
    make(OWNERS).release(updates, np.arange(3), 0)
    assert (updates == 0.25).all()


# Exact noise.


@examples(200)
@given(any_terms)
def test_all_updates_together_cost_the_budget_at_most(terms: Terms) -> None:
    device = exact(terms)
    distance = Fraction(charged_sensitivity(terms, device.grid)) / Fraction(device.grid)
    cost = distance**2 / (2 * device.gaussian.variance)
    assert cost <= Fraction(device.cost) <= terms.exact_round_rho
    assert cost * terms.rounds <= Fraction(terms.rho)
    assert device.cost >= terms.round_rho * (1 - 1e-15)  # nothing to speak of is given away
    # What is drawn is what is charged, and no less than the contract's.
    assert device.gaussian.variance == (Fraction(device.scale) / Fraction(device.grid)) ** 2
    assert device.scale >= terms.scale


@examples(100)
@given(any_terms)
def test_opendps_map_gives_the_same_cost(terms: Terms) -> None:
    device = exact(terms)
    reference = opendp_gaussian(terms.dimension, device.gaussian.sigma).map(device.distance)
    assert device.cost <= reference <= device.cost * (1 + 1e-14)  # its own rounding goes up


def test_opendps_noise_has_the_same_law() -> None:
    terms = Terms(task="task", rho=0.1, rounds=50, dimension=20_000, samples=100)
    device = exact(terms)
    ours = released(ExactNoise([terms]), [[0.0] * 20_000])[0] / device.grid
    theirs = opendp_gaussian(20_000, device.gaussian.sigma)([0] * 20_000)
    assert stats.ks_2samp(ours, theirs).pvalue > ALMOST_NEVER


@examples(200)
@given(any_terms)
def test_the_grid_depends_on_the_terms_alone_and_is_far_finer_than_the_noise(terms: Terms) -> None:
    device = exact(terms)
    assert math.frexp(device.grid)[0] == 0.5  # a power of two: dividing by it is exact
    assert terms.sensitivity / 2**32 < device.grid <= terms.sensitivity / 2**31
    assert device.scale >= terms.scale


def test_ordinary_terms_pay_less_than_a_millionth_for_exactness() -> None:
    for samples, dimension in ((100, 10), (1000, 1000), (3000, 100_000)):
        terms = Terms(task="t", rho=0.1, rounds=500, dimension=dimension, samples=samples)
        assert 1 <= exact(terms).scale / terms.scale < 1 + 1e-6


@examples(50)
@given(terms_up_to(50), st.data())
def test_what_leaves_is_a_multiple_of_the_grid(terms: Terms, data) -> None:
    part = st.floats(-0.99, 0.99).map(lambda x: x * terms.clip / math.sqrt(terms.dimension))
    update = data.draw(st.lists(part, min_size=terms.dimension, max_size=terms.dimension))
    steps = released(ExactNoise([terms]), [update])[0] / exact(terms).grid
    assert (steps == np.rint(steps)).all()


@pytest.mark.parametrize(
    "wrong",
    [
        [math.nan, 0, 0],
        [0, math.inf, 0],
        [0, 0, -math.inf],
        [1 + 1e-5, 0, 0],
        [0.6, 0.6, 0.6],
        [1e308, 1e308, 0],
    ],
)
def test_a_wrong_update_gets_no_noise(wrong, monkeypatch) -> None:
    noise = ExactNoise(OWNERS[:1])

    def reached(*_: object) -> None:
        raise AssertionError("noise was drawn for a wrong update")

    monkeypatch.setattr(DiscreteGaussian, "draw", reached)
    with pytest.raises(AssertionError):
        released(noise, [[0, 0, 0]])
    with pytest.raises(InvalidInput, match=r"must be finite|must be at most the clip"):
        released(noise, [wrong])


def test_an_update_as_long_as_the_clip_is_released() -> None:
    noise = ExactNoise(OWNERS[:1])
    row = np.full(3, 1 / math.sqrt(3))
    assert np.isfinite(released(noise, [row * (1 + 1e-12)])).all()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rho": 1e-10}, r"rho / rounds must be at least 9\.09e-13"),
        (
            {"samples": 2**30, "rho": 1e-8},
            r"rho / rounds must be at least 1\.89e-09 .* found 1e-08",
        ),
        ({"clip": 0.99e-6}, "clip must be"),
        ({"clip": 1.01e6}, "clip must be"),
        ({"samples": 2**30 + 1}, "samples must be"),
    ],
)
def test_terms_beyond_64_bits_are_refused(wrong, said: str) -> None:
    good = {"task": "task", "rho": 0.1, "rounds": 500, "dimension": 3, "samples": 1000}
    with pytest.raises(InvalidInput, match=said):
        ExactNoise([Terms(**(good | wrong))])


@pytest.mark.parametrize(
    "limit",
    [{"rho": 2.0**-40}, {"rho": 1e6}, {"clip": 1e-6}, {"clip": 1e6}, {"samples": 2**30}],
)
def test_terms_at_their_limits_are_released_whole(limit) -> None:
    good = {"task": "task", "rho": 0.1, "rounds": 1, "dimension": 400, "samples": 1000, "clip": 1.0}
    terms = Terms(**(good | limit))
    noise = ExactNoise([terms])
    update = np.full((1, 400), terms.clip / 20)
    residual = (released(noise, update) - update) / noise.scales[0]
    low, high = stats.chi2.ppf(ALMOST_NEVER, 400), stats.chi2.isf(ALMOST_NEVER, 400)
    assert low < float((residual**2).sum()) < high


def test_devices_and_forks_of_one_never_draw_the_same() -> None:
    terms = Terms(task="task", rho=1, rounds=1, dimension=8, samples=10)
    zeros = [[0.0] * 8]
    drawn = [released(ExactNoise([terms]), zeros).tobytes() for _ in range(20)]
    noise = ExactNoise([terms])
    drawn.append(released(noise, zeros).tobytes())
    for _ in range(2):
        end, begin = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(begin, released(noise, zeros).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        drawn.append(os.read(end, 64))
        os.close(end)
        os.close(begin)
    drawn.append(released(noise, zeros).tobytes())
    assert len({each for each in drawn if len(each) == 64}) == 24


def test_what_is_not_a_double_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be doubles; found float32"):
        ExactNoise(OWNERS).release(np.zeros((3, 3), np.float32), np.arange(3), 0)


# Neighbours: datasets that differ in one record, computed as devices compute.


def clipped(gradients: np.ndarray, clip: float) -> np.ndarray:
    norms = np.sqrt((gradients**2).sum(1))
    return gradients * (clip / np.maximum(norms, clip))[:, None]


def one_by_one(rows: np.ndarray) -> np.ndarray:
    total = np.zeros(rows.shape[1])
    for row in rows:
        total = total + row
    return total / len(rows)


def means(gradients: np.ndarray, clip: float) -> list[np.ndarray]:
    """Return the mean of the clipped gradients, added up in several ways."""
    rows = clipped(gradients, clip)
    factors = clip / np.maximum(np.sqrt((gradients**2).sum(1)), clip) / len(rows)
    return [rows.mean(0), one_by_one(rows), one_by_one(rows[::-1]), factors @ gradients]


def cancelling(rng, d: int, m: int) -> np.ndarray:
    """Every record is undone by another, and what is left is rounding."""
    half = rng.standard_normal((m // 2 + 1, d)) * 10 ** rng.uniform(-8, 8, (m // 2 + 1, 1))
    return np.concatenate([half, -half])[:m]


def piled_up(rng, d: int, m: int) -> np.ndarray:
    """All the same: the sum grows as large as it can, and rounds as coarsely."""
    return np.tile(rng.standard_normal(d) * 1e3, (m, 1))


def ordinary(rng, d: int, m: int) -> np.ndarray:
    return rng.standard_normal((m, d))


def extreme(rng, d: int, m: int) -> np.ndarray:
    return rng.choice([-1, 1], (m, d)) * 10 ** rng.uniform(-150, 150, (m, d))


SHAPES = [ordinary, cancelling, piled_up, extreme]


def moved(terms: Terms, grid: float, data: np.ndarray, other: np.ndarray) -> list[Fraction]:
    """Return, exactly, the squared distances between the rounded updates of two neighbours."""
    squares = []
    for a, b in zip(means(data, terms.clip), means(other, terms.clip), strict=True):
        steps = [int(x) - int(y) for x, y in zip(np.rint(a / grid), np.rint(b / grid), strict=True)]
        squares.append(sum(step * step for step in steps) * Fraction(grid) ** 2)
    return squares


def neighbours(shape, rng, d: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two datasets that differ in a record which is turned around: the furthest move."""
    data = shape(rng, d, m)
    i = rng.integers(m)
    data[i] = rng.standard_normal(d) * 10 ** rng.uniform(0, 100)
    other = data.copy()
    other[i] = -data[i]
    return data, other


@examples(150)
@given(
    st.sampled_from(SHAPES),
    st.integers(0, 2**32),
    st.integers(1, 60),
    st.integers(1, 1000),
    st.floats(1e-3, 1e3),
)
def test_no_record_moves_a_computed_update_further_than_is_charged(shape, seed, d, m, clip) -> None:
    terms = Terms(task="task", rho=0.1, rounds=500, dimension=d, samples=m, clip=clip)
    grid = exact(terms).grid
    charged = Fraction(charged_sensitivity(terms, grid)) ** 2
    rng = np.random.default_rng(seed)
    assert max(moved(terms, grid, *neighbours(shape, rng, d, m))) <= charged


def test_without_the_charge_neighbours_would_be_further_apart_than_the_proof_allows() -> None:
    terms = Terms(task="task", rho=0.1, rounds=500, dimension=50, samples=200)
    grid = exact(terms).grid
    plain = Fraction(2, terms.samples) ** 2
    rng = np.random.default_rng(0)
    squares = [max(moved(terms, grid, *neighbours(ordinary, rng, 50, 200))) for _ in range(20)]
    assert sum(square > plain for square in squares) >= 5
    assert max(squares) <= Fraction(charged_sensitivity(terms, grid)) ** 2


@given(any_terms, st.floats(0, 1))
def test_the_charge_is_never_below_its_formula_in_exact_arithmetic(terms: Terms, part) -> None:
    grid = 2.0 ** (math.floor(math.log2(terms.sensitivity)) - 1 - int(40 * part))
    d, m, clip, u = terms.dimension, terms.samples, Fraction(terms.clip), Fraction(1, 2**53)
    root = Fraction(math.isqrt(d << 200) + 1, 1 << 100)  # the root of d, rounded up
    formula = 2 * clip / m * (1 + (d + 8) * u) + 2 * (m + 8) * u * clip + root * Fraction(grid)
    assert Fraction(charged_sensitivity(terms, grid)) >= formula * (1 - Fraction(1, 2**90))


# Simulated noise.


def test_the_same_seed_and_round_give_the_same_bytes() -> None:
    updates = np.linspace(0, 1, 9).reshape(3, 3)
    first, again = (SimulatedNoise(OWNERS, seed=5) for _ in range(2))
    first.release(updates, np.arange(3), 0)  # a round before changes nothing
    assert released(first, updates, 4).tobytes() == released(again, updates, 4).tobytes()
    other = SimulatedNoise(OWNERS, seed=6)
    assert released(other, updates, 4).tobytes() != released(again, updates, 4).tobytes()


@given(st.lists(st.integers(0, 2), max_size=3, unique=True))
def test_noise_does_not_depend_on_who_else_sends_an_update(owners: list[int]) -> None:
    noise = SimulatedNoise(OWNERS, seed=5)
    everybody = released(noise, np.zeros((3, 3)), 2)
    some = noise.release(np.zeros((len(owners), 3)), np.array(owners, np.int64), 2)
    assert (some == everybody[owners]).all()


@pytest.mark.parametrize("seed", [-1, 0.5, "seed", None])
def test_a_seed_is_a_whole_number(seed) -> None:
    with pytest.raises(InvalidInput, match="seed must be"):
        SimulatedNoise(OWNERS, seed=seed)


def test_rounding_costs_what_the_page_says() -> None:
    terms = Terms("t", 0.1, 500, 1000, 1000)
    assert ExactNoise([terms]).scales[0] / terms.scale - 1 == pytest.approx(1.449e-8, rel=1e-3)


def test_an_update_is_rounded_to_the_nearest_step_of_the_grid() -> None:
    """With next to no noise what leaves lies within half a step of the update, on both sides."""
    terms = Terms("t", 1e30, 1, 200, 1000)
    noise = ExactNoise([terms])
    update = np.random.default_rng(0).uniform(-0.05, 0.05, size=(1, 200))
    error = (noise.release(update, np.array([0]), 0) - update) / 2.0**-40
    assert np.abs(error).max() <= 0.5
    assert error.min() < 0 < error.max()


def test_seed_and_round_are_not_exchangeable() -> None:
    terms = [Terms("t", 1.0, 5, 4, 10)]
    zeros, owner = np.zeros((1, 4)), np.array([0])
    one = SimulatedNoise(terms, seed=0).release(zeros, owner, 1)
    other = SimulatedNoise(terms, seed=1).release(zeros, owner, 0)
    assert (one != other).all()


def test_opendp_is_a_reference_and_no_part_of_the_package() -> None:
    package = Path(fedbourse.__file__).parent
    users = {
        file.relative_to(package).parts[0]
        for file in package.rglob("*.py")
        if re.search(r"^\s*(from|import) opendp", file.read_text("utf-8"), re.MULTILINE)
    }
    assert users == {"testing"}  # which wheels leave out
