"""What the studies that train for real have in common on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from fedbourse.cli.option_values import Model, Rounds, Samples, StepSize, Whole, count_or_none
from fedbourse.cli.output import OUTPUT
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from fedbourse.study.trials import Mean, TrialTask

TASK, STUDY = (Group.create_ordered(name) for name in ("Task", "Study"))
_FOLDER_HELP = "The folder to write to; it is made if need be."
SeedCount = Annotated[Whole, Parameter(group=STUDY, help="How many seeds.")]
FirstSeed = Annotated[Whole, Parameter(group=STUDY, help="The first seed.")]
Folder = Annotated[Path, Parameter(group=OUTPUT, help=_FOLDER_HELP)]


@Parameter(name="*", group=TASK)
@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What is trained.

    Parameters
    ----------
    data
        As for `fedbourse demo`: flights, mnist, sklearn:digits, synthetic[:KEY=NUMBER,...], a
        file...
    owners
        How many owners are interested; their values are uniform on [1, 5].
    """

    data: str = "flights"
    owners: Whole = 100
    samples: Samples = None
    model: Model = None
    rounds: Rounds = 50
    step_size: StepSize = 1.0

    def task(self) -> TrialTask:
        """Return the task that the options describe."""
        from fedbourse.study.trials import TrialTask

        return TrialTask(
            data=self.data,
            owners=whole_number("owners", self.owners, at_least=2),
            samples=count_or_none("samples", self.samples),
            model=self.model,
            rounds=whole_number("rounds", self.rounds, at_least=1),
            step_size=number("step_size", self.step_size, above=0),
        )


@Parameter(name="*", group=TASK)
@dataclass(frozen=True, kw_only=True)
class DigitsOptions(TaskOptions):
    """The same for a study that is about digits if not told otherwise."""

    __doc__ = TaskOptions.__doc__
    data: str = "sklearn:digits"
    owners: Whole = 40
    step_size: StepSize = 2.0


@Parameter(name="*", group=TASK)
@dataclass(frozen=True, kw_only=True)
class EvidenceOptions(TaskOptions):
    """The same for as many owners as the demo has."""

    __doc__ = TaskOptions.__doc__
    owners: Whole = 200


def percent(mean: Mean) -> str:
    """Return a mean accuracy with the margin of its interval."""
    return f"{mean.value:.1%} ± {100 * mean.margin:.1f}"
