"""The charts of a report, as SVG text that stands inside a page.

They hold no style and no script, so that a page with the strictest policy shows them; their colours
are classes (``chart-1`` ...) that the page's own style fills in, light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT = 440.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 14.0, 44.0
_ROUNDS_SHOWN = 400  # more than a screen has points for
Numbers = Sequence[float]


def charts_of(report: Mapping[str, Any]) -> dict[str, Markup]:
    """Return the charts that a report has the numbers for."""
    accuracy, owners = report["accuracy"], report["owners"] or []
    charts = {}
    if accuracy["measured"] is not None:
        charts["rounds"] = accuracy_by_round(report)
        charts["predicted"] = predicted_and_measured(report)
    elif report["rounds"]:
        charts["updates"] = updates_by_round(report)
    if len([owner for owner in owners if owner["budget"] is not None]) > 1:
        charts["pay"] = pay_and_budget(report)
    return charts


def accuracy_by_round(report: Mapping[str, Any]) -> Markup:
    """Draw the accuracy on the buyer's own records after each round."""
    shown, levels = _thinned(report["rounds"]), report["accuracy"]["references"]
    rounds = [each["number"] + 1 for each in shown]
    measured = [100 * each["accuracy"] for each in shown]
    without = [100 * each for each in _without_evidence(report)]
    ends = [100 * level for level in levels.values()]
    sheet = Sheet.over(rounds, [*measured, *without, *ends], whole=True)
    parts = [sheet.axes("round", "accuracy, %")]
    if without:
        parts.append(sheet.line(rounds, without, "chart-soft"))
    parts.append(sheet.line(rounds, measured, "chart-1"))
    for place, (name, level) in enumerate(levels.items()):
        beneath = 100 * level < measured[-1]  # where the curve is not
        parts.append(sheet.level(100 * level, name, f"chart-{place + 2}", beneath=beneath))
    return sheet.svg("Accuracy on the buyer's own records, round by round", parts)


def _without_evidence(report: Mapping[str, Any]) -> Numbers:
    """Return the accuracies of the same trade without evidence, where there was one."""
    if not report.get("evidence"):
        return ()
    others = [each for each in report.get("comparison", ()) if not each["evidence"]]
    return [
        other["accuracies"][each["number"]]
        for other in others
        for each in _thinned(report["rounds"])
    ]


def updates_by_round(report: Mapping[str, Any]) -> Markup:
    """Draw how many updates each round received, beside how many owners signed."""
    shown = _thinned(report["rounds"])
    rounds = [each["number"] + 1 for each in shown]
    updates = [float(each["updates"]) for each in shown]
    sheet = Sheet.over(rounds, [0.0, *updates, 1.2 * report["participants"]], whole=True)
    parts = [
        sheet.axes("round", "updates"),
        sheet.level(report["participants"], f"all {report['participants']} who signed", "chart-2"),
        sheet.line(rounds, updates, "chart-1"),
    ]
    return sheet.svg("How many updates arrived, round by round", parts)


def predicted_and_measured(report: Mapping[str, Any]) -> Markup:
    """Draw what each model predicted beside what was measured."""
    accuracy = report["accuracy"]
    levels = {**accuracy["predicted"], "measured": accuracy["measured"]}
    ends = {"a guess": accuracy["chance"], "the pilot": accuracy["ceiling"]}
    sheet = Sheet.over([100 * each for each in (*levels.values(), *ends.values())], [0.0, 1.0])
    sheet = Sheet(sheet.x, (0.0, float(len(levels))), left=82.0)
    parts = [sheet.axes("accuracy, %", "", y_ticks=False)]
    for place, (name, level) in enumerate(ends.items()):
        parts.append(sheet.upright(100 * level, name, f"chart-{place + 2}"))
    for place, (name, level) in enumerate(levels.items()):
        y = len(levels) - 0.5 - place
        colour = "chart-1" if name == "measured" else "chart-soft"
        parts.append(sheet.dot(100 * level, y, colour, f"{name}: {100 * level:.1f} %"))
        parts.append(sheet.row(name, y, f"{100 * level:.1f}", 100 * level))
    return sheet.svg("Accuracy predicted by each model, and measured", parts)


def pay_and_budget(report: Mapping[str, Any]) -> Markup:
    """Draw each participant's pay against its budget: a straight line where pay is proportional."""
    sellers = [owner for owner in report["owners"] if owner["budget"] is not None]
    budgets = [owner["budget"] for owner in sellers]
    pays = [owner["payment_micro"] / 1e6 for owner in sellers]
    sheet = Sheet.over([0.0, *budgets], [0.0, *pays])
    parts = [sheet.axes("budget sold, rho", "pay, credits")]
    for owner, budget, pay in zip(sellers, budgets, pays, strict=True):
        title = f"{owner['owner']}: {budget:.4g} rho, {pay:.6g} credits"
        parts.append(sheet.dot(budget, pay, "chart-1", title))
    return sheet.svg("Pay of each participant against the budget that it sold", parts)


