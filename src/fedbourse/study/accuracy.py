"""How true are the accuracy models? Trainings at a grid of rewards, beside their predictions."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game import ACCURACY_MODELS
from fedbourse.game.presentation import Chart, Line, Presentable
from fedbourse.learning.aggregation import AGGREGATIONS
from fedbourse.study.results import columns_of
from fedbourse.study.trials import Mean, TrialTask, trial
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedbourse.game.presentation import Columns


FACTORS = tuple(float(f) for f in np.geomspace(0.03, 10.0, 6))
"""Rewards, in turning rewards: at 1 the model ``precision`` sees as much noise as signal."""


@dataclass(frozen=True)
class Cell:
    """One training: its reward, the accuracy measured, and what each model predicted."""

    factor: float
    aggregation: str
    seed: int
    reward: float
    participants: int
    measured: float
    ceiling: float
    """The same training without noise."""
    predicted: dict[str, float]


@dataclass(frozen=True)
class Point:
    """All seeds of one reward and aggregation."""

    factor: float
    aggregation: str
    measured: Mean
    ceiling: float
    predicted: dict[str, float]


@dataclass(frozen=True, repr=False)
class AccuracyStudy(Presentable):
    """What trainings reached, reward by reward, and what each accuracy model predicted."""

    task: TrialTask
    cells: tuple[Cell, ...]

    @property
    def points(self) -> list[Point]:
        """Means over seeds, in the order of aggregations and rewards."""
        result = []
        for aggregation in AGGREGATIONS:
            for factor in sorted({cell.factor for cell in self.cells}):
                cells = [
                    c for c in self.cells if c.aggregation == aggregation and c.factor == factor
                ]
                result.append(
                    Point(
                        factor=factor,
                        aggregation=aggregation,
                        measured=Mean.of([c.measured for c in cells]),
                        ceiling=float(np.mean([c.ceiling for c in cells])),
                        predicted={
                            name: float(np.mean([c.predicted[name] for c in cells]))
                            for name in ACCURACY_MODELS
                        },
                    )
                )
        return result

    def mean_absolute_error(self, model: str, aggregation: str) -> float:
        """Return how far a model is off, on average over the rewards."""
        points = [point for point in self.points if point.aggregation == aggregation]
        return float(np.mean([abs(p.predicted[model] - p.measured.value) for p in points]))

    def plot(self, axes: Any = None) -> Any:
        """Draw both aggregations and return the figure; or that by precision, into axes."""
        from fedbourse.study.accuracy_figure import accuracy_figure

        return accuracy_figure(self) if axes is None else super().plot(axes)

    def _facts(self) -> dict[str, object]:
        return {
            "data": self.task.data,
            "trainings": len(self.cells),
            "seeds": len({cell.seed for cell in self.cells}),
        }

    def _rows(self) -> Columns:
        return columns_of([cell_row(cell) for cell in self.cells])

    def _chart(self) -> Chart:
        points = [point for point in self.points if point.aggregation == "precision"]
        x = np.array([point.factor for point in points])
        lines = [Line("mean", x, np.array([point.measured.value for point in points]))]
        for model in ACCURACY_MODELS:
            lines.append(Line(model, x, np.array([point.predicted[model] for point in points])))
        return Chart("measured, and predicted", "reward", "accuracy", tuple(lines))


def accuracy_study(
    task: TrialTask,
    *,
    seeds: int,
    first_seed: int = 0,
    factors: tuple[float, ...] = FACTORS,
    keep: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> AccuracyStudy:
    """Train at every reward with both aggregations; ``keep`` stores seeds for a later run."""
    if not factors or not all(0 < f < float("inf") for f in factors):
        raise InvalidInput(f"rewards must be numbers above 0; found {list(factors)}")
    recipe: dict[str, object] = {
        "version": __version__,
        "task": asdict(task),
        "factors": list(factors),
        "file": _fingerprint(task.data),
    }
    store = _SeedStore(keep, recipe) if keep is not None else None
    cells: list[Cell] = []
    for done, seed in enumerate(range(first_seed, first_seed + seeds)):
        progress(done, seeds)
        fresh = store.seeds.get(seed) if store is not None else None
        if fresh is None:
            fresh = list(_cells(task, seed, factors))
            if store is not None:
                store.add(fresh)
        cells += fresh
    progress(seeds, seeds)
    return AccuracyStudy(task, tuple(cells))


def _cells(task: TrialTask, seed: int, factors: tuple[float, ...]) -> Iterator[Cell]:
    draw = trial(task, seed=seed)
    for aggregation in AGGREGATIONS:
        ceiling = draw.ceiling(aggregation)
        for factor in factors:
            reward = factor * draw.turning_reward
            yield Cell(
                factor=factor,
                aggregation=aggregation,
                seed=seed,
                reward=reward,
                participants=len(draw.participants),
                measured=draw.measure(reward, aggregation),
                ceiling=ceiling,
                predicted=draw.predicted(reward, ceiling=ceiling),
            )


def _fingerprint(data: str) -> str | None:
    """Return the hash of the file that data come from; None where they come from no file."""
    for name in (data, data.rpartition(":")[0]):
        if name and Path(name).is_file():
            return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return None


class _SeedStore:
    """Finished seeds in a file, one line each, after a line that names the study."""

    def __init__(self, file: Path, recipe: dict[str, object]) -> None:
        self._file = file
        head = json.dumps(recipe, sort_keys=True)
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        lines = text.splitlines()
        self.seeds: dict[int, list[Cell]] = {}
        for line in lines[1:] if lines[:1] == [head] else ():
            try:
                cells = [Cell(**row) for row in json.loads(line)]
                self.seeds[cells[0].seed] = cells
            except (ValueError, TypeError, LookupError):
                continue  # a line cut short by a crash: its seed is trained again
        file.write_text(head + "\n", encoding="utf-8")
        for cells in self.seeds.values():
            self.add(cells)

    def add(self, cells: list[Cell]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([asdict(cell) for cell in cells]) + "\n")


def cell_row(cell: Cell) -> dict[str, object]:
    """Return a cell as one flat record."""
    row = {f.name: getattr(cell, f.name) for f in fields(cell) if f.name != "predicted"}
    return row | {f"predicted_{name}": level for name, level in cell.predicted.items()}
