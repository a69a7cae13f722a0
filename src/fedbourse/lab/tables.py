"""The lab's rows as files: CSV for programs, Markdown for pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.lab.rows import row_document
from fedbourse.study.tables import write_rows
from fedbourse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from fedbourse.lab.rows import LabRecord, LabRow

_HEADS = (
    "mechanism", "budget", "of first best", "spend", "sellers", "buyer's utility",
    "owners' utility", "gain by lying", "by several names", "accuracy",
)  # fmt: skip


def write_lab(record: LabRecord, folder: Path) -> list[Path]:
    """Write lab.csv, every row with what it takes to get it again, and lab.md."""
    source = {
        "owners": record.owners,
        "draws": record.draws,
        "seed": record.seed,
        "version": __version__,
    }
    rows = (row_document(row) | {"broken": "; ".join(row.broken)} | source for row in record.rows)
    markdown = folder / "lab.md"
    markdown.write_text("\n".join(markdown_lines(record.rows)) + "\n", encoding="utf-8")
    return [write_rows(folder / "lab.csv", rows), markdown]


def by_place(rows: Iterable[LabRow]) -> dict[tuple[str, str], list[LabRow]]:
    """Return rows by profile and buyer, in order."""
    places: dict[tuple[str, str], list[LabRow]] = {}
    for row in rows:
        places.setdefault((row.profile, row.buyer), []).append(row)
    return places


def markdown_lines(rows: Iterable[LabRow]) -> Iterator[str]:
    """Yield one table for each profile and buyer."""
    for (profile, buyer), members in by_place(rows).items():
        measured = any(row.accuracy is not None for row in members)
        heads = _HEADS if measured else _HEADS[:-1]
        yield from ("", f"**{profile}, {buyer}**", "", f"| {' | '.join(heads)} |")
        yield "|---|" + "---:|" * (len(heads) - 1)
        for row in members:
            yield f"| {' | '.join(list(cells(row).values())[: len(heads)])} |"


def cells(row: LabRow) -> dict[str, str]:
    """Return a row as people read it."""
    gains = ["-" if g is None else f"{g:.4f}" for g in (row.misreport_gain, row.names_gain)]
    accuracy = row.accuracy
    texts = (
        row.mechanism,
        f"{row.budget:.4g}",
        f"{row.first_best:.2f}",
        f"{row.spend:.4f}",
        f"{row.sellers:.1f}",
        f"{row.buyer_utility:.3f} ± {row.buyer_utility_error:.3f}",
        f"{row.owners_utility:.4f}",
        *gains,
        "-" if accuracy is None else f"{accuracy.value:.1%} ± {100 * accuracy.margin:.1f}",
    )
    return dict(zip(_HEADS, texts, strict=True))
