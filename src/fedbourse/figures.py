"""Figures in one style, for print and for every kind of colour vision; matplotlib draws them.

The charts of results (``game.presentation``) are drawn here: importing this module tells the game.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbourse.errors import MissingExtra
from fedbourse.game import ACCURACY_MODELS
from fedbourse.game.presentation import Chart, draw_with
from fedbourse.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

_POINTS_MAX = 60
"""Owners that are drawn as points; more of them are a line."""

# Okabe and Ito's colours, told apart by every common colour vision; dashes and markers say the
# same again for print without colour.
LOOKS = {
    "paper": ("#0072B2", "-", "o"),
    "population": ("#E69F00", "--", "s"),
    "averaged": ("#009E73", "-.", "^"),
    "precision": ("#D55E00", ":", "D"),
    "mean": ("#000000", "-", "o"),
    "spread": ("#666666", "--", "v"),
}
_OTHER_LOOKS = (("#CC79A7", "-", "P"), ("#56B4E9", "--", "X"), ("#F0E442", "-.", "*"))
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.dpi": 200,
    "svg.hashsalt": "fedbourse",  # the same study gives the same bytes
}


def draw(chart: Chart, axes: Any = None) -> Any:
    """Draw a chart into matplotlib's axes, or into new ones, and return them."""
    plt = pyplot()
    with plt.rc_context(STYLE | {"figure.dpi": 100}):
        if axes is None:
            _, axes = plt.subplots(figsize=(5.0, 3.2), layout="constrained")
        for line in chart.lines:
            if chart.kind == "histogram":
                axes.hist(line.y, bins="auto", color=LOOKS["mean"][0], alpha=0.6)
                continue
            colour, dashes, marker = look_of(line.label)
            few = len(line.x) <= _POINTS_MAX
            axes.plot(
                line.x,
                line.y,
                linestyle="none" if chart.kind == "points" and few else dashes,
                color=colour,
                marker=marker if few else None,
                markersize=3.5,
                label=line.label,
            )
        if len(chart.lines) > 1:
            axes.legend(fontsize=7, frameon=False)
        axes.set_title(chart.title, fontsize=9, loc="left")
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel(chart.y_label)
    return axes


def look_of(name: str) -> tuple[str, str, str]:
    """Return colour, dashes and marker of a line; accuracy models that packages add have some."""
    if name in LOOKS:
        return LOOKS[name]
    others = [model for model in ACCURACY_MODELS if model not in LOOKS]
    place = others.index(name) if name in others else sum(name.encode())
    return _OTHER_LOOKS[place % len(_OTHER_LOOKS)]


def save_figure(figure: Figure, stem: Path, study: str = "paper") -> list[Path]:
    """Write a figure as SVG and PNG, the same bytes for the same study; return the files."""
    title = f"fedbourse {__version__} study {study}"
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg, metadata={"Date": None, "Title": title})
    figure.savefig(png, metadata={"Software": title})
    return [svg, png]


def need_matplotlib() -> Any:
    """Return pyplot, set up to write files; or say which extra is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtra(
            "figures need matplotlib, which is not installed: pip install 'fedbourse[study]'"
        ) from None
    mpl.use("agg")
    return pyplot()


def pyplot() -> Any:
    """Return pyplot as it is set up, in a notebook say; or say which extra is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtra(
            "figures need matplotlib, which is not installed: pip install 'fedbourse[study]'"
        ) from None
    return plt


draw_with(draw)
