"""``fedbourse study accuracy``: do the models of accuracy tell the truth?"""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from fedbourse.cli.files import output_folder
from fedbourse.cli.option_values import numbers
from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.cli.study_task import STUDY, FirstSeed, Folder, SeedCount, TaskOptions, percent
from fedbourse.game import ACCURACY_MODELS
from fedbourse.units import number, whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from fedbourse.study.accuracy import AccuracyStudy


def accuracy(
    *,
    options: TaskOptions = TaskOptions(),
    rewards: Annotated[str | None, Parameter(group=STUDY)] = None,
    seeds: SeedCount = 10,
    seed: FirstSeed = 0,
    out: Folder = Path("study-accuracy"),
    output: Output = PEOPLE,
) -> None:
    """Train for real at a grid of rewards, and see how far each model of accuracy is off.

    Both weightings, several seeds; each seed draws the owners' values, their records and the
    noise. The models' ceiling is the accuracy of the same training without noise, their chance the
    commonest class. Writes a figure (SVG and PNG), `cells.csv` (every training) and `errors.csv`.
    Finished seeds are kept in the folder, so that an interrupted study goes on where it stopped.

    For example:

        fedbourse study accuracy

        fedbourse study accuracy --data sklearn:digits --owners 40 --step-size 2 --seeds 20

        fedbourse study accuracy --data synthetic:d=1000 --owners 600 --rewards 0.1,1,10

    Parameters
    ----------
    rewards
        Rewards separated by commas, in turning rewards: at 1 the model `precision` sees as much
        noise as signal. By default six from 0.03 to 10.
    """
    from fedbourse.figures import need_matplotlib
    from fedbourse.study.accuracy import FACTORS, accuracy_study

    need_matplotlib()
    task = options.task()
    factors = FACTORS
    if rewards is not None:
        listed = numbers("rewards", rewards, example="0.1,1,10")
        factors = tuple(number("rewards", factor, above=0) for factor in listed)
    count = whole_number("seeds", seeds, at_least=2)
    first = whole_number("seed", seed, at_least=0)
    with output_folder(out):
        with progress_bar("seeds") as advance:
            study = accuracy_study(
                task,
                seeds=count,
                first_seed=first,
                factors=factors,
                keep=out / "finished-seeds.jsonl",
                progress=advance,
            )
        files = _write_accuracy(study, out)
    document = {
        "version": __version__,
        "task": asdict(task),
        "seed": first,
        "seeds": count,
        "files": [str(file) for file in files],
        "errors": _errors(study),
        "points": [asdict(point) for point in study.points],
    }
    output.show(document, lambda _: _in_words(study, len(files), out))


def _errors(study: AccuracyStudy) -> list[dict[str, Any]]:
    from fedbourse.learning.aggregation import AGGREGATIONS

    return [
        {
            "model": name,
            "aggregation": weighting,
            "mean_absolute_error": study.mean_absolute_error(name, weighting),
        }
        for weighting in AGGREGATIONS
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


def _in_words(study: AccuracyStudy, files: int, out: Path) -> Blocks:
    rows = [
        {
            "aggregation": point.aggregation,
            "reward": f"{point.factor:.3g}",
            "measured": percent(point.measured),
        }
        | {name: f"{point.predicted[name]:.1%}" for name in ACCURACY_MODELS}
        for point in study.points
    ]
    for weighting in dict.fromkeys(point.aggregation for point in study.points):
        errors = {name: study.mean_absolute_error(name, weighting) for name in ACCURACY_MODELS}
        rows.append(
            {"aggregation": weighting, "reward": "all", "measured": "mean error"}
            | {name: f"{100 * error:.1f} pt" for name, error in errors.items()}
        )
    yield table(rows, {name: itemgetter(name) for name in rows[0]})
    cells = study.cells
    ceiling = sum(cell.ceiling for cell in cells) / len(cells)
    yield ""
    yield (
        f"{study.task.data}: {len(cells)} trainings, "
        f"{min(c.participants for c in cells)} to {max(c.participants for c in cells)} "
        f"participants; without noise {ceiling:.1%}. Rewards are in turning rewards; "
        "intervals are 95 %."
    )
    yield f"{files} files in {out}"
