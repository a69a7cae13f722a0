"""The best reward: closed forms, concave utilities, jumps, and buyers who do not know."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import (
    ACCURACY_MODELS,
    Accuracy,
    InvalidGame,
    InvalidInput,
    NoEquilibrium,
    Sample,
    Training,
    Uniform,
    best_reward,
    equilibrium,
)
from fedbourse.game.buyer import Buyer
from fedbourse.game.costs import Exponential
from fedbourse.game.draws import linear_draws
from fedbourse.game.reward.best import _near
from fedbourse.game.reward.search import Probe

PAPER = Training(dimension=1000, step_size=0.1, iterations=500, samples=1000)
VALUES = np.random.default_rng(3).uniform(1, 5, 60)


def training_with(factor: float) -> Training:
    """A training whose noise factor a is the one asked for."""
    return Training(dimension=1, step_size=1.0, iterations=1, samples=math.sqrt(2 / factor))


@cache
def budgets(values: tuple[float, ...], reward: float, cost: str) -> list[float]:
    """What is sold in equilibrium, found once for all models of accuracy."""
    found: list[float] = equilibrium(values, reward=reward, cost=cost).budgets.tolist()
    return found


def utility(values, reward: float, training: Training, accuracy: Accuracy, cost: str) -> float:
    """The buyer's utility, written out from the table of the theory page."""
    noise = [training.noise_factor / r for r in budgets(tuple(values), reward, cost)]
    k, n = len(noise), len(values)
    quality = {
        "paper": math.exp(-sum(math.log1p(z) for z in noise) / k),
        "population": math.exp(-sum(math.log1p(z) for z in noise) / n),
        "averaged": 1 / (1 + sum(noise) / k**2),
        "precision": 1 / (1 + 1 / sum(1 / z for z in noise)),
    }[accuracy.model]
    return 20 * (accuracy.chance + (accuracy.ceiling - accuracy.chance) * quality) - reward


def test_the_closed_form_of_the_precision_model() -> None:
    offer = best_reward(VALUES, PAPER, accuracy_value=20, accuracy="precision")
    tau = offer.equilibrium.cutoff
    assert tau is not None
    a = 0.01
    assert offer.reward == pytest.approx(math.sqrt(20 * a * tau / 2) - a * tau, rel=1e-13)
    assert offer.method == "closed form"
    assert offer.accuracy == pytest.approx(0.5 * (1 + offer.reward / (offer.reward + a * tau)))


@pytest.mark.parametrize("model", ACCURACY_MODELS)
@pytest.mark.parametrize("cost", ["linear", "quadratic"])
@pytest.mark.parametrize(("chance", "ceiling"), [(0.5, 1.0), (0.1, 0.93)])
def test_no_other_reward_is_better(model, cost, chance, ceiling) -> None:
    accuracy = Accuracy(model, chance=chance, ceiling=ceiling)
    offer = best_reward(VALUES, PAPER, accuracy_value=20, accuracy=accuracy, cost=cost)
    assert offer.utility == pytest.approx(utility(VALUES, offer.reward, PAPER, accuracy, cost))
    for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2.0):
        assert utility(VALUES, offer.reward * factor, PAPER, accuracy, cost) < offer.utility


@pytest.mark.parametrize("model", ACCURACY_MODELS)
@pytest.mark.parametrize(("cost", "degree"), [("linear", 1), ("quadratic", 2)])
def test_the_best_reward_is_right_to_ten_digits(model, cost, degree) -> None:
    # At the best reward the derivative of the utility, worked out by hand, is 0: with noises
    # z = a/r that fall as R^(-1/degree), 10 quality * (-d ln quality / d ln z) / degree = R.
    offer = best_reward(VALUES, PAPER, accuracy_value=20, accuracy=model, cost=cost)
    z = np.array([0.01 / r for r in offer.equilibrium.budgets])
    k, n = len(z), len(VALUES)
    together = {"averaged": z.sum() / k**2, "precision": 1 / (1 / z).sum()}.get(model, 0.0)
    elasticity = {
        "paper": (z / (1 + z)).sum() / k,
        "population": (z / (1 + z)).sum() / n,
    }.get(model, together / (1 + together))
    quality = 2 * offer.accuracy - 1
    assert 10 * quality * elasticity / degree == pytest.approx(offer.reward, rel=1e-10)


