"""One contract over every way to ask devices: one process, the market's devices, Flower."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.worlds import BUDGETS, OTHER, OWNERS, ROUNDS, WORLDS, AllTerms, LocalWorld
from fedbourse.errors import InvalidInput, Refused

TWICE = [2 * budget for budget in BUDGETS]


@pytest.fixture(params=list(WORLDS))
def world(request, tmp_path):
    return WORLDS[request.param](tmp_path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one process makes of the same training, undisturbed."""
    return LocalWorld(tmp_path_factory.mktemp("local")).train()


def test_the_same_noise_gives_the_same_model(world, expected) -> None:
    outcome = world.train()
    np.testing.assert_allclose(outcome.model, expected.model, rtol=0, atol=1e-9)
    assert outcome.answered == [ROUNDS] * OWNERS
    for spent, budget in zip(outcome.spent, BUDGETS, strict=True):
        assert budget * (1 - 1e-12) <= spent <= budget  # exactly what was sold


def test_who_stays_away_is_left_out_and_spends_nothing_more(world, tmp_path_factory) -> None:
    away = {1: 2}
    told = LocalWorld(tmp_path_factory.mktemp("local")).train(away_from=away)
    outcome = world.train(away_from=away)
    np.testing.assert_allclose(outcome.model, told.model, rtol=0, atol=1e-9)
    assert outcome.answered == [ROUNDS, 2, ROUNDS]


def test_a_killed_device_goes_on_where_it_was(world, expected) -> None:
    outcome = world.train(device_dies_after={0: 1, 2: 0})
    np.testing.assert_allclose(outcome.model, expected.model, rtol=0, atol=1e-9)
    assert outcome.answered == [ROUNDS] * OWNERS
    assert all(spent <= budget for spent, budget in zip(outcome.spent, BUDGETS, strict=True))


def test_a_killed_server_goes_on_where_it_was(world, expected) -> None:
    outcome = world.train(server_dies_after=1)
    np.testing.assert_allclose(outcome.model, expected.model, rtol=0, atol=1e-9)
    assert outcome.answered == [ROUNDS] * OWNERS
    assert all(spent <= budget for spent, budget in zip(outcome.spent, BUDGETS, strict=True))


def test_a_repeated_round_gets_the_stored_answer(world) -> None:
    first = world.ask(0, round=0, lost=True)
    assert world.ask(0, round=0) == first
    assert world.charged(0) == 1


def test_a_sigma_of_the_servers_own_is_never_looked_at(world, tmp_path_factory) -> None:
    told = LocalWorld(tmp_path_factory.mktemp("local")).ask(0, round=0)
    update = np.frombuffer(world.ask(0, round=0, sigma=1e-9))
    # Devices sum their records in an order of their own: the last bits may differ.
    np.testing.assert_allclose(update, np.frombuffer(told), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("questions", "reason"),
    [
        ([{"round": ROUNDS}], "beyond-rounds"),
        ([{"round": -1}], "beyond-rounds"),
        ([{"round": 10**9}], "beyond-rounds"),
        ([{"round": 0}, {"round": 0, "model": OTHER}], "other-model"),
        ([{"round": 1}, {"round": 0}], "past-round"),
        ([{"round": k} for k in range(ROUNDS)] + [{"round": ROUNDS}], "beyond-rounds"),
    ],
    ids=["round T", "round -1", "a huge round", "two models", "an old round", "one more round"],
)
def test_a_cheating_server_is_refused_before_data_is_touched(world, questions, reason) -> None:
    *honest, cheat = questions
    for question in honest:
        world.ask(0, **question)
    charged, _ = world.charged(0), world.read.clear()
    with pytest.raises(Refused) as caught:
        world.ask(0, **cheat)
    assert caught.value.reason == reason
    assert world.charged(0) == charged == len(honest)
    assert not world.read


def test_changed_terms_are_refused_before_data_is_touched(world) -> None:
    world.ask(0, round=0)
    world.read.clear()
    with pytest.raises(Refused) as caught:
        world.offer_other_terms(0)
    assert caught.value.reason == "changed-terms"
    assert world.charged(0) == 1
    assert not world.read


@pytest.mark.parametrize(
    "model",
    [b"", b"x" * 47, np.full(6, np.nan).tobytes(), np.full(6, np.inf).tobytes(), bytes(8 * 60)],
    ids=["nothing", "half a number", "NaN", "infinity", "too long"],
)
def test_what_is_no_model_is_refused_before_data_is_touched(world, model) -> None:
    with pytest.raises((Refused, InvalidInput, ValueError)):
        world.ask(0, round=0, model=model)
    assert not world.read
    assert world.charged(0) == 0


def test_all_worlds_sell_the_same() -> None:
    assert [terms.rho for terms in AllTerms] == list(BUDGETS)
    assert list(BUDGETS) != TWICE
