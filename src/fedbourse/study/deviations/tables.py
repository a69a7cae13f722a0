"""The findings as flat records, and as the tables of the theory page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fedbourse.study.deviations.cases import Party
    from fedbourse.study.deviations.findings import DeviationFinding, DeviationResult

_OWNERS: tuple[tuple[Party, str], ...] = (
    ("owner", "an owner"),
    ("owners", "all owners together"),
)
_OWNERS_HEAD = (
    "| {} | market | as intended | before | **after** | why a gain is left |",
    "|---|---|---|---|---|---|",
)
_BUYER_HEAD = (
    "| the buyer | before | **after** | owners' utility before | after | why a gain is left |",
    "|---|---|---|---|---|---|",
)


def finding_row(finding: DeviationFinding) -> dict[str, object]:
    """Return a finding as one flat record; amounts are in credits, budgets in rho."""
    case, before, after = finding.case, finding.before, finding.after
    return {
        "key": case.key,
        "party": case.party,
        "deviation": case.deviation,
        "market": case.where,
        "reference": case.reference,
        "intended": amount(finding, finding.intended),
        "before": None if before is None else amount(finding, before),
        "after": amount(finding, after),
        "gain_before": None if before is None else before.gain,
        "gain_after": after.gain,
        "owners_utility_intended": finding.intended.owners_utility,
        "owners_utility_before": None if before is None else before.owners_utility,
        "owners_utility_after": after.owners_utility,
        "sold_before": None if before is None else before.sold,
        "sold_after": after.sold,
        "choices_before": None if before is None else choices(finding, before),
        "choices_after": choices(finding, after),
        "refusal": after.refusals[0] if after.refusals else "",
        "remains": case.remains,
        "plays": after.plays,
    }


def amount(finding: DeviationFinding, result: DeviationResult) -> float:
    """Return a score as people read it: a utility, or what the buyer pays."""
    return -result.score if finding.case.party == "buyer" else result.score


def choices(finding: DeviationFinding, result: DeviationResult) -> str:
    """Return what the deviator chose: each number by its name."""
    pairs = zip(finding.case.axes, result.point, strict=False)
    return ", ".join(f"{axis.name} {number:.4g}" for axis, number in pairs)


def markdown(findings: Sequence[DeviationFinding]) -> str:
    """Return the tables of the theory page."""
    parties: dict[Party, list[DeviationFinding]] = {}
    for finding in findings:
        parties.setdefault(finding.case.party, []).append(finding)
    lines: list[str] = []
    for party, title in _OWNERS:
        head = [_OWNERS_HEAD[0].format(title), _OWNERS_HEAD[1]]
        lines += [*head, *map(_owner_line, parties.get(party, ())), ""]
    lines += [*_BUYER_HEAD, *map(_buyer_line, parties.get("buyer", ()))]
    return "\n".join(lines) + "\n"


def _owner_line(finding: DeviationFinding) -> str:
    case, reference = finding.case, ""
    if case.reference != "honest":
        reference = f" ({case.reference})"
    return _cells(
        case.deviation,
        case.where,
        f"{amount(finding, finding.intended):.3f}{reference}",
        _best_amount(finding, finding.before),
        f"**{_best_amount(finding, finding.after)}**",
        case.remains,
    )


def _buyer_line(finding: DeviationFinding) -> str:
    before = finding.before
    return _cells(
        finding.case.deviation,
        _best_amount(finding, before),
        f"**{_best_amount(finding, finding.after)}**",
        "-" if before is None else f"{before.owners_utility:.2f}",
        f"{finding.after.owners_utility:.2f}",
        finding.case.remains,
    )


def _best_amount(finding: DeviationFinding, result: DeviationResult | None) -> str:
    """Return the best amount, or that nothing was better."""
    if result is None:
        return "-"
    return f"{amount(finding, result):.3f}" if result.gain else "no gain"


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def gains(findings: Iterable[DeviationFinding]) -> list[tuple[str, float, float]]:
    """Return each case with its gain before and after, in credits."""
    return [
        (each.case.key, each.before.gain if each.before else 0.0, each.after.gain)
        for each in findings
    ]