@given(st.floats(0.5, 5e3), st.floats(1e-4, 10.0), st.sampled_from(list(ACCURACY_MODELS)))
@examples(60)
def test_rewards_stay_below_an_eighth_of_the_weight(accuracy_value, factor, model) -> None:
    offer = best_reward(
        VALUES, training_with(factor), accuracy_value=accuracy_value, accuracy=model
    )
    assert 0 <= offer.reward <= accuracy_value / 8 * (1 + 1e-12)
    assert offer.utility >= accuracy_value / 2 * (1 - 1e-12)
    assert (offer.reward == 0) == bool(offer.reason)


def test_where_no_reward_pays_the_reason_is_given() -> None:
    offer = best_reward(VALUES, training_with(10.0), accuracy_value=1.0, accuracy="paper")
    assert offer.reward == 0
    assert offer.accuracy == 0.5
    assert offer.utility == 0.5
    assert len(offer.equilibrium.participants) == 0
    assert "no reward pays: from a reward of 0 on, the worth of the model" in offer.reason


def test_the_condition_for_a_reward_above_0_is_the_geometric_mean() -> None:
    unit = equilibrium(VALUES, reward=1.0)
    for factor in (0.99, 1.01):
        training = training_with(1.0)
        mean = math.exp(np.log(unit.budgets).mean())
        offer = best_reward(VALUES, training, accuracy_value=2 / mean * factor, accuracy="paper")
        assert (offer.reward > 0) == (factor > 1)


def test_an_entrant_can_make_the_exponential_game_jump() -> None:
    # The third owner enters at R = 6 ln 1.5 with a budget near 0.
    training, edge = training_with(0.01), 6 * math.log(1.5)
    before = equilibrium([1, 1, 3], reward=edge * (1 - 1e-9), cost="exponential")
    after = equilibrium([1, 1, 3], reward=edge * (1 + 1e-9), cost="exponential")
    assert (len(before.participants), len(after.participants)) == (2, 3)
    model = Accuracy("paper")
    drop = [
        20 * model.of(training.precisions(result.budgets, result.participants), 3) - edge
        for result in (before, after)
    ]
    assert drop[0] == pytest.approx(17.33, abs=0.01)
    assert drop[1] < 8.0


@pytest.mark.slow
def test_the_global_search_beats_a_fine_grid() -> None:
    training = training_with(0.01)
    values = np.random.default_rng(5).uniform(1, 5, 12)
    grid = np.concatenate([np.linspace(0.005, 10, 1500), np.geomspace(1e-4, 10, 500)]).tolist()
    for model in ACCURACY_MODELS:
        offer = best_reward(values, training, accuracy_value=20, accuracy=model, cost="exponential")
        best = max(utility(values, r, training, Accuracy(model), "exponential") for r in grid)
        assert offer.utility >= best - 1e-12, model


@pytest.mark.slow
@pytest.mark.parametrize("model", ["paper", "averaged"])
def test_a_best_reward_beside_a_jump_is_on_the_right_side_of_it(model) -> None:
    # Within rounding of a jump, the game of everybody and that of the few who may take part can
    # fall on different sides.
    rng = np.random.default_rng(11)
    games = [[0.373, 1.57, 1.08, 2.783, 0.635], *rng.uniform(0.3, 3, (8, 5)).round(3).tolist()]
    for values in games:
        offer = best_reward(values, PAPER, accuracy_value=20, accuracy=model, cost="exponential")
        rewards = offer.reward * np.array([0.97, 0.999, 1.001, 1.03])
        near = [utility(values, float(r), PAPER, Accuracy(model), "exponential") for r in rewards]
        assert offer.utility >= max(near) - 1e-9
        assert offer.utility > 10


