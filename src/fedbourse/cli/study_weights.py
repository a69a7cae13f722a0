"""``fedbourse study weights``: whom precision weights listen to."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console

from fedbourse.cli.option_values import Whole  # noqa: TC001 - cyclopts reads it
from fedbourse.cli.progress import progress_bar
from fedbourse.cli.study_task import STUDY, DigitsOptions, Json, plain_table
from fedbourse.units import whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from fedbourse.study.weights import WeightsRow


def weights(
    *,
    options: DigitsOptions = DigitsOptions(),
    seeds: Annotated[Whole, Parameter(group=STUDY)] = 20,
    seed: Annotated[Whole, Parameter(group=STUDY)] = 0,
    as_json: Json = False,
) -> None:
    """Show whom precision weights listen to, on owners whose records differ.

    Owners alike, skewed and very skewed, at a small and a large reward, both weightings: accuracy
    on the buyer's records, and on the records of the better and the worse paid participants.

    Examples:

        fedbourse study weights

        fedbourse study weights --data flights --owners 100 --step-size 1 --json

    Parameters
    ----------
    seeds
        How many seeds.
    seed
        The first seed.
    as_json
        Print one JSON document with every row.
    """
    from fedbourse.study.weights import run_weights_study

    task = options.task()
    count = whole_number("seeds", seeds, at_least=2)
    first = whole_number("seed", seed, at_least=0)
    with progress_bar("federations") as advance:
        rows = run_weights_study(task, seeds=count, first_seed=first, progress=advance)
    if as_json:
        document = {
            "version": __version__,
            "task": asdict(task),
            "seed": first,
            "seeds": count,
            "rows": [asdict(row) for row in rows],
        }
        print(json.dumps(document, allow_nan=False))
    else:
        _print_weights(rows, count)


def _print_weights(rows: list[WeightsRow], seeds: int) -> None:
    console = Console()
    table = plain_table(
        "owners' records", "reward", "weights", "buyer's", "best paid half", "least paid half"
    )
    for row in rows:
        table.add_row(
            row.partition,
            f"{row.factor:g}",
            row.weights,
            *(
                f"{mean.value:.1%} ± {100 * mean.margin:.1f}"
                for mean in (row.buyer, row.best_paid, row.least_paid)
            ),
        )
    console.print(table)
    top = {row.weights: row.top_weight for row in rows}
    console.print(
        f"\nAccuracy on three sets of records, {seeds} seeds, 95 % intervals; rewards in turning "
        f"rewards. The best paid owner weighs {top['precision']:.0%} by precision, "
        f"{top['equal']:.0%} where all weigh the same.",
        highlight=False,
        soft_wrap=True,
    )
