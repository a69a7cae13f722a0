"""The rows as flat records, and as the tables of the command and of the theory page."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fedbourse.study.trials import Mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fedbourse.study.evidence.outcomes import EvidenceRow

    Columns = dict[str, Callable[[EvidenceRow], str]]

TITLES = {
    "attacks": "Attacks by a device that sells most of the budget",
    "ordinary-budgets": "Attacks by a third of the devices, which have the mean budget",
    "attacks-by-class": "Attacks by a device that sells most of the budget; any-class-mixture",
    "honest-owners": "Honest owners who differ; everybody is watched",
    "budget": "Power over the budget: a third of the devices have it",
    "reference": "Power over the number of reference records",
    "rounds": "Power over the number of rounds",
    "k0": "Power over k0",
}
_VERDICTS: Columns = {
    "shown": lambda row: f"{row.shown:.0%}",
    "dis-\nmissed": lambda row: f"{row.dismissed:.0%}",
    "unde-\ncided": lambda row: f"{row.undecided:.0%}",
    "in\nround": lambda row: _round(row.dismissal_round),
    "ever\nshown": lambda row: f"{row.ever_shown:.0%}",
    "z": lambda row: f"{row.score.value:.1f}",
}
_ACCURACY: Columns = {
    "accuracy\nwithout": lambda row: _percent(row.accuracy_without),
    "accuracy\nwith": lambda row: _percent(row.accuracy_with),
}
_OTHERS: Columns = {
    "others\ndismissed": lambda row: _part(row.others_dismissed),
    "others'\npay lost": lambda row: _part(row.others_pay_lost),
}
_STANDS: Columns = {"stands": lambda row: f"{row.stands:.0%}"}
_ATTACKS: Columns = {
    "what it sends": lambda row: row.sends,
    **_VERDICTS,
    "echo\nz": lambda row: f"{row.echo_score.value:.1f}",
    "pay\nwithout": lambda row: f"{row.pay_share.value:.0%}",
    "pay\nwith": lambda row: f"{row.earned_share.value:.0%}",
    "weight\nwith": lambda row: f"{row.weight_with.value:.0%}",
    **_ACCURACY,
    **_OTHERS,
    **_STANDS,
    "without\nbest": lambda row: f"{row.stands_without_best:.0%}",
    "by\nrest": lambda row: f"{row.stands_by_rest:.0%}",
    "half of\nbudget": lambda row: f"{row.half_of_budget:.0%}",
}
_POINTS: Columns = {
    "at": lambda row: row.point,
    "sends": lambda row: row.sends,
    "rho": lambda row: f"{row.budget.value:.3g}",
    "W": lambda row: f"{row.variance.value:.3g}",
    **_VERDICTS,
    "first\nshown": lambda row: _round(row.show_round),
    "pay\nwithout": lambda row: f"{row.pay_share.value:.0%}",
    "pay\nwith": lambda row: f"{row.earned_share.value:.0%}",
    "weight\nwith": lambda row: f"{row.weight_with.value:.0%}",
    **_ACCURACY,
    "others\ndismissed": _OTHERS["others\ndismissed"],
    **_STANDS,
}
_HONEST: Columns = {
    "population": lambda row: row.population,
    "owners": lambda row: row.point,
    **_VERDICTS,
    "pay\nwith": lambda row: f"{row.earned_share.value:.0%}",
    **_ACCURACY,
    **_STANDS,
}
COLUMNS: dict[str, Columns] = {
    "attacks": _ATTACKS,
    "ordinary-budgets": _ATTACKS,
    "attacks-by-class": _ATTACKS,
    "honest-owners": _HONEST,
    **dict.fromkeys(("budget", "reference", "rounds", "k0"), _POINTS),
}
"""What is shown of each sweep's rows, by the head of the column."""


def by_sweep(rows: Sequence[EvidenceRow]) -> Iterator[tuple[str, list[EvidenceRow]]]:
    """Yield each sweep's name with its rows."""
    for sweep, group in groupby(rows, key=lambda row: row.sweep):
        yield sweep, list(group)


def markdown(rows: Sequence[EvidenceRow]) -> str:
    """Return the tables of the theory page."""
    lines: list[str] = []
    for sweep, group in by_sweep(rows):
        columns = COLUMNS[sweep]
        heads = [head.replace("-\n", "").replace("\n", " ") for head in columns]
        lines += [f"**{TITLES[sweep]}**", "", _cells(heads), "|---" * len(heads) + "|"]
        lines += [_cells([cell(row) for cell in columns.values()]) for row in group]
        lines.append("")
    return "\n".join(lines)


def evidence_record(row: EvidenceRow) -> dict[str, Any]:
    """Return a row as one flat record: a mean as NAME, and NAME_margin."""
    record: dict[str, Any] = {}
    for name, value in asdict(row).items():
        mean = getattr(row, name)
        if isinstance(mean, Mean):
            record |= {name: mean.value, f"{name}_margin": mean.margin}
        else:
            record[name] = value
    return record


def _round(mean: float | None) -> str:
    return "-" if mean is None else f"{mean:.1f}"


def _part(part: float | None) -> str:
    return "-" if part is None else f"{part:.0%}"


def _percent(mean: Mean) -> str:
    return f"{mean.value:.1%} ± {100 * mean.margin:.1f}"


def _cells(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