@pytest.mark.parametrize("terms", [{"entry_cost": [0.0] * 5}, {"caps": 1e6}])
def test_terms_that_bind_nobody_change_no_offer(terms) -> None:
    values = [6.0, 3, 1, 2, 8]
    free = best_reward(values, PAPER, accuracy_value=20)
    assert best_reward(values, PAPER, accuracy_value=20, **terms).utility == pytest.approx(
        free.utility
    )


@pytest.mark.slow
@pytest.mark.parametrize("terms", [{"cost": "exponential"}, {"caps": 1e9}])
def test_the_search_finds_the_smallest_rewards_too(terms) -> None:
    training = Training(dimension=1, step_size=1e-8, iterations=1, samples=1)
    offer = best_reward([1.0, 2.0], training, accuracy_value=20, accuracy="precision", **terms)
    assert offer.reward < 1e-6
    assert offer.utility > 20 - 2e-6


@pytest.mark.slow
def test_records_and_pay_reach_the_search() -> None:
    # The cheapest owners stand last and have the fewest records; the first never takes part.
    values = np.array([400.0, 3.0, 1.0, 1.2, 1.1])
    training = Training(
        dimension=1000, step_size=0.1, iterations=500, samples=[9e3, 5e3, 200, 300, 400]
    )
    for pay_for, caps in product(("budget", "information"), (None, 0.5)):
        terms = {"cost": "exponential", "pay_for": pay_for, "caps": caps}
        offer = best_reward(values, training, accuracy_value=20, accuracy="precision", **terms)
        for reward in np.geomspace(0.01, 9.9, 200):
            result = equilibrium(values, reward=float(reward), samples=training.samples, **terms)
            m = np.array(training.samples)[result.participants]
            noise = 1 / (m**2 * result.budgets / (2 * 1000 * 500 * 0.01)).sum()
            assert 10 * (1 + 1 / (1 + noise)) - reward <= offer.utility + 1e-9


def test_an_offer_on_the_wrong_side_of_a_jump_steps_back() -> None:
    # Planted: the search claims a reward just beyond the jump with the utility just before it.
    training, edge = training_with(0.01), 6 * math.log(1.5)
    buyer = Buyer(training, 20.0, Accuracy("paper"), Exponential(), 0.0, None, "budget")
    before = utility([1, 1, 3], edge * (1 - 1e-9), training, Accuracy("paper"), "exponential")
    offer = _near(buyer, [1, 1, 3], Probe(edge * (1 + 1e-10), before, b""), "planted")
    assert offer.utility == pytest.approx(before, abs=1e-6)
    assert offer.reward <= edge


def test_of_two_peaks_the_higher_one_is_found() -> None:
    values = [1.0, 1.0] + [10.0] * 28
    offer = best_reward(
        values, training_with(10.0), accuracy_value=692, accuracy="precision", cost="exponential"
    )
    assert offer.reward == pytest.approx(42.0, abs=0.1)
    assert offer.utility == pytest.approx(399.49, abs=0.01)
    assert offer.method == "global search, best at a smooth peak"


@pytest.mark.slow
def test_entry_costs_leave_rewards_without_equilibrium_aside() -> None:
    terms = {"cost": "paper-exponential", "accuracy": "paper"}
    offer = best_reward(VALUES, PAPER, accuracy_value=20, **terms)
    assert offer.reward >= 2 * math.sqrt(math.e)
    for reward in np.linspace(1.05, 9.0, 60):
        try:
            result = equilibrium(VALUES, reward=reward, cost="paper-exponential")
        except NoEquilibrium:
            continue
        precisions = PAPER.precisions(result.budgets, result.participants)
        assert 20 * Accuracy("paper").of(precisions, 60) - reward <= offer.utility + 1e-9


