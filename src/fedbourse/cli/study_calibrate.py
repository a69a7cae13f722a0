"""``fedbourse study calibrate``: fit a model of accuracy in a pilot, and check it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.progress import progress_bar
from fedbourse.cli.study_task import STUDY, Json, TaskOptions, plain_table
from fedbourse.units import whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from fedbourse.study.pilot import PilotStudy

_WITHIN = 0.02  # what a fitted model should be good for, as an accuracy


def calibrate(
    *,
    options: TaskOptions = TaskOptions(),
    weights: Annotated[Literal["equal", "precision"], Parameter(group=STUDY)] = "precision",
    seeds: Annotated[Whole, Parameter(group=STUDY)] = 10,
    seed: Annotated[Whole, Parameter(group=STUDY)] = 0,
    as_json: Json = False,
) -> None:
    """Fit a model of accuracy in a pilot on public records, and check it on owners' records.

    The pilot trains at six rewards on records that play the public ones, and fits ceiling, chance
    and one noise coefficient. The check trains at five other rewards, with other owners, on the
    other half of the records, and compares. `fedbourse solve` takes the fitted numbers. Each seed
    trains 33 times: on flights ten seeds take minutes.

    Examples:

        fedbourse study calibrate --data sklearn:digits --owners 40 --step-size 2

        fedbourse study calibrate --data synthetic --owners 40 --weights equal --json

    Parameters
    ----------
    weights
        How answers are averaged; `equal` fits the model `averaged`, `precision` its own.
    seeds
        How many seeds, each with three trainings a reward.
    seed
        The first seed.
    as_json
        Print one JSON document with the fit and every check.
    """
    from fedbourse.study.pilot import run_pilot_study

    task = options.task()
    with progress_bar("seeds") as advance:
        study = run_pilot_study(
            task,
            weights=weights,
            seeds=whole_number("seeds", seeds, at_least=2),
            first_seed=whole_number("seed", seed, at_least=0),
            progress=advance,
        )
    if as_json:
        document = {
            "version": __version__,
            "task": asdict(task),
            "weights": weights,
            "seed": int(seed),
            "seeds": study.seeds,
            "fit": asdict(study.calibration),
            "checks": [asdict(check) | {"error": check.error} for check in study.checks],
            "largest_error": study.largest_error,
        }
        print(json.dumps(document, allow_nan=False))
    else:
        _print_pilot(study)


def _print_pilot(study: PilotStudy) -> None:
    console = Console()
    table = plain_table("reward", "predicted", "measured", "off by")
    for check in study.checks:
        table.add_row(
            f"{check.reward:.4g}",
            f"{check.predicted:.1%}",
            f"{check.measured.value:.1%} ± {100 * check.measured.margin:.1f}",
            f"{100 * check.error:+.1f} pt",
        )
    console.print(table)
    fit, training = study.calibration.accuracy, study.training
    word = "within" if study.largest_error <= _WITHIN else "NOT within"
    console.print(
        f"\nfitted on {study.calibration.observations} pilot points: chance {fit.chance:.3f}, "
        f"ceiling {fit.ceiling:.3f}, noise coefficient {fit.noise:.4g}\n"
        f"largest error at rewards unseen in the fit: {100 * study.largest_error:.2f} points, "
        f"{word} {100 * _WITHIN:g}\n"
        f"use it: fedbourse solve --accuracy {fit.model} --chance {fit.chance:.4f} "
        f"--ceiling {fit.ceiling:.4f} --noise-coefficient {fit.noise:.5g} "
        f"--dimension {training.dimension} --step-size {training.step_size:g} "
        f"--iterations {training.iterations} --samples {training.samples:g} "
        f"--uniform 1:5 --owners {study.task.owners}",
        highlight=False,
        soft_wrap=True,
    )
