"""Where ``fedbourse solve`` gets owners from, and how it lists those who take part."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fedbourse.cli.option_values import low_and_high
from fedbourse.errors import InvalidGame, InvalidInput
from fedbourse.files import owners_in
from fedbourse.files.column_file import read_column, read_names, split_spec
from fedbourse.files.values import is_streamed
from fedbourse.game import Chunk, Equilibrium, Stream, Training, Uniform
from fedbourse.game.columns import FloatArray, positive
from fedbourse.privacy import DELTA, epsilon
from fedbourse.units import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from fedbourse.game.profile import Profile

LISTED = 10**6
"""How many of a stream's participants are listed."""


@dataclass(frozen=True)
class OwnerColumns:
    """The owners' values: a column, or a stream; and what owners are called, if that is known."""

    data: Stream | npt.NDArray[Any]
    named: bool = False
    names: list[Any] | None = None
    """Of a column's owners."""


def owners_of(
    values: str | None, uniform: str | None, owners: float | None, seed: float, names: str | None
) -> OwnerColumns:
    """Return the owners that the options give."""
    if (values is None) == (uniform is None):
        raise InvalidInput("give the owners' values by one of --values and --uniform")
    if values is None:
        if names is not None:
            raise InvalidInput("--names goes with --values; values that are drawn have no names")
        return OwnerColumns(_drawn(str(uniform), owners, seed))
    if owners is not None:
        raise InvalidInput("--owners goes with --uniform; a file says itself how many there are")
    path, column = split_spec(values)
    if is_streamed(path):
        return OwnerColumns(owners_in(path, column=column, names=names), named=names is not None)
    column_values = positive("values", read_column(values, "value", "values"))
    owner_names = None if names is None else read_names(path, names)
    return OwnerColumns(column_values, named=names is not None, names=owner_names)


def _drawn(uniform: str, owners: float | None, seed: float) -> npt.NDArray[Any]:
    ends = low_and_high(uniform)
    if owners is None:
        raise InvalidInput("--uniform needs --owners, the number of values to draw")
    count = whole_number("owners", owners, at_least=2, error=InvalidGame)
    if count > 10**10:
        raise InvalidGame(f"owners must be at most 1e10; found {count:g}")
    rng = np.random.default_rng(whole_number("seed", seed, at_least=0))
    return Uniform(*ends).rvs(size=(count,), random_state=rng)


@contextmanager
def shown_while_read(owners: OwnerColumns) -> Iterator[Stream | npt.NDArray[Any]]:
    """Yield the values; while a stream is read, a terminal shows how far."""
    if not isinstance(owners.data, Stream):
        yield owners.data
        return
    stream, console = owners.data, Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task, reading = progress.add_task("reading", total=None), 0

        def read() -> Iterator[Chunk]:
            nonlocal reading
            reading, rows = reading + 1, 0
            for chunk in stream.chunks():
                rows += len(np.asarray(chunk.values))
                progress.update(task, description=f"reading {reading}: {rows:,} rows")
                yield chunk

        yield Stream(read, again=stream.again)


def listed(
    owners: OwnerColumns, solution: Equilibrium, training: Training, largest: int | None
) -> tuple[list[dict[str, Any]], str]:
    """Return participants in order, or some with the largest budgets, these first.

    Those of a stream may be too many: then there are none, and a sentence says why.
    """
    if not isinstance(owners.data, Stream):
        return _rows(owners, solution, solution.profile(), training, largest), ""
    if solution.count > LISTED:
        return [], (
            f"those who take part are not listed, as they are more than {LISTED}: "
            "Equilibrium.budgets_of, in Python, reads them out chunk by chunk"
        )
    try:
        profile = solution.profile()
    except InvalidGame as error:
        return [], f"those who take part are not listed: {error}"
    return _rows(owners, solution, profile, training, largest), ""


def _rows(
    owners: OwnerColumns,
    solution: Equilibrium,
    profile: Profile,
    training: Training,
    largest: int | None,
) -> list[dict[str, Any]]:
    some: Any = slice(None) if largest is None else np.argsort(-profile.budgets)[:largest]
    places, budgets = profile.participants[some], profile.budgets[some]
    fields = {
        "index": places,
        **_names(owners, solution, some),
        "value": _values(owners, solution)[some],
        "budget": budgets,
        "payment": profile.payments[some],
        "utility": profile.utilities[some],
        "noise_scale": training.noise_scale(budgets, places),
        "epsilon": epsilon(rho=budgets, delta=DELTA),
    }
    columns = [c.tolist() if isinstance(c, np.ndarray) else c for c in fields.values()]
    return [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]


def _names(owners: OwnerColumns, solution: Equilibrium, some: Any) -> dict[str, list[Any]]:
    """Return what participants are called: by name, or by file and row."""
    chosen = np.arange(len(solution.participants))[some].tolist()
    if owners.names is not None:
        return {"name": [_plain(owners.names[solution.participants[i]]) for i in chosen]}
    if not isinstance(owners.data, Stream):
        return {}
    who = solution.who
    if owners.named:
        return {"name": [_plain(who[i]) for i in chosen]}
    return {"file": [who[i][0] for i in chosen], "row": [who[i][1] for i in chosen]}


def _plain(name: Any) -> Any:
    return name if isinstance(name, (str, int)) else str(name)


def _values(owners: OwnerColumns, solution: Equilibrium) -> FloatArray:
    """Return the value of every participant."""
    if not isinstance(owners.data, Stream):
        column: FloatArray = owners.data[solution.participants]
        return column
    if not solution.count:
        return np.empty(0)
    return np.concatenate([block[solution.budgets_of(block) > 0] for block in solution.values()])