def test_no_reward_pays_where_entry_is_dearer_than_the_model() -> None:
    offer = best_reward([1.0, 2.0, 3.0], PAPER, accuracy_value=1.0, entry_cost=5.0)
    assert offer.reward == 0
    assert offer.utility == 0.5  # a guess, and nobody to pay
    assert "no reward pays" in offer.reason


@pytest.mark.slow
def test_caps_bound_what_a_reward_can_buy() -> None:
    free = best_reward(VALUES, PAPER, accuracy_value=20, accuracy="precision")
    capped = best_reward(VALUES, PAPER, accuracy_value=20, accuracy="precision", caps=0.01)
    assert capped.utility < free.utility
    assert (capped.equilibrium.budgets <= 0.01 * (1 + 1e-12)).all()
    wide = best_reward(VALUES, PAPER, accuracy_value=20, accuracy="precision", caps=1e3)
    assert wide.reward == pytest.approx(free.reward, rel=1e-9)


def test_unequal_records_count_by_their_square() -> None:
    samples = np.random.default_rng(0).integers(100, 3000, len(VALUES)).astype(float)
    training = Training(dimension=1000, step_size=0.1, iterations=500, samples=samples)
    offer = best_reward(
        VALUES, training, accuracy_value=20, accuracy="precision", pay_for="information"
    )
    result = offer.equilibrium
    information = (samples[result.participants] ** 2 * result.budgets).sum()
    noise = 2 * 1000 * 0.01 * 500 / information
    assert offer.accuracy == pytest.approx(0.5 * (1 + 1 / (1 + noise)))
    by_budget = best_reward(VALUES, training, accuracy_value=20, accuracy="precision")
    assert offer.utility > by_budget.utility


def test_a_buyer_who_does_not_know_the_values_does_best_on_average() -> None:
    offer = best_reward(Uniform(1, 5), PAPER, accuracy_value=20, owners=100, draws=64, seed=1)
    rows = Uniform(1, 5).rvs(size=(64, 100), random_state=np.random.default_rng(1))

    def mean(reward: float) -> tuple[float, float]:
        result = [utility(row, reward, PAPER, Accuracy(), "linear") for row in rows]
        return float(np.mean(result)), float(np.std(result))

    assert (offer.utility, offer.utility_spread) == pytest.approx(mean(offer.reward))
    assert mean(offer.reward * 1.01)[0] < offer.utility > mean(offer.reward * 0.99)[0]
    assert offer.participants == pytest.approx(8.5, abs=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("distribution", "cost"),
    [
        (scipy.stats.lognorm(s=0.5), "quadratic"),
        (Sample(VALUES), "linear"),
        (Uniform(1, 5), "exponential"),
    ],
)
def test_other_distributions_and_costs(distribution, cost) -> None:
    offer = best_reward(
        distribution, PAPER, accuracy_value=20, owners=20, draws=4, cost=cost, accuracy="precision"
    )
    assert offer.reward > 0
    assert offer.utility > 19
    assert offer.draws == 4


@pytest.mark.slow
def test_the_mean_over_draws_is_searched_beyond_its_grid() -> None:
    arguments = {"accuracy_value": 20, "owners": 30, "draws": 6, "cost": "exponential"}
    offer = best_reward(Uniform(1, 5), PAPER, **arguments)
    rows = Uniform(1, 5).rvs(size=(6, 30), random_state=np.random.default_rng(0))
    for reward in np.linspace(0.5 * offer.reward, 2 * offer.reward, 150):
        mean = np.mean([utility(r, float(reward), PAPER, Accuracy(), "exponential") for r in rows])
        assert mean <= offer.utility + 2e-3


