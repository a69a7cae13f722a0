"""Pay and utility over budgets, drawn with letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedbourse.agent import Advice

_WIDTH, _HEIGHT = 60, 11
_MARKS = {"pay": "●", "utility": "◆", "both": "◈", "best": "▲", "axis": "─", "wall": "│"}
_ASCII = {"pay": "o", "utility": "x", "both": "*", "best": "^", "axis": "-", "wall": "|"}


def chart(advice: Advice, *, encoding: str) -> list[str]:
    """Return the lines of a chart; with plain letters where the encoding knows no others."""
    marks = _marks(encoding)
    choices = advice.choices
    top = max(choice.pay for choice in choices)
    low = min(0.0, *(choice.utility for choice in choices))
    high = max(top, low + 1e-12)
    most = max(choice.budget for choice in choices) or 1.0
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]

    def level(amount: float) -> int:
        return round((high - amount) / (high - low) * (_HEIGHT - 1))

    def column(budget: float) -> int:
        return round(budget / most * (_WIDTH - 1))

    for x in range(_WIDTH):
        grid[level(0.0)][x] = marks["axis"]
    for choice in choices:
        x, pay, utility = column(choice.budget), level(choice.pay), level(choice.utility)
        grid[utility][x] = marks["utility"]
        grid[pay][x] = marks["both" if pay == utility else "pay"]
    labels = {0: f"{high:.4g}", level(0.0): "0", _HEIGHT - 1: f"{low:.4g}"}
    wide = max(len(text) for text in labels.values())
    lines = [
        f"{labels.get(i, ''):>{wide}} {marks['wall']}{''.join(row).rstrip()}"
        for i, row in enumerate(grid)
    ]
    at = column(advice.best.budget)
    lines.append(f"{'':>{wide}}  {'':{at}}{marks['best']}")
    lines.append(
        f"{'':>{wide}}  credits over budgets from 0 to {most:.4g} rho: {marks['pay']} pay, "
        f"{marks['utility']} utility, {marks['best']} best reply"
    )
    return lines


def _marks(encoding: str) -> dict[str, str]:
    try:
        "".join(_MARKS.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _MARKS
