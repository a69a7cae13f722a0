"""The figure of the study: what each deviation gained before the rules, and gains now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.figures import STYLE, need_matplotlib, pyplot, save_figure
from fedbourse.study.deviations.tables import gains

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from fedbourse.study.deviations.findings import DeviationFinding

_BEFORE, _AFTER = "#999999", "#D55E00"


def draw_deviations(findings: Sequence[DeviationFinding], folder: Path) -> list[Path]:
    """Write the figure as SVG and PNG; return the files."""
    plt = need_matplotlib()
    with plt.rc_context(STYLE):
        figure = deviations_figure(findings)
        written = save_figure(figure, folder / "deviations", "deviations")
        plt.close(figure)
    return written


def deviations_figure(findings: Sequence[DeviationFinding]) -> Figure:
    """Return owners' and the buyer's gains as one figure."""
    plt = pyplot()
    panels = [
        ("owners: utility gained, credits", [f for f in findings if f.case.party != "buyer"]),
        (
            "buyer: saved on the same budget, credits",
            [f for f in findings if f.case.party == "buyer"],
        ),
    ]
    panels = [panel for panel in panels if panel[1]]
    with plt.rc_context(STYLE):
        figure: Figure
        figure, grid = plt.subplots(
            len(panels),
            1,
            figsize=(7.2, 1.2 + 0.3 * len(findings)),
            layout="constrained",
            squeeze=False,
            height_ratios=[len(rows) for _, rows in panels],
        )
        for axes, (label, rows) in zip(grid[:, 0], panels, strict=True):
            keys, before, after = zip(*gains(rows), strict=True)
            places = range(len(keys))
            axes.barh(
                [p - 0.2 for p in places], before, 0.4, color=_BEFORE, label="before the rules"
            )
            axes.barh([p + 0.2 for p in places], after, 0.4, color=_AFTER, label="after")
            axes.set_yticks(list(places), [key.replace("-", " ") for key in keys], fontsize=7)
            axes.invert_yaxis()
            axes.set_xlabel(label)
            for place, numbers in zip(places, zip(before, after, strict=True), strict=True):
                for number, offset in zip(numbers, (-0.2, 0.2), strict=True):
                    axes.annotate(
                        f"{number:.2f}" if number else "0",
                        (number, place + offset),
                        xytext=(2, 0),
                        textcoords="offset points",
                        va="center",
                        fontsize=6,
                    )
        grid[0, 0].legend(fontsize=7, loc="lower right")
        figure.supxlabel(
            "R = 10; the best that search found, against the market's own commands", fontsize=7
        )
    return figure
