"""The paper's six panels, drawn in one style for print and for every kind of colour vision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedbourse.figures import STYLE, look_of, need_matplotlib, pyplot, save_figure
from fedbourse.study.paper import SWEEPS, PaperOutcome, PaperStudy, Sweep

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {
    "participants": "participants",
    "server_utility": "server's utility",
    "user_utility": "users' utility, model 'paper'",
}


def draw_panels(study: PaperStudy, folder: Path) -> list[Path]:
    """Write each panel and the overview of all six as SVG and PNG; return the files."""
    plt = need_matplotlib()
    written: list[Path] = []
    with plt.rc_context(STYLE):
        for metric in _LABELS:
            for sweep in SWEEPS:
                figure, axes = plt.subplots(figsize=(3.5, 2.8), layout="constrained")
                _panel(axes, study, metric, sweep)
                figure.supxlabel(_caption(study), fontsize=7)
                written += save_figure(figure, folder / f"{metric}_by_{sweep.name}")
                plt.close(figure)
        figure = _overview(plt, study)
        written += save_figure(figure, folder / "overview")
        plt.close(figure)
    return written


def overview(study: PaperStudy) -> Figure:
    """Return all six panels as one figure."""
    plt = pyplot()
    with plt.rc_context(STYLE):
        return _overview(plt, study)


def _overview(plt: Any, study: PaperStudy) -> Figure:
    figure: Figure
    figure, grid = plt.subplots(3, 2, figsize=(7.2, 8.2), layout="constrained")
    for row, metric in zip(grid, _LABELS, strict=True):
        for axes, sweep in zip(row, SWEEPS, strict=True):
            _panel(axes, study, metric, sweep)
    for letter, axes in zip("abcdef", grid.flat, strict=True):
        axes.set_title(f"({letter})", fontsize=9, loc="left")
    figure.supxlabel(_caption(study), fontsize=7)
    return figure


def _caption(study: PaperStudy) -> str:
    return f"lines: means of {study.draws} draws, seed {study.seed}; bands: 10th to 90th percentile"


def _panel(axes: Axes, study: PaperStudy, metric: str, sweep: Sweep) -> None:
    paper = study.along(sweep.name, "paper")
    if metric == "server_utility":
        for model in study.models:
            _line(axes, study.along(sweep.name, model), metric, label=model, look=model)
        # The same scale in both panels, with room for the legend below the lines.
        rows = [o.metrics[metric] for o in study.outcomes]
        low, high = np.quantile(rows, 0.1, axis=1).min(), np.quantile(rows, 0.9, axis=1).max()
        axes.set_ylim(low - 0.3 * (high - low), high + 0.05 * (high - low))
        axes.legend(fontsize=7, ncols=2, loc="lower center")
    elif metric == "user_utility":
        _line(axes, paper, "user_utility", label="mean of all users", look="mean")
        _line(axes, paper, "user_spread", label="standard deviation over users", look="spread")
        axes.set_yscale("log")
        axes.legend(fontsize=7)
    else:
        _line(axes, paper, metric, label="mean", look="mean")
        axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{sweep.label} ({sweep.fixed})")
    axes.set_ylabel(_LABELS[metric])


def _line(axes: Axes, outcomes: list[PaperOutcome], metric: str, *, label: str, look: str) -> None:
    """Draw the mean over draws, and a band from the 10th to the 90th percentile."""
    x = [o.sweep.parameter(o.setting) for o in outcomes]
    rows = [o.metrics[metric] for o in outcomes]
    colour, dashes, marker = look_of(look)
    low, high = np.quantile(rows, (0.1, 0.9), axis=1)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    means = [float(row.mean()) for row in rows]
    axes.plot(x, means, dashes, color=colour, marker=marker, markersize=3.5, label=label)
