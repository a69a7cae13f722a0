"""One look at an array in memory: guesses may be wrong, participants may not."""

import numpy as np
import pytest

from fedbourse import InvalidGame, equilibrium
from fedbourse.game import scan
from fedbourse.game.threshold import threshold

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
        "one dear": np.where(row == N // 2, 9.0, 1.0),
        "rising": np.linspace(1, 3, N),
        "falling": np.linspace(3, 1, N),
        "crowd and tail": np.where(row % 3, 1.0, rng.uniform(1, 5, N)),
        "ties": rng.integers(1, 9, N) / 10,
    }


@pytest.fixture
def walks(monkeypatch) -> list[tuple[float, float]]:
    """Record between which ends each walk looked."""
    seen = []
    start = scan._Walk.__init__

    def walk(self, data, low, high) -> None:
        seen.append((low, high))
        start(self, data, low, high)

    monkeypatch.setattr(scan._Walk, "__init__", walk)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("shape", list(shapes()))
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_every_shape_is_decided_as_by_selection(shape: str, kind, walks) -> None:
    values = shapes()[shape]
    if kind is np.float32:
        values = np.clip(values, 1e-30, 1e30).astype(np.float32)
    found = scan.scan(values)
    whole = values.astype(np.float64)
    due = threshold(whole)
    assert found.threshold.count == due.count
    assert found.threshold.tau == pytest.approx(due.tau, rel=1e-14)
    assert (whole <= found.threshold.dearest).sum() == due.count
    kept = found.kept()
    assert kept.places.tolist() == np.flatnonzero(whole <= due.dearest).tolist()
    assert 1 <= len(walks) <= 3
    if due.count < N:
        assert due.dearest < found.cheapest_outsider <= whole[whole > due.dearest].min()


@pytest.mark.parametrize("shape", ["uniform", "half", "nearly equal", "crowd and tail"])
@pytest.mark.parametrize("lie", ["low", "high"])
def test_a_wrong_guess_costs_a_walk_and_no_more(shape: str, lie: str, walks, monkeypatch) -> None:
    values = shapes()[shape]
    due = threshold(values)
    honest = scan._Guess.of
    wrong = {
        "low": lambda guess: scan.replace(
            guess, low=float(values.min()), high=float(np.nextafter(values.min(), 9)), proven=False
        ),
        "high": lambda guess: scan.replace(guess, low=float(values.max()), proven=True),
    }[lie]
    monkeypatch.setattr(scan._Guess, "of", lambda data: wrong(honest(data)))
    assert scan.scan(values).threshold.count == due.count
    assert len(walks) >= 2 or due.count == N


def test_a_guess_that_stays_wrong_ends_in_a_selection(monkeypatch, walks) -> None:
    values = shapes()["half"]
    monkeypatch.setattr(scan._Guess, "lower", lambda self, _: self)
    monkeypatch.setattr(scan._Guess, "higher", lambda self, _: self)
    honest = scan._Guess.of
    monkeypatch.setattr(
        scan._Guess, "of", lambda data: scan.replace(honest(data), low=float(data.max()))
    )
    assert scan.scan(values).threshold.count == threshold(values).count
    assert len(walks) == 6


def test_an_array_that_changed_before_its_budgets_were_asked_for_is_noticed() -> None:
    values = shapes()["half"].copy()
    found = equilibrium(values, reward=1.0)
    values[:10] = 3.0
    with pytest.raises(InvalidGame, match="the values were changed"):
        _ = found.budgets
    as_many = shapes()["half"].copy()
    found = equilibrium(as_many, reward=1.0)
    first = int(np.argmin(as_many))
    as_many[first] /= 2  # still one that takes part
    with pytest.raises(InvalidGame, match="the values were changed"):
        _ = found.budgets


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
