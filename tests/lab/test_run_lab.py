"""The lab: its numbers worked out again from the mechanisms, and every broken promise is seen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fedbourse import MECHANISMS, BrokenPromise, InvalidInput, Outcome, Purchase, run_mechanism
from fedbourse.lab import PROFILES, LabBuyer, profile_of_values, run_lab
from fedbourse.lab.bounds import broken_bounds

SMALL = {"owners": 6, "draws": 4, "deviation_draws": 1}
FIXED = LabBuyer(reward=1.0, lot=0.05)
NAMES = ["proportional", "clock", "optimal", "second-price", "fairquery", "all-in"]


@pytest.fixture(scope="module")
def record():
    return run_lab(profiles=["uniform", "fl-market-quadratic"], buyers=[FIXED], **SMALL)


def test_every_mechanism_meets_every_profile_on_the_same_draws(record) -> None:
    assert [row.mechanism for row in record.rows] == 2 * NAMES
    draws = PROFILES["uniform"]().draws(owners=6, count=4, seed=0)
    for name in NAMES:
        row = record.row(name, "uniform")
        prior = PROFILES["uniform"]().prior
        purchase = Purchase(reward=1.0, lot=0.05, prior=prior)
        sales = [run_mechanism(MECHANISMS[name], draw.values, purchase) for draw in draws]
        assert row.budget == pytest.approx(np.mean([sale.budgets.sum() for sale in sales]))
        assert row.spend == pytest.approx(np.mean([sale.payments.sum() for sale in sales]))
        assert row.buyer_utility == pytest.approx(np.mean([purchase.utility(s) for s in sales]))
        owners = [
            (s.payments - d.values * s.budgets).sum() for d, s in zip(draws, sales, strict=True)
        ]
        assert row.owners_utility == pytest.approx(np.mean(owners))
        assert 0 < row.first_best <= 1 + 1e-9


def test_no_promise_and_no_bound_is_broken(record) -> None:
    assert record.broken == []
    record.check()
    for name in NAMES:
        gain = record.row(name, "uniform").misreport_gain
        assert gain < 1e-9 or not MECHANISMS[name].guarantees.truthful
    assert record.row("proportional", "uniform").misreport_gain > 0.01
    assert record.row("proportional", "uniform").names_gain > 0.001


def test_the_record_is_plain_data_with_what_others_published_beside(record) -> None:
    document = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    assert document["seed"] == 0
    assert document["buyers"][0]["name"] == "G=10, s=1, R=1"
    row = document["rows"][NAMES.index("fairquery")]
    assert "Ghosh and Roth" in row["published"]
    assert row["accuracy"] is None
    assert document["rows"][NAMES.index("optimal")]["reward"] is None  # it obeys none


def test_the_same_seed_gives_the_same_rows_whatever_else_is_compared(record) -> None:
    again = run_lab(mechanisms=["clock"], profiles=["fl-market-quadratic"], buyers=[FIXED], **SMALL)
    assert again.rows[0] == record.row("clock", "fl-market-quadratic")
    other = run_lab(mechanisms=["clock"], profiles=["uniform"], buyers=[FIXED], seed=1, **SMALL)
    assert other.rows[0].spend != record.row("clock", "uniform").spend


@pytest.mark.parametrize("name", list(PROFILES))
def test_profiles_draw_what_their_priors_say(name) -> None:
    profile = PROFILES[name]()
    (draw,) = profile.draws(owners=4000, count=1, seed=3)
    prior = profile.prior.rvs(size=(1, 4000), random_state=np.random.default_rng(0)).ravel()
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(draw.values, q) == pytest.approx(np.quantile(prior, q), rel=0.15)
    capped = isinstance(draw.cap, np.ndarray)
    assert capped == name.startswith("fl-market")
    if capped:
        assert 0.1 <= draw.cap.min() < 0.12
        assert 4.9 < draw.cap.max() <= 5.0


def test_the_four_families_cost_what_was_published() -> None:
    """A cap of x costs ratio times 2x, x^2, 2 sqrt(x) or e^x - 1, ratio from 0.5 to 1.5."""
    costs = {
        "linear": lambda x: 2 * x,
        "quadratic": lambda x: x * x,
        "square-root": lambda x: 2 * x**0.5,
        "exponential": lambda x: np.exp(x) - 1,
    }
    for name, cost in costs.items():
        (draw,) = PROFILES[f"fl-market-{name}"]().draws(owners=3000, count=1, seed=1)
        ratios = draw.values * draw.cap / cost(draw.cap)
        assert 0.5 <= ratios.min() < 0.51
        assert 1.49 < ratios.max() <= 1.5 + 1e-9


def test_the_best_reward_and_lot_bring_more_than_others() -> None:
    options = {"profiles": ["uniform"], "owners": 10, "draws": 30, "deviation_draws": 0}
    for name in ("clock", "proportional"):
        (best,) = run_lab(mechanisms=[name], **options).rows
        assert best.misreport_gain is None
        fixed = [(0.1, 0.005), (1.0, 0.05), (3.0, 0.01), (0.5, 0.2)]
        buyers = [LabBuyer(reward=reward, lot=lot) for reward, lot in fixed]
        for other in run_lab(mechanisms=[name], buyers=buyers, **options).rows:
            assert other.buyer_utility < best.buyer_utility + 0.02


def test_values_of_ones_own_are_a_profile() -> None:
    own = profile_of_values(np.array([1.0, 2.0, 4.0]))
    record = run_lab(profiles=[own], mechanisms=["second-price"], **SMALL)
    assert record.rows[0].profile == "own"
    (draw,) = own.draws(owners=50, count=1, seed=0)
    assert set(draw.values) == {1.0, 2.0, 4.0}


class Own:
    """Buys a tenth of everybody at its value: monotone, within reason, and easy to lie to."""

    asks = "value"
    guarantees = replace(MECHANISMS["second-price"].guarantees, truthful=False)

    def outcome(self, values, purchase, rng):
        budgets = np.full(len(values), 0.1 * purchase.reward / values.sum())
        return Outcome(budgets, budgets * values)


def broken_of(own):
    return run_lab(mechanisms={"own": own}, profiles=["uniform"], buyers=[FIXED], **SMALL)


def test_a_mechanism_of_ones_own_is_compared_and_held_to_its_promises() -> None:
    record = broken_of(Own())
    assert record.broken == []
    assert record.rows[0].misreport_gain > 0.01


@pytest.mark.faults
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"guarantees": MECHANISMS["clock"].guarantees}, "by acting as if its value were another"),
        (
            {"outcome": lambda s, v, p, r: Outcome(1 / v, np.full(len(v), p.reward))},
            "more than the",
        ),
        ({"outcome": lambda s, v, p, r: Outcome(1 / v, np.zeros(len(v)))}, "loses 1"),
    ],
)
def test_a_broken_promise_is_seen_and_named(change, sentence) -> None:
    record = broken_of(type("Own", (Own,), change)())
    assert any(sentence in each for each in record.broken)
    with pytest.raises(BrokenPromise, match="own on uniform for G=10, s=1, R=1: "):
        record.check()


@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("proportional", lambda s: Outcome(s.budgets / 3, s.payments), "outside of R/"),
        ("proportional", lambda s: Outcome(np.sort(s.budgets), s.payments), "below 3/4"),
        ("second-price", lambda s: Outcome(s.budgets / 2, s.payments), "R/v_2 is"),
        ("clock", lambda s: Outcome(s.budgets, s.payments * [1, 2, 1, 1]), "paid differently"),
        ("clock", lambda s: Outcome(s.budgets, s.payments * 3), "exceed the reward"),
    ],
)
def test_a_broken_bound_is_seen_and_named(name, change, sentence) -> None:
    values, purchase = np.array([1.0, 1.3, 4.0, 5.0]), Purchase(reward=2.0, lot=0.3)
    sale = run_mechanism(MECHANISMS[name], values, purchase)
    assert not list(broken_bounds(name, values, purchase, sale))
    assert any(sentence in each for each in broken_bounds(name, values, purchase, change(sale)))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mechanisms": ["dutch"]}, "mechanism must be one of proportional, clock, optimal"),
        ({"mechanisms": "clock"}, "mechanisms must be a list of names; found 'clock'"),
        ({"mechanisms": {"own": 7}}, "a mechanism needs outcome"),
        ({"mechanisms": []}, "at least one mechanism, one profile and one buyer"),
        ({"profiles": ["normal"]}, "profile must be one of uniform, lognormal, pareto"),
        ({"profiles": [7]}, "a profile must be a name or a ValueProfile; found int"),
        ({"owners": 1}, "owners must be"),
        ({"draws": 1}, "draws must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_input_gets_one_sentence(options, sentence) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        run_lab(**SMALL | options)


def test_budgets_are_sold_to_a_real_training() -> None:
    from fedbourse.study.trials import TrialTask

    task = TrialTask(data="synthetic:d=5,n=2000", samples=20, rounds=5)
    record = run_lab(
        mechanisms=["clock", "second-price"], profiles=["uniform"],
        buyers=[LabBuyer(reward=50.0, lot=2.0)], training=task, training_draws=2, **SMALL,
    )  # fmt: skip
    lots, winner = record.rows
    assert record.buyers[0].noise_factor == pytest.approx(2 * 5 * 5 / 20**2)
    assert 0.5 < lots.accuracy.value <= 1
    assert 0.3 < winner.accuracy.value <= 1
    dear = run_lab(
        mechanisms=["clock"], profiles=["uniform"], buyers=[LabBuyer(reward=1e-6, lot=10.0)],
        training=task, training_draws=2, **SMALL,
    )  # fmt: skip
    assert dear.rows[0].sellers == 0
    assert dear.rows[0].accuracy.value < 0.8  # the commonest class