@dataclass(frozen=True)
class Sheet:
    """A drawing area: the ranges of its two axes."""

    x: tuple[float, float]
    y: tuple[float, float]
    left: float = _LEFT
    whole: bool = False
    """Whether x only has whole numbers, such as rounds."""

    @classmethod
    def over(cls, xs: Numbers, ys: Numbers, *, whole: bool = False) -> Sheet:
        """Return a sheet with room for these numbers."""
        return cls(_range(xs), _range(ys), whole=whole)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point lies on the drawing."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        wide, high = WIDTH - self.left - _RIGHT, HEIGHT - _TOP - _BOTTOM
        return round(self.left + across * wide, 2), round(HEIGHT - _BOTTOM - up * high, 2)

    def axes(self, x_label: str, y_label: str, *, y_ticks: bool = True) -> Markup:
        """Draw a grid with its numbers, and what is measured along each side."""
        parts = []
        for tick in _ticks(self.x, whole=self.whole):
            x, _ = self.at(tick, self.y[0])
            parts.append(_line((x, _TOP), (x, HEIGHT - _BOTTOM), "chart-grid"))
            parts.append(_text((x, HEIGHT - _BOTTOM + 16), f"{tick:g}", "middle"))
        for tick in _ticks(self.y) if y_ticks else ():
            _, y = self.at(self.x[0], tick)
            parts.append(_line((self.left, y), (WIDTH - _RIGHT, y), "chart-grid"))
            parts.append(_text((self.left - 6, y + 4), f"{tick:g}", "end"))
        middle = (self.left + WIDTH - _RIGHT) / 2
        parts.append(_text((middle, HEIGHT - 8), x_label, "middle"))
        if y_label:
            turned = Markup('<g transform="rotate(-90)">{}</g>')
            place = (-(HEIGHT - _BOTTOM + _TOP) / 2, 13.0)
            parts.append(turned.format(_text(place, y_label, "middle")))
        return Markup("").join(parts)

    def line(self, xs: Numbers, ys: Numbers, colour: str) -> Markup:
        """Draw a curve; a single point is a dot."""
        if len(xs) == 1:
            return self.dot(xs[0], ys[0], colour, f"{ys[0]:g}")
        points = " ".join("{},{}".format(*self.at(*each)) for each in zip(xs, ys, strict=True))
        curve = Markup('<polyline class="chart-line {}" points="{}" fill="none"/>')
        return curve.format(colour, points)

    def level(self, y: float, name: str, colour: str, *, beneath: bool = False) -> Markup:
        """Draw a level line with its name above or beneath it."""
        (x, height), end = self.at(self.x[0], y), WIDTH - _RIGHT
        dash = _line((x, height), (end, height), f"chart-level {colour}")
        beneath = beneath and height < HEIGHT - _BOTTOM - 18
        return dash + _text((end - 4, height + (14 if beneath else -5)), name, "end")

    def upright(self, x: float, name: str, colour: str) -> Markup:
        """Draw a vertical line with its name beside it."""
        place, _ = self.at(x, self.y[0])
        right = place > WIDTH / 2
        label = _text((place + (-4 if right else 4), _TOP + 8), name, "end" if right else "start")
        return _line((place, _TOP), (place, HEIGHT - _BOTTOM), f"chart-level {colour}") + label

    def row(self, name: str, y: float, number: str, x: float) -> Markup:
        """Write the name of a row at its left, and a number beside its dot."""
        place, height = self.at(x, y)
        beside = _text((place - 9, height + 4), number, "end")
        return _text((self.left - 8, height + 4), name, "end") + beside

    def dot(self, x: float, y: float, colour: str, title: str) -> Markup:
        """Draw a point that says what it is."""
        dot = Markup(
            '<circle class="chart-dot {}" cx="{}" cy="{}" r="4"><title>{}</title></circle>'
        )
        return dot.format(colour, *self.at(x, y), title)

    def svg(self, title: str, parts: Sequence[Markup]) -> Markup:
        """Return the whole drawing, with a name for those who hear it."""
        frame = Markup('<svg class="chart-svg" role="img" aria-label="{}" viewBox="0 0 {:g} {:g}">')
        return frame.format(title, WIDTH, HEIGHT) + Markup("").join(parts) + Markup("</svg>")


def _line(start: tuple[float, float], end: tuple[float, float], name: str) -> Markup:
    line = Markup('<line class="{}" x1="{:g}" y1="{:g}" x2="{:g}" y2="{:g}"/>')
    return line.format(name, *start, *end)


def _text(place: tuple[float, float], words: str, anchor: str) -> Markup:
    text = Markup('<text x="{:g}" y="{:g}" text-anchor="{}">{}</text>')
    return text.format(*place, anchor, words)


def _range(numbers: Numbers) -> tuple[float, float]:
    """Return ends of an axis with a little room, or with room around a single number."""
    low, high = min(numbers), max(numbers)
    room = (high - low) / 16 or abs(high) / 2 or 1.0
    return (low if low == 0 else low - room), high + room


def _ticks(ends: tuple[float, float], *, whole: bool = False) -> list[float]:
    """Return three to six round numbers within a range.

    >>> _ticks((0.0, 1.0)), _ticks((58.7, 71.2))
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [60.0, 62.5, 65.0, 67.5, 70.0])
    """
    rough = (ends[1] - ends[0]) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * each for each in (1, 2, 2.5, 5, 10) if size * each >= rough * 0.999)
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(ends[0] / step - 1e-9)
    last = math.floor(ends[1] / step + 1e-9)
    return [float(f"{step * each:.12g}") for each in range(first, last + 1)]


def _thinned(rounds: Sequence[Any]) -> Sequence[Any]:
    """Return rounds at even distances, the last among them, where there are very many."""
    step = -(-len(rounds) // _ROUNDS_SHOWN)
    return rounds if step <= 1 else [*rounds[:-1:step], rounds[-1]]
