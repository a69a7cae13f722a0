"""One look at an array in memory: brackets may be wrong, participants may not."""

from dataclasses import replace

import numpy as np
import pytest

from fedbourse import InvalidGame, equilibrium
from fedbourse.game import array_scan
from fedbourse.game.cutoff import find_cutoff

N = 200_000


def shapes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    row = np.arange(N)
    return {
        "uniform": rng.uniform(1, 5, N),
        "equal": np.full(N, 0.3),
        "nearly equal": 1 + rng.uniform(0, 0.1 / N, N),
        "half": 1 + rng.uniform(0, 4 / N, N),
        "a tenth": 1 + rng.uniform(0, 100 / N, N),
        "nearly all": 1 + rng.uniform(0, 2.1 / N, N),
        "geometric": np.geomspace(1e-150, 1e150, N),
        "two point": np.where(row < 2, 1.0, 2.0),
        "two point, half": np.where(row % 2, 1.0, 1 + 1e-9),
        "one cheap": np.where(row == N // 2, 1e-3, 1.0),
        "one cheap, others spread": np.where(row == N // 2, 1e-6, rng.uniform(1, 5, N)),
        "one of high value": np.where(row == N // 2, 9.0, 1.0),
        "rising": np.linspace(1, 3, N),
        "falling": np.linspace(3, 1, N),
        "ties and tail": np.where(row % 3, 1.0, rng.uniform(1, 5, N)),
        "ties": rng.integers(1, 9, N) / 10,
    }


@pytest.fixture
def passes(monkeypatch) -> list[tuple[float, float]]:
    """Record between which ends each pass looked."""
    seen = []
    start = array_scan._Pass.__init__

    def scan(self, data, low, high) -> None:
        seen.append((low, high))
        start(self, data, low, high)

    monkeypatch.setattr(array_scan._Pass, "__init__", scan)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(shapes()))
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_every_shape_is_decided_as_by_selection(shape: str, kind, passes) -> None:
    values = shapes()[shape]
    if kind is np.float32:
        values = np.clip(values, 1e-30, 1e30).astype(np.float32)
    result = array_scan.scan(values)
    whole = values.astype(np.float64)
    due = find_cutoff(whole)
    assert result.cutoff.count == due.count
    assert result.cutoff.tau == pytest.approx(due.tau, rel=1e-14)
    assert (whole <= result.cutoff.highest).sum() == due.count
    assert result.table().places.tolist() == np.flatnonzero(whole <= due.highest).tolist()
    assert 1 <= len(passes) <= 3
    if due.count < N:
        assert due.highest < result.cheapest_outsider <= whole[whole > due.highest].min()


@pytest.mark.parametrize("shape", ["uniform", "half", "nearly equal", "ties and tail"])
@pytest.mark.parametrize("lie", ["low", "high"])
def test_a_wrong_bracket_costs_a_pass_and_no_more(
    shape: str, lie: str, passes, monkeypatch
) -> None:
    values = shapes()[shape]
    due = find_cutoff(values)
    honest = array_scan._Bracket.of
    wrong = {
        "low": lambda bracket: replace(
            bracket,
            low=float(values.min()),
            high=float(np.nextafter(values.min(), 9)),
            proven=False,
        ),
        "high": lambda bracket: replace(bracket, low=float(values.max()), proven=True),
    }[lie]
    monkeypatch.setattr(array_scan._Bracket, "of", lambda data: wrong(honest(data)))
    assert array_scan.scan(values).cutoff.count == due.count
    assert len(passes) >= 2 or due.count == N


def test_a_bracket_that_stays_wrong_ends_in_a_selection(monkeypatch, passes) -> None:
    values = shapes()["half"]
    monkeypatch.setattr(array_scan._Bracket, "lower", lambda self, _: self)
    monkeypatch.setattr(array_scan._Bracket, "higher", lambda self, _: self)
    honest = array_scan._Bracket.of
    monkeypatch.setattr(
        array_scan._Bracket,
        "of",
        lambda data: replace(honest(data), low=float(data.max())),
    )
    assert array_scan.scan(values).cutoff.count == find_cutoff(values).count
    assert len(passes) == 6


def test_an_array_that_changed_before_its_budgets_were_asked_for_is_noticed() -> None:
    values = shapes()["half"].copy()
    result = equilibrium(values, reward=1.0)
    values[:10] = 3.0
    with pytest.raises(InvalidGame, match="the values were changed"):
        _ = result.budgets
    as_many = shapes()["half"].copy()
    result = equilibrium(as_many, reward=1.0)
    first = int(np.argmin(as_many))
    as_many[first] /= 2  # still one that takes part
    with pytest.raises(InvalidGame, match="the values were changed"):
        _ = result.budgets


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0])
@pytest.mark.parametrize("shape", ["uniform", "equal"])
@pytest.mark.parametrize("position", [0, 70_001, N - 1])
def test_a_bad_value_is_named_with_its_position(bad: float, shape: str, position: int) -> None:
    values = shapes()[shape].copy()
    values[position] = bad
    with pytest.raises(InvalidGame) as caught:
        equilibrium(values, reward=1.0)
    assert str(caught.value) == f"values[{position}] must be a finite number above 0; found {bad}"
