"""``fedbourse study aggregation``: whom aggregation by precision listens to."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from fedbourse.cli.output import PEOPLE, Blocks, Output, progress_bar, table
from fedbourse.cli.study_task import DigitsOptions, FirstSeed, SeedCount, percent
from fedbourse.units import whole_number
from fedbourse.version import __version__

if TYPE_CHECKING:
    from fedbourse.study.aggregation import AggregationStudy


def aggregation(
    *,
    options: DigitsOptions = DigitsOptions(),
    seeds: SeedCount = 20,
    seed: FirstSeed = 0,
    output: Output = PEOPLE,
) -> None:
    """Show whom aggregation by precision listens to, on owners whose records differ.

    Owners alike, skewed and very skewed, at a small and a large reward, both aggregations: accuracy
    on the buyer's records, and on the records of the better and the worse paid participants.

    For example:

        fedbourse study aggregation

        fedbourse study aggregation --data flights --owners 100 --step-size 1 --json
    """
    from fedbourse.study.aggregation import aggregation_study

    task = options.task()
    count = whole_number("seeds", seeds, at_least=2)
    first = whole_number("seed", seed, at_least=0)
    with progress_bar("federations") as advance:
        rows = aggregation_study(task, seeds=count, first_seed=first, progress=advance)
    document = {
        "version": __version__,
        "task": asdict(task),
        "seed": first,
        "seeds": count,
        "rows": [asdict(row) for row in rows],
    }
    output.show(document, lambda _: _in_words(rows, count))


def _in_words(rows: AggregationStudy, seeds: int) -> Blocks:
    yield table(
        rows,
        {
            "owners' records": lambda row: row.partition,
            "reward": lambda row: f"{row.factor:g}",
            "aggregation": lambda row: row.aggregation,
            "buyer's": lambda row: percent(row.buyer),
            "best paid half": lambda row: percent(row.best_paid),
            "least paid half": lambda row: percent(row.least_paid),
        },
    )
    top = {row.aggregation: row.top_weight for row in rows}
    yield ""
    yield (
        f"Accuracy on three sets of records, {seeds} seeds, 95 % intervals; rewards in turning "
        f"rewards. The best paid owner weighs {top['precision']:.0%} by precision, "
        f"{top['equal']:.0%} where all weigh the same."
    )
