"""One contract over every way to ask devices: one process, the market's devices, Flower."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.fixtures import ALL_TERMS, BUDGETS, OTHER, OWNERS, ROUNDS, TRANSPORTS, LocalTransport
from fedbourse.errors import InvalidInput, Refused

TWICE = [2 * budget for budget in BUDGETS]


@pytest.fixture(params=list(TRANSPORTS))
def transport(request, tmp_path):
    return TRANSPORTS[request.param](tmp_path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What one process makes of the same training, undisturbed."""
    return LocalTransport(tmp_path_factory.mktemp("local")).train()


def test_the_same_noise_gives_the_same_model(transport, expected) -> None:
    outcome = transport.train()
    np.testing.assert_allclose(outcome.model, expected.model, rtol=0, atol=1e-9)
    assert outcome.delivered == [ROUNDS] * OWNERS
    for spent, budget in zip(outcome.spent, BUDGETS, strict=True):
        assert budget * (1 - 1e-12) <= spent <= budget  # exactly what was sold


def test_who_stays_away_is_left_out_and_spends_nothing_more(transport, tmp_path_factory) -> None:
    away = {1: 2}
    local = LocalTransport(tmp_path_factory.mktemp("local")).train(away_from=away)
    outcome = transport.train(away_from=away)
    np.testing.assert_allclose(outcome.model, local.model, rtol=0, atol=1e-9)
    assert outcome.delivered == [ROUNDS, 2, ROUNDS]


def test_a_killed_device_goes_on_where_it_was(transport, expected) -> None:
    outcome = transport.train(device_dies_after={0: 1, 2: 0})
    np.testing.assert_allclose(outcome.model, expected.model, rtol=0, atol=1e-9)
    assert outcome.delivered == [ROUNDS] * OWNERS
    assert all(spent <= budget for spent, budget in zip(outcome.spent, BUDGETS, strict=True))


def test_a_killed_server_goes_on_where_it_was(transport, expected) -> None:
    outcome = transport.train(server_dies_after=1)
    np.testing.assert_allclose(outcome.model, expected.model, rtol=0, atol=1e-9)
    assert outcome.delivered == [ROUNDS] * OWNERS
    assert all(spent <= budget for spent, budget in zip(outcome.spent, BUDGETS, strict=True))


def test_a_repeated_round_gets_the_stored_update(transport) -> None:
    first = transport.ask(0, round=0, lost=True)
    assert transport.ask(0, round=0) == first
    assert transport.charged(0) == 1


def test_a_sigma_of_the_servers_own_is_never_looked_at(transport, tmp_path_factory) -> None:
    local = LocalTransport(tmp_path_factory.mktemp("local")).ask(0, round=0)
    update = np.frombuffer(transport.ask(0, round=0, sigma=1e-9))
    # Devices sum their records in an order of their own: the last bits may differ.
    np.testing.assert_allclose(update, np.frombuffer(local), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("round_requests", "reason"),
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
def test_a_cheating_server_is_refused_before_data_is_touched(
    transport, round_requests, reason
) -> None:
    *honest, cheat = round_requests
    for round_request in honest:
        transport.ask(0, **round_request)
    charged, _ = transport.charged(0), transport.read.clear()
    with pytest.raises(Refused) as caught:
        transport.ask(0, **cheat)
    assert caught.value.reason == reason
    assert transport.charged(0) == charged == len(honest)
    assert not transport.read


def test_changed_terms_are_refused_before_data_is_touched(transport) -> None:
    transport.ask(0, round=0)
    transport.read.clear()
    with pytest.raises(Refused) as caught:
        transport.offer_other_terms(0)
    assert caught.value.reason == "changed-terms"
    assert transport.charged(0) == 1
    assert not transport.read


@pytest.mark.parametrize(
    "model",
    [b"", b"x" * 47, np.full(6, np.nan).tobytes(), np.full(6, np.inf).tobytes(), bytes(8 * 60)],
    ids=["nothing", "half a number", "NaN", "infinity", "too long"],
)
def test_an_invalid_model_is_refused_before_data_is_touched(transport, model) -> None:
    with pytest.raises((Refused, InvalidInput, ValueError)):
        transport.ask(0, round=0, model=model)
    assert not transport.read
    assert transport.charged(0) == 0


def test_all_transports_sell_the_same() -> None:
    assert [terms.rho for terms in ALL_TERMS] == list(BUDGETS)
    assert list(BUDGETS) != TWICE
