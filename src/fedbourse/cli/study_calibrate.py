"""``fedbourse study calibrate``: fit a model of accuracy in a pilot, and check it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.cli.study_task import STUDY, FirstSeed, TaskOptions, percent
from fedbourse.errors import InvalidInput
from fedbourse.units import whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from fedbourse.study.pilot import PilotStudy

_WITHIN = 0.02  # what a fitted model should be good for, as an accuracy


def calibrate(
    *,
    options: TaskOptions = TaskOptions(),
    aggregation: Annotated[Literal["equal", "precision"], Parameter(group=STUDY)] = "precision",
    sellers: Annotated[str | None, Parameter(group=STUDY)] = None,
    seeds: Annotated[Whole, Parameter(group=STUDY)] = 10,
    seed: FirstSeed = 0,
    output: Output = PEOPLE,
) -> None:
    """Fit a model of accuracy in a pilot on public records, and check it on owners' records.

    The pilot trains at six rewards on records that play the public ones, and fits ceiling, chance
    and one noise coefficient; with --sellers also how much few sellers' records vary. The check
    trains at five other rewards, with other owners, on the other half of the records, and
    compares. `fedbourse solve` takes the fitted numbers. Each seed trains 33 times, with --sellers
    129 times: on flights ten seeds take minutes.

    For example:

        fedbourse study calibrate --data sklearn:digits --owners 40 --step-size 2

        fedbourse study calibrate --data synthetic --owners 40 --aggregation equal --json

        fedbourse study calibrate --data sklearn:digits --samples 7 --step-size 2 --sellers 5:100

    Parameters
    ----------
    aggregation
        How updates are aggregated; `equal` fits the model `averaged`, `precision` its own.
    sellers
        LOW:HIGH: check at five numbers of sellers between these, pilot at three of them. By
        default as many sell as the values lead to.
    seeds
        How many seeds, each with three trainings a reward.
    """
    from fedbourse.study.pilot import run_pilot_study, sellers_between

    task = options.task()
    with progress_bar("seeds") as advance:
        study = run_pilot_study(
            task,
            aggregation=aggregation,
            seeds=whole_number("seeds", seeds, at_least=2),
            first_seed=whole_number("seed", seed, at_least=0),
            sellers=None if sellers is None else sellers_between(*_ends(sellers)),
            progress=advance,
        )
    document = {
        "version": __version__,
        "task": asdict(task),
        "aggregation": aggregation,
        "seed": int(seed),
        "seeds": study.seeds,
        "fit": asdict(study.calibration),
        "checks": [asdict(check) | {"error": check.error} for check in study.checks],
        "largest_error": study.largest_error,
    }
    output.show(document, lambda _: _in_words(study))


def _ends(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    try:
        ends = int(low), int(high)
    except ValueError:
        ends = 0, 0
    if not colon or not 2 <= ends[0] <= ends[1] // 4:
        raise InvalidInput(
            "sellers must be LOW:HIGH, from 2 sellers to at least four times as many; "
            f"found {text!r:.60}"
        )
    return ends


def _in_words(study: PilotStudy) -> Blocks:
    yield table(
        study.checks,
        {
            "sellers": lambda check: f"{check.sellers:.0f}{'' if check.in_pilot else ' (new)'}",
            "reward": lambda check: f"{check.reward:.4g}",
            "predicted": lambda check: f"{check.predicted:.1%}",
            "measured": lambda check: percent(check.measured),
            "off by": lambda check: f"{100 * check.error:+.1f} pt",
        },
    )
    fit, training = study.calibration.accuracy, study.training
    word = "within" if study.largest_error <= _WITHIN else "NOT within"
    yield ""
    yield (
        f"fitted on {study.calibration.observations} pilot points: chance {fit.chance:.3f}, "
        f"ceiling {fit.ceiling:.3f}, noise coefficient {fit.noise:.4g}, "
        f"sampling variance {fit.sampling:.4g}"
    )
    yield (
        f"largest error at rewards unseen in the fit: {100 * study.largest_error:.2f} points, "
        f"{word} {100 * _WITHIN:g}"
    )
    yield (
        f"use it: fedbourse solve --accuracy {fit.model} --chance {fit.chance:.4f} "
        f"--ceiling {fit.ceiling:.4f} --noise-coefficient {fit.noise:.5g} "
        f"--sampling {fit.sampling:.5g} "
        f"--dimension {training.dimension} --step-size {training.step_size:g} "
        f"--iterations {training.iterations} --samples {training.samples:g} "
        f"--uniform 1:5 --owners {study.task.owners}"
    )
