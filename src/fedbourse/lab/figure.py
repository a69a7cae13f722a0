"""The lab's figure: what the buyer and the owners have of each mechanism, for print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.figures import STYLE, need_matplotlib, save_figure
from fedbourse.lab.tables import by_place

if TYPE_CHECKING:
    from pathlib import Path

    from fedbourse.lab.rows import LabRecord

_BUYER, _OWNERS, _GAIN = "#0072B2", "#E69F00", "#D55E00"


def draw_lab(record: LabRecord, folder: Path) -> list[Path]:
    """Write the figure as SVG and PNG, one line of panels for each profile and buyer."""
    plt = need_matplotlib()
    places = by_place(record.rows)
    longest = max(len(rows) for rows in places.values())
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(places),
            2,
            figsize=(7.2, len(places) * (0.7 + 0.28 * longest)),
            layout="constrained",
            squeeze=False,
        )
        for (left, right), ((profile, buyer), rows) in zip(grid, places.items(), strict=True):
            spots = range(len(rows))
            names = [row.mechanism for row in rows]
            left.barh(
                spots,
                [row.buyer_utility for row in rows],
                xerr=[1.96 * row.buyer_utility_error for row in rows],
                color=_BUYER,
                error_kw={"linewidth": 0.8},
            )
            left.set_yticks(list(spots), names, fontsize=7)
            left.set_title(f"{profile}, {buyer}", fontsize=8, loc="left")
            right.barh([s - 0.2 for s in spots], [row.owners_utility for row in rows], 0.4,
                       color=_OWNERS, label="owners together")  # fmt: skip
            right.barh([s + 0.2 for s in spots], [row.misreport_gain or 0.0 for row in rows], 0.4,
                       color=_GAIN, hatch="///", label="best gain by lying")  # fmt: skip
            right.set_yticks(list(spots), [""] * len(rows))
            for axes in (left, right):
                axes.invert_yaxis()
        grid[-1, 0].set_xlabel("buyer's utility")
        grid[-1, 1].set_xlabel("owners' utility; gain by lying")
        grid[0, 1].legend(fontsize=7)
        figure.supxlabel(
            f"means of {record.draws} draws of {record.owners} owners, seed {record.seed}; "
            "intervals are 95 %",
            fontsize=7,
        )
        written = save_figure(figure, folder / "lab", "lab")
        plt.close(figure)
    return written
