"""The figure of the accuracy study: measured beside predicted, reward by reward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbourse.figures import STYLE, look_of, need_matplotlib, pyplot, save_figure
from fedbourse.game import ACCURACY_MODELS
from fedbourse.learning.aggregation import AGGREGATIONS

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbourse.study.accuracy import AccuracyStudy, Point


def draw_accuracy(study: AccuracyStudy, folder: Path) -> list[Path]:
    """Write the figure as SVG and PNG; return the files."""
    plt = need_matplotlib()
    with plt.rc_context(STYLE):
        figure = accuracy_figure(study)
        written = save_figure(figure, folder / "accuracy", "accuracy")
        plt.close(figure)
    return written


def accuracy_figure(study: AccuracyStudy) -> Figure:
    """Return both aggregations as one figure."""
    plt = pyplot()
    with plt.rc_context(STYLE):
        figure: Figure
        figure, grid = plt.subplots(1, 2, figsize=(7.2, 3.2), layout="constrained", sharey=True)
        for axes, aggregation in zip(grid, AGGREGATIONS, strict=True):
            points = [point for point in study.points if point.aggregation == aggregation]
            _panel(axes, points)
            axes.set_title(f"{aggregation} weights", fontsize=9, loc="left")
        grid[0].set_ylabel("accuracy, %")
        grid[1].legend(fontsize=7, loc="lower right")
        figure.supxlabel(
            f"{study.task.data}: means of {points[0].measured.count} seeds; bars: 95 % intervals",
            fontsize=7,
        )
    return figure


def _panel(axes: Axes, points: list[Point]) -> None:
    x = [point.factor for point in points]
    axes.errorbar(
        x,
        [100 * point.measured.value for point in points],
        yerr=[100 * point.measured.margin for point in points],
        color="#000000",
        marker="o",
        markersize=4,
        capsize=2,
        label="measured",
        zorder=3,
    )
    for name in ACCURACY_MODELS:
        colour, dashes, marker = look_of(name)
        axes.plot(
            x,
            [100 * point.predicted[name] for point in points],
            dashes,
            color=colour,
            marker=marker,
            markersize=3,
            label=name,
        )
    axes.axhline(100 * points[0].ceiling, color="#666666", linewidth=0.8, label="without noise")
    axes.set_xscale("log")
    axes.set_xlabel("reward, in turning rewards")
