"""Lots and the optimal purchase over owners who come in chunks: the same as in memory, exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fedbourse import MECHANISMS, InvalidGame, Purchase, Uniform, buy_optimally, sell_lots
from fedbourse.game.mechanisms import run_mechanism
from fedbourse.game.outofcore import lot_scan

RNG = np.random.default_rng(7)
COLUMNS = {
    "uniform": RNG.uniform(1, 5, 300_000),
    "lognormal": RNG.lognormal(0, 3, 200_000),
    "equal": np.full(150_000, 2.0),
    "few values": RNG.integers(1, 20, 250_000) / 10,
    "nearly equal": 1 + RNG.uniform(0, 1e-9, 100_000),
    "wide": 10.0 ** RNG.uniform(-150, 150, 100_000),
}


def streamed(column, size=70_000):
    chunks = [column[i : i + size] for i in range(0, len(column), size)]
    return lambda: iter(chunks)


@pytest.mark.parametrize("held", [1 << 20, 1000], ids=["held", "counted"])
@pytest.mark.parametrize("name", list(COLUMNS))
def test_a_stream_sells_the_lots_that_memory_does(name, held, monkeypatch) -> None:
    monkeypatch.setattr(lot_scan, "HELD_MAX", held)
    column = COLUMNS[name]
    ordered = np.sort(column)
    for sellers in (0, 1, 2, 17, 5000, 40_000, len(column) - 1, len(column)):
        reward = ordered[sellers - 1] * sellers if sellers else ordered[0] / 2
        for nudge in (1 - 1e-12, 1, 1 + 1e-9):
            found = sell_lots(streamed(column), reward=reward * nudge, lot=1.0)
            assert found == sell_lots(column, reward=reward * nudge, lot=1.0)


@given(
    st.lists(st.integers(1, 30).map(lambda k: k / 10), min_size=1, max_size=60),
    st.floats(0.01, 100),
    st.integers(1, 20),
)
@examples(60)
def test_small_streams_too(values, reward, size) -> None:
    column = np.array(values)
    memory = sell_lots(column, reward=reward, lot=0.3)
    assert sell_lots(streamed(column, size), reward=reward, lot=0.3) == memory
    previous, lot_scan.HELD_MAX = lot_scan.HELD_MAX, 3
    try:
        assert sell_lots(streamed(column, size), reward=reward, lot=0.3) == memory
    finally:
        lot_scan.HELD_MAX = previous


def test_few_sellers_need_one_reading_and_many_three(monkeypatch) -> None:
    monkeypatch.setattr(lot_scan, "HELD_MAX", 5000)
    column, readings = COLUMNS["uniform"], []

    def read():
        readings.append(1)
        return iter([column[:100_000], column[100_000:]])

    for reward, expected in ((1000.0, 1), (250_000.0, 3)):
        readings.clear()
        sell_lots(read, reward=reward, lot=1.0)
        assert len(readings) == expected
    assert sell_lots(iter([column]), reward=1000.0, lot=1.0).sellers > 900
    with pytest.raises(InvalidGame, match="an iterator can be read once only"):
        sell_lots(iter([column[:200_000], column[200_000:]]), reward=250_000.0, lot=1.0)


def test_a_source_that_changes_between_readings_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(lot_scan, "HELD_MAX", 100)
    column, readings = COLUMNS["uniform"], []

    def read():
        readings.append(1)
        return iter([column[: -len(readings)]])

    with pytest.raises(InvalidGame, match="same owners at every reading"):
        sell_lots(read, reward=250_000.0, lot=1.0)


BUYER = Purchase(gain=50.0, noise_factor=0.01, sampling=300.0, prior=Uniform(1, 5))


@pytest.mark.parametrize(("gain", "sampling"), [(50.0, 300.0), (1000.0, 1e5)], ids=str)
def test_a_stream_buys_optimally_what_memory_does(gain, sampling) -> None:
    column = COLUMNS["uniform"][:20_000]
    buyer = Purchase(gain=gain, noise_factor=0.01, sampling=sampling, prior=Uniform(1, 5))
    memory = buy_optimally(column, buyer)
    found = buy_optimally(streamed(column, 3_000), buyer)
    for name in ("owners", "sellers", "c", "total_budget", "spend", "quality"):
        assert getattr(found, name) == getattr(memory, name), name
    assert np.array_equal(found.budgets_of(column), memory.budgets_of(column))
    assert np.array_equal(found.payments_of(column), memory.payments_of(column))
    sale = run_mechanism(MECHANISMS["optimal"], column, buyer)
    assert memory.sellers == sale.sellers
    assert memory.budgets_of(column) == pytest.approx(sale.budgets, rel=1e-9, abs=1e-15)
    assert memory.payments_of(column) == pytest.approx(sale.payments, rel=1e-9, abs=1e-15)
    assert memory.spend == pytest.approx(sale.spend, rel=1e-9)


def test_owners_in_chunks_have_one_cap() -> None:
    with pytest.raises(InvalidGame, match="must all have the same cap"):
        buy_optimally([1.0, 2.0], Purchase(prior=Uniform(1, 5), cap=np.ones(2)))
    assert buy_optimally([9.0], Purchase(prior=Uniform(1, 5))).sellers == 0
