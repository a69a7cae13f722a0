"""The charts of a report, as SVG text that stands inside a page."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from fedbourse.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart by every common colour vision.
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
_STYLE: Any = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "fedbourse",
}


def accuracy_by_round(report: Mapping[str, Any]) -> str:
    """Draw the accuracy on the buyer's own records after each round."""
    accuracy = report["accuracy"]

    def draw(axes: Axes) -> None:
        rounds = [seen["number"] + 1 for seen in report["rounds"]]
        axes.plot(rounds, [100 * seen["accuracy"] for seen in report["rounds"]], color=_BLUE)
        for (name, level), colour, dash in zip(
            accuracy["references"].items(), (_GREEN, _GREY), ("--", ":"), strict=False
        ):
            axes.axhline(100 * level, color=colour, linestyle=dash, label=name)
        axes.set_xlabel("round")
        axes.set_ylabel("accuracy, %")
        axes.legend(loc="center right")

    return _svg(draw, "Accuracy on the buyer's own records, round by round")


def predicted_and_measured(report: Mapping[str, Any]) -> str:
    """Draw what each model predicted beside what was measured."""
    accuracy = report["accuracy"]

    def draw(axes: Axes) -> None:
        levels = {**accuracy["predicted"], "measured": accuracy["measured"]}
        colours = [_GREY] * len(accuracy["predicted"]) + [_ORANGE]
        for place, (level, colour) in enumerate(zip(levels.values(), colours, strict=True)):
            axes.plot(100 * level, place, "o", color=colour)
            label = f"{100 * level:.1f}"
            axes.annotate(label, (100 * level, place), (-30, -3), textcoords="offset points")
        axes.set_yticks(range(len(levels)), list(levels))
        axes.axvline(100 * accuracy["chance"], color=_GREY, linestyle=":", label="a guess")
        axes.axvline(100 * accuracy["ceiling"], color=_GREEN, linestyle="--", label="the pilot")
        axes.invert_yaxis()
        axes.margins(x=0.12, y=0.15)
        axes.set_xlabel("accuracy, %")
        axes.legend(loc="center", fontsize=8)

    return _svg(draw, "Accuracy predicted by each model, and measured")


def pay_and_budget(report: Mapping[str, Any]) -> str:
    """Draw each participant's pay against its budget: a straight line, for pay is proportional."""

    def draw(axes: Axes) -> None:
        axes.scatter(
            [owner["budget"] for owner in report["owners"]],
            [owner["payment_micro"] / 1e6 for owner in report["owners"]],
            color=_BLUE,
        )
        axes.set_xlim(0)
        axes.set_ylim(0)
        axes.set_xlabel("budget sold, rho")
        axes.set_ylabel("pay, credits")

    return _svg(draw, "Pay of each participant against the budget that it sold")


def _svg(draw: Callable[[Axes], None], title: str) -> str:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("reports need matplotlib: pip install 'fedbourse[study]'") from None
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        draw(figure.add_subplot())
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Title": title})
    body = text.getvalue()[text.getvalue().index("<svg") :]
    # Matplotlib names a namespace that no browser needs; a page that asks nobody names nobody.
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    return body.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
