"""What the studies that train for real have in common on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter
from rich.table import Table

from fedbourse.units import number, whole_number

if TYPE_CHECKING:
    from fedbourse.study.trials import Task

TASK, STUDY = (Group.create_ordered(name) for name in ("Task", "Study"))

Data = Annotated[str, Parameter(group=TASK)]
Number = Annotated[float, Parameter(group=TASK)]
Maybe = Annotated[float | None, Parameter(group=TASK)]
Text = Annotated[str | None, Parameter(group=TASK)]
Json = Annotated[bool, Parameter(name="--json", negative=(), group=STUDY)]


def study_task(
    *,
    data: str,
    owners: float,
    samples: float | None,
    model: str | None,
    rounds: float,
    step_size: float,
) -> Task:
    """Return the task that the options describe."""
    from fedbourse.study.trials import Task

    return Task(
        data=data,
        owners=whole_number("owners", owners, at_least=2),
        samples=None if samples is None else whole_number("samples", samples, at_least=1),
        model=model,
        rounds=whole_number("rounds", rounds, at_least=1),
        step_size=number("step_size", step_size, above=0),
    )


def plain_table(*names: str) -> Table:
    """Return a table without lines, its columns aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table
