"""``fedbourse lab``: mechanisms side by side, on the same owners, for the same buyers."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from fedbourse.cli.files import output_folder
from fedbourse.cli.option_values import (
    Rounds,
    Samples,
    StepSize,
    Whole,
    number_or_best,
    numbers,
)
from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.cli.study_task import Folder, TaskOptions
from fedbourse.files.column_file import read_column
from fedbourse.game import MECHANISMS
from fedbourse.game.columns import positive
from fedbourse.lab.buyers import LabBuyer
from fedbourse.lab.profiles import PROFILES, ValueProfile, profile_of_values
from fedbourse.lab.published import PUBLISHED
from fedbourse.lab.run import run_lab
from fedbourse.lab.tables import by_place, cells, write_lab
from fedbourse.units import number, whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from fedbourse.lab.rows import LabRecord

_COMPARED, _BUYERS, _TRAINING = (
    Group.create_ordered(name) for name in ("What is compared", "Buyers", "Training")
)
_MECHANISMS = f"Names separated by commas, or all: {MECHANISMS.explained}."
_PROFILES = f"Names separated by commas, or all: {PROFILES.explained}."


def lab(
    *,
    mechanisms: Annotated[str, Parameter(group=_COMPARED, help=_MECHANISMS)] = "all",
    profiles: Annotated[
        str, Parameter(group=_COMPARED, help=_PROFILES)
    ] = "uniform,lognormal,pareto",
    values: Annotated[str | None, Parameter(group=_COMPARED)] = None,
    owners: Annotated[Whole, Parameter(group=_COMPARED)] = 20,
    draws: Annotated[Whole, Parameter(group=_COMPARED)] = 100,
    deviation_draws: Annotated[Whole, Parameter(group=_COMPARED)] = 3,
    seed: Annotated[Whole, Parameter(group=_COMPARED)] = 0,
    gain: Annotated[str, Parameter(group=_BUYERS)] = "10",
    sampling: Annotated[str, Parameter(group=_BUYERS)] = "1",
    noise_factor: Annotated[float, Parameter(group=_BUYERS)] = 0.01,
    reward: Annotated[str, Parameter(group=_BUYERS)] = "best",
    lot: Annotated[str, Parameter(group=_BUYERS)] = "best",
    train: Annotated[str | None, Parameter(group=_TRAINING)] = None,
    training_draws: Annotated[Whole, Parameter(group=_TRAINING)] = 3,
    noise_coefficient: Annotated[float, Parameter(group=_TRAINING)] = 1.0,
    samples: Annotated[Samples, Parameter(group=_TRAINING)] = None,
    rounds: Annotated[Rounds, Parameter(group=_TRAINING)] = 50,
    step_size: Annotated[StepSize, Parameter(group=_TRAINING)] = 1.0,
    out: Folder = Path("lab"),
    output: Output = PEOPLE,
) -> None:
    """Compare mechanisms: budget bought, spend, utilities, what lying gains, accuracy.

    Every mechanism meets every profile of values and every buyer, on the same draws. A buyer
    chooses its reward and lot, where they are not given, on draws of their own. Writes `lab.csv`,
    `lab.md` and a figure (SVG and PNG). Ends with an error if a mechanism breaks one of its
    promises or a proven bound.

    For example:

        fedbourse lab

        fedbourse lab --mechanisms clock,proportional --values owners.csv:value --owners 40

        fedbourse lab --profiles uniform --sampling 0.1,1,10 --train sklearn:digits

    Parameters
    ----------
    values
        A profile of your own as well: FILE[:COLUMN]; owners are drawn from it with replacement.
    owners
        How many owners each draw has.
    draws
        How often all owners' values are drawn for each profile.
    deviation_draws
        On how many draws misreports and several names are searched for; 0 for none.
    seed
        Where the draws start: the same seed gives the same tables.
    gain
        What perfect training is worth to the buyer, G; several separated by commas.
    sampling
        The variance of an owner's updates without noise, s; several separated by commas.
    noise_factor
        What a budget of 1 leaves of noise, a; with --train that of the training.
    reward
        The most that may be spent, R, or `best`.
    lot
        The budget of a lot, or `best`.
    train
        Train for real with the budgets bought, on these data: as for `fedbourse demo`.
    training_draws
        With how many draws to train.
    noise_coefficient
        What all noise counts for; `fedbourse study calibrate` fits it.
    """
    from fedbourse.figures import need_matplotlib
    from fedbourse.lab.figure import draw_lab

    need_matplotlib()
    task = None
    if train is not None:
        options = TaskOptions(data=train, samples=samples, rounds=rounds, step_size=step_size)
        task = options.task()
    people = [
        LabBuyer(
            gain=number("gain", g, above=0),
            sampling=number("sampling", s, above=0),
            noise_factor=noise_factor,
            reward=number_or_best("reward", reward),
            lot=number_or_best("lot", lot),
        )
        for g in numbers("gain", gain, example="5,10")
        for s in numbers("sampling", sampling, example="0.1,1,10")
    ]
    places: list[str | ValueProfile] = [*_names(profiles, list(PROFILES))]
    if values is not None:
        column = positive("values", read_column(values, "value", "values"))
        places.append(profile_of_values(column))
    with output_folder(out):
        with progress_bar("rows") as advance:
            record = run_lab(
                mechanisms=_names(mechanisms, list(MECHANISMS)),
                profiles=places,
                buyers=people,
                owners=whole_number("owners", owners, at_least=2),
                draws=whole_number("draws", draws, at_least=2),
                deviation_draws=whole_number("deviation_draws", deviation_draws, at_least=0),
                seed=whole_number("seed", seed, at_least=0),
                training=task,
                noise_coefficient=noise_coefficient,
                training_draws=whole_number("training_draws", training_draws, at_least=2),
                progress=advance,
            )
        files = write_lab(record, out) + draw_lab(record, out)
    document = {
        "version": __version__,
        **record.to_dict(),
        "broken": record.broken,
        "files": [str(file) for file in files],
    }
    output.show(document, lambda _: _in_words(record, len(files), out))
    record.check()


def _names(text: str, everything: list[str]) -> list[str]:
    if text == "none":
        return []
    return everything if text == "all" else [name.strip() for name in text.split(",")]


def _in_words(record: LabRecord, files: int, out: Path) -> Blocks:
    measured = any(row.accuracy is not None for row in record.rows)
    for (profile, buyer), rows in by_place(record.rows).items():
        shown = [cells(row) for row in rows]
        heads = [head for head in shown[0] if measured or head != "accuracy"]
        yield f"{profile}, {buyer}"
        yield table(shown, {head: itemgetter(head) for head in heads})
        yield ""
    names = dict.fromkeys(row.mechanism for row in record.rows)
    if facts := {name: PUBLISHED[name] for name in names if name in PUBLISHED}:
        yield "Published, for comparison:"
        yield facts
        yield ""
    yield (
        f"Means of {record.draws} draws of {record.owners} owners, seed {record.seed}. Gains are "
        f"the largest found on {record.deviation_draws} draws: a search, not a proof."
    )
    yield f"{files} files in {out}"
