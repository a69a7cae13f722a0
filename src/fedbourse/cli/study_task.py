"""What the studies that train for real have in common on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter
from rich.table import Table

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from fedbourse.study.trials import Task

TASK, STUDY = (Group.create_ordered(name) for name in ("Task", "Study"))

Json = Annotated[bool, Parameter(name="--json", negative=(), group=STUDY)]


@Parameter(name="*", group=TASK)
@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What is trained.

    Parameters
    ----------
    data
        As for `fedbourse demo`: flights, sklearn:digits, synthetic[:KEY=NUMBER,...], a file...
    owners
        How many owners are interested; their values are uniform on [1, 5].
    samples
        Records behind each owner's answers; by default what suits the data.
    model
        logistic, softmax, least-squares or hidden:UNITS; by default what suits the data.
    rounds
        How many rounds of training.
    step_size
        The step size of training.
    """

    data: str = "flights"
    owners: Whole = 100
    samples: Whole | None = None
    model: str | None = None
    rounds: Whole = 50
    step_size: float = 1.0

    def task(self) -> Task:
        """Return the task that the options describe."""
        from fedbourse.study.trials import Task

        samples = self.samples
        return Task(
            data=self.data,
            owners=whole_number("owners", self.owners, at_least=2),
            samples=None if samples is None else whole_number("samples", samples, at_least=1),
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
    step_size: float = 2.0


def plain_table(*names: str) -> Table:
    """Return a table without lines, its columns aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table
