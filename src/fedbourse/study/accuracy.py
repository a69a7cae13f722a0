"""Do the models of accuracy tell the truth? Trainings at a grid of rewards, beside their word."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedbourse.errors import InvalidInput
from fedbourse.game import ACCURACY_MODELS
from fedbourse.learning.rounds import WEIGHTS
from fedbourse.study.interval import Mean, mean_of
from fedbourse.study.trials import Task, trial
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fedbourse.learning.rounds import Weights

FACTORS = tuple(float(f) for f in np.geomspace(0.03, 10.0, 6))
"""Rewards, in turning rewards: at 1 the model ``precision`` sees as much noise as signal."""


@dataclass(frozen=True)
class Cell:
    """One training: its reward, what came out, and what each model said."""

    factor: float
    weights: Weights
    seed: int
    reward: float
    participants: int
    measured: float
    ceiling: float
    """The same training without noise."""
    predicted: dict[str, float]


@dataclass(frozen=True)
class Point:
    """All seeds of one reward and weighting."""

    factor: float
    weights: Weights
    measured: Mean
    ceiling: float
    predicted: dict[str, float]


@dataclass(frozen=True)
class AccuracyStudy:
    """A finished study."""

    task: Task
    cells: tuple[Cell, ...]

    @property
    def points(self) -> list[Point]:
        """Means over seeds, in the order of weights and rewards."""
        result = []
        for weights in WEIGHTS:
            for factor in sorted({cell.factor for cell in self.cells}):
                mine = [c for c in self.cells if c.weights == weights and c.factor == factor]
                result.append(
                    Point(
                        factor=factor,
                        weights=weights,
                        measured=mean_of([c.measured for c in mine]),
                        ceiling=float(np.mean([c.ceiling for c in mine])),
                        predicted={
                            name: float(np.mean([c.predicted[name] for c in mine]))
                            for name in ACCURACY_MODELS
                        },
                    )
                )
        return result

    def mean_absolute_error(self, model: str, weights: Weights) -> float:
        """Return how far a model is off, on average over the rewards."""
        points = [point for point in self.points if point.weights == weights]
        return float(np.mean([abs(p.predicted[model] - p.measured.value) for p in points]))


def run_accuracy_study(
    task: Task,
    *,
    seeds: int,
    first_seed: int = 0,
    factors: tuple[float, ...] = FACTORS,
    keep: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> AccuracyStudy:
    """Train at every reward with both weightings; ``keep`` holds finished seeds for a later run."""
    if not factors or not all(0 < f < float("inf") for f in factors):
        raise InvalidInput(f"rewards must be numbers above 0; found {list(factors)}")
    recipe: dict[str, object] = {
        "version": __version__,
        "task": asdict(task),
        "factors": list(factors),
        "file": _fingerprint(task.data),
    }
    known = _Kept(keep, recipe) if keep is not None else None
    cells: list[Cell] = []
    for done, seed in enumerate(range(first_seed, first_seed + seeds)):
        progress(done, seeds)
        mine = known.of(seed) if known is not None else None
        if mine is None:
            mine = list(_cells(task, seed, factors))
            if known is not None:
                known.add(mine)
        cells += mine
    progress(seeds, seeds)
    return AccuracyStudy(task, tuple(cells))


def _cells(task: Task, seed: int, factors: tuple[float, ...]) -> Iterator[Cell]:
    drawn = trial(task, seed=seed)
    for weights in WEIGHTS:
        ceiling = drawn.ceiling(weights)
        for factor in factors:
            reward = factor * drawn.turning_reward
            yield Cell(
                factor=factor,
                weights=weights,
                seed=seed,
                reward=reward,
                participants=len(drawn.participants),
                measured=drawn.measure(reward, weights),
                ceiling=ceiling,
                predicted=drawn.predicted(reward, ceiling=ceiling),
            )


def _fingerprint(data: str) -> str | None:
    """Return the hash of the file that data come from; None where they come from no file."""
    for name in (data, data.rpartition(":")[0]):
        if name and Path(name).is_file():
            return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return None


class _Kept:
    """Finished seeds in a file, one line each, after a line that says of which study."""

    def __init__(self, file: Path, recipe: dict[str, object]) -> None:
        self._file = file
        head = json.dumps(recipe, sort_keys=True)
        lines = (
            file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
        )
        self._seeds: dict[int, list[Cell]] = {}
        if not lines or lines[0] != head:
            file.write_text(head + "\n", encoding="utf-8")
            return
        for line in lines[1:]:
            try:
                cells = [Cell(**row) for row in json.loads(line)]
                self._seeds[cells[0].seed] = cells
            except (ValueError, TypeError, LookupError):
                continue  # a line cut short by a crash: its seed is trained again
        file.write_text(
            "\n".join([head, *(self._line(cells) for cells in self._seeds.values())]) + "\n",
            encoding="utf-8",
        )

    def of(self, seed: int) -> list[Cell] | None:
        return self._seeds.get(seed)

    def add(self, cells: list[Cell]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(self._line(cells) + "\n")

    @staticmethod
    def _line(cells: list[Cell]) -> str:
        return json.dumps([asdict(cell) for cell in cells])


def cell_row(cell: Cell) -> dict[str, object]:
    """Return a cell as one flat record."""
    row = {f.name: getattr(cell, f.name) for f in fields(cell) if f.name != "predicted"}
    return row | {f"predicted_{name}": level for name, level in cell.predicted.items()}
