"""The study's numbers as CSV files that say how to get them again."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from fedbourse.study.paper import METRICS, PaperOutcome, PaperStudy
from fedbourse.study.trials import Mean
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from fedbourse.study.claims import Verdict
    from fedbourse.study.ratchet import RatchetRow
    from fedbourse.study.unknown_values import RegretRow


def write_tables(study: PaperStudy, verdicts: Sequence[Verdict], folder: Path) -> list[Path]:
    """Write means, single draws and verdicts; every row carries the version and the seed."""
    source = {"version": __version__, "seed": study.seed, "draws": study.draws}
    return [
        write_rows(folder / "summary.csv", (o.summary() | source for o in study.outcomes)),
        write_rows(
            folder / "draws.csv", (row | source for o in study.outcomes for row in _rows(o))
        ),
        write_rows(folder / "verdicts.csv", (verdict_row(v) | source for v in verdicts)),
    ]


def verdict_row(verdict: Verdict) -> dict[str, object]:
    """Return a verdict as one flat record."""
    return {
        "claim": verdict.claim.text,
        "metric": verdict.claim.metric,
        "sweep": verdict.claim.sweep,
        "model": verdict.model,
        "verdict": verdict.word,
        "test": verdict.test,
        "first": verdict.first,
        "last": verdict.last,
        "tau": verdict.tau,
        "p_value": verdict.p_value,
    }


def _rows(outcome: PaperOutcome) -> Iterable[dict[str, object]]:
    for i in range(len(outcome.metrics["participants"])):
        yield outcome.key | {"draw": i} | {n: float(outcome.metrics[n][i]) for n in METRICS}


def mean_row(record: RegretRow | RatchetRow) -> dict[str, object]:
    """Return a record as one flat row: each mean is followed by its margin."""
    row: dict[str, object] = {}
    for name, entry in vars(record).items():
        if isinstance(entry, Mean):
            row |= {name: entry.value, f"{name}_margin": entry.margin}
        else:
            row[name] = entry
    return row


def write_rows(path: Path, rows: Iterable[dict[str, object]]) -> Path:
    """Write records that all have the same keys as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
            writer.writerow(row)
    return path
