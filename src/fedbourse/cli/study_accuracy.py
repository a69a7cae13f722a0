"""``fedbourse study accuracy``: do the models of accuracy tell the truth?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.progress import progress_bar
from fedbourse.cli.study_task import STUDY, Json, TaskOptions, plain_table
from fedbourse.errors import CannotWrite, InvalidInput
from fedbourse.game import ACCURACY_MODELS
from fedbourse.units import number, whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from fedbourse.study.accuracy import AccuracyStudy


def accuracy(
    *,
    options: TaskOptions = TaskOptions(),
    rewards: Annotated[str | None, Parameter(group=STUDY)] = None,
    seeds: Annotated[Whole, Parameter(group=STUDY)] = 10,
    seed: Annotated[Whole, Parameter(group=STUDY)] = 0,
    out: Annotated[Path, Parameter(group=STUDY)] = Path("study-accuracy"),
    as_json: Json = False,
) -> None:
    """Train for real at a grid of rewards, and see how far each model of accuracy is off.

    Both weightings, several seeds; each seed draws the owners' values, their records and the
    noise. The models' ceiling is the accuracy of the same training without noise, their chance the
    commonest class. Writes a figure (SVG and PNG), `cells.csv` (every training) and `errors.csv`.
    Finished seeds are kept in the folder, so that an interrupted study goes on where it stopped.

    Examples:

        fedbourse study accuracy

        fedbourse study accuracy --data sklearn:digits --owners 40 --step-size 2 --seeds 20

        fedbourse study accuracy --data synthetic:d=1000 --owners 600 --rewards 0.1,1,10

    Parameters
    ----------
    rewards
        Rewards separated by commas, in turning rewards: at 1 the model `precision` sees as much
        noise as signal. By default six from 0.03 to 10.
    seeds
        How many seeds.
    seed
        The first seed.
    out
        The folder to write to; it is made if need be.
    as_json
        Print one JSON document with every point and the errors.
    """
    from fedbourse.study.accuracy import FACTORS, run_accuracy_study
    from fedbourse.study.figures import need_matplotlib

    need_matplotlib()
    task = options.task()
    factors = FACTORS if rewards is None else _numbers("rewards", rewards)
    count = whole_number("seeds", seeds, at_least=2)
    first = whole_number("seed", seed, at_least=0)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with progress_bar("seeds") as advance:
            study = run_accuracy_study(
                task,
                seeds=count,
                first_seed=first,
                factors=factors,
                keep=out / "finished-seeds.jsonl",
                progress=advance,
            )
        files = _write_accuracy(study, out)
    except OSError as error:
        raise CannotWrite(f"{out} cannot be written to: {error.strerror or error}") from None
    if as_json:
        document = {
            "version": __version__,
            "task": asdict(task),
            "seed": first,
            "seeds": count,
            "files": [str(file) for file in files],
            "errors": _errors(study),
            "points": [asdict(point) for point in study.points],
        }
        print(json.dumps(document, allow_nan=False))
    else:
        _print_accuracy(study, files, out)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(number(name, float(part), above=0) for part in text.split(","))
    except ValueError:
        raise InvalidInput(
            f"{name} must be numbers separated by commas, such as 0.1,1,10; found {text!r:.60}"
        ) from None


def _errors(study: AccuracyStudy) -> list[dict[str, Any]]:
    from fedbourse.learning.rounds import WEIGHTS

    return [
        {
            "model": name,
            "weights": weighting,
            "mean_absolute_error": study.mean_absolute_error(name, weighting),
        }
        for weighting in WEIGHTS
        for name in ACCURACY_MODELS
    ]


def _write_accuracy(study: AccuracyStudy, out: Path) -> list[Path]:
    from fedbourse.study.accuracy import cell_row
    from fedbourse.study.accuracy_figure import draw_accuracy
    from fedbourse.study.tables import write_rows

    source: dict[str, object] = {"version": __version__, "data": study.task.data}
    return [
        write_rows(out / "cells.csv", (cell_row(cell) | source for cell in study.cells)),
        write_rows(out / "errors.csv", (row | source for row in _errors(study))),
        *draw_accuracy(study, out),
    ]


def _print_accuracy(study: AccuracyStudy, files: list[Path], out: Path) -> None:
    console = Console()
    table = plain_table("weights", "reward", "measured", *ACCURACY_MODELS)
    for point in study.points:
        table.add_row(
            point.weights,
            f"{point.factor:.3g}",
            f"{point.measured.value:.1%} ± {100 * point.measured.margin:.1f}",
            *(f"{point.predicted[name]:.1%}" for name in ACCURACY_MODELS),
        )
    for weighting in dict.fromkeys(point.weights for point in study.points):
        table.add_row(
            weighting,
            "all",
            "mean error",
            *(
                f"{100 * study.mean_absolute_error(name, weighting):.1f} pt"
                for name in ACCURACY_MODELS
            ),
        )
    console.print(table)
    cells = study.cells
    ceiling = sum(cell.ceiling for cell in cells) / len(cells)
    console.print(
        f"\n{study.task.data}: {len(cells)} trainings, "
        f"{min(c.participants for c in cells)} to {max(c.participants for c in cells)} "
        f"participants; without noise {ceiling:.1%}. Rewards are in turning rewards; "
        "intervals are 95 %.\n"
        f"{len(files)} files in {out}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