@pytest.mark.slow
def test_a_buyer_who_gains_nothing_offers_nothing() -> None:
    for cost in ("linear", "exponential"):
        offer = best_reward(
            Uniform(1, 5), training_with(50.0), accuracy_value=0.1, owners=10, draws=4, cost=cost
        )
        assert (offer.reward, offer.utility, offer.participants) == (0.0, 0.05, 0.0)
        assert offer.reason


def test_many_games_at_once_equal_one_at_a_time() -> None:
    rng = np.random.default_rng(2)
    rows = np.concatenate([rng.uniform(1, 5, (40, 30)), rng.integers(1, 9, (40, 30)) / 10])
    many = linear_draws(rows)
    for i, row in enumerate(rows):
        one = equilibrium(row, reward=1.0)
        assert many.counts[i] == len(one.participants)
        assert many.cutoffs[i] == pytest.approx(one.cutoff, rel=1e-13)
        shares = np.sort(many.shares[i][many.shares[i] > 0])
        assert shares == pytest.approx(np.sort(one.payments), rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"accuracy_value": 0}, "accuracy_value must be a finite number above 0; found 0"),
        ({"accuracy_value": math.nan}, "accuracy_value must be .* found nan"),
        ({"accuracy": "best"}, "accuracy must be one of paper, population"),
        ({"pay_for": "love"}, "pay_for must be"),
        ({"owners": 5}, "owners= goes with a distribution"),
    ],
)
def test_bad_round_requests_are_refused(arguments, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        best_reward([1, 2], PAPER, **({"accuracy_value": 20} | arguments))


def test_a_distribution_needs_its_number_of_owners() -> None:
    with pytest.raises(InvalidGame, match="a distribution of values needs owners="):
        best_reward(Uniform(1, 5), PAPER, accuracy_value=20)
    with pytest.raises(InvalidGame, match="draws"):
        best_reward(scipy.stats.norm(), PAPER, accuracy_value=20, owners=50, draws=3)
    with pytest.raises(InvalidGame, match="rvs"):
        best_reward(scipy.stats.lognorm, PAPER, accuracy_value=20, owners=50, draws=3)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2, 2), (3, 1), (1, math.inf), (math.nan, 1)])
def test_a_uniform_distribution_needs_room(low, high) -> None:
    with pytest.raises(InvalidGame):
        Uniform(low, high)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dimension": 0}, "dimension must be .* at least 1; found 0"),
        ({"dimension": 1.5}, "dimension must be a whole number; found 1.5"),
        ({"step_size": -0.1}, "step_size must be a finite number above 0; found -0.1"),
        ({"iterations": True}, "iterations must be a number; found True"),
        ({"samples": 0}, "samples must be a finite number above 0; found 0"),
        ({"samples": [1, -2]}, r"samples\[1\] must be a finite number above 0; found -2"),
        ({"step_size": 1e200}, "must lie between 1e-290 and 1e290; found inf"),
        ({"samples": 1e300}, "must lie between 1e-290 and 1e290; found 0"),
        ({"clip": math.inf}, "clip must be a finite number above 0; found inf"),
    ],
)
def test_a_training_checks_itself(arguments, words) -> None:
    good = {"dimension": 10, "step_size": 0.1, "iterations": 5, "samples": 100}
    with pytest.raises(InvalidInput, match=words):
        Training(**(good | arguments))


def test_records_must_be_given_for_every_owner() -> None:
    training = Training(dimension=10, step_size=0.1, iterations=5, samples=[10, 20])
    with pytest.raises(InvalidGame, match="each of 3 owners; found 2"):
        best_reward([1, 2, 3], training, accuracy_value=20)


@pytest.mark.parametrize(("chance", "ceiling"), [(-0.1, 1), (0.5, 0.5), (0.5, 1.1), (0.9, 0.2)])
def test_an_accuracy_model_needs_room_between_chance_and_ceiling(chance, ceiling) -> None:
    with pytest.raises(InvalidInput, match=r"(chance|ceiling) must be"):
        Accuracy("paper", chance=chance, ceiling=ceiling)
