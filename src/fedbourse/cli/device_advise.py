"""``fedbourse device advise``: what budgets would earn in a task, and what they would cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from fedbourse.cli.device_check import check_of, fit_sentence, used_sentence
from fedbourse.cli.device_options import (
    THE_DEVICE,
    DeviceOptions,
    MarketAddress,
    OpenTask,
    open_task,
)
from fedbourse.cli.option_values import numbers
from fedbourse.cli.output import PEOPLE, Blocks, Output, console, epsilon_columns, table
from fedbourse.privacy.loss import NOTES, losses_text
from fedbourse.units import number

if TYPE_CHECKING:
    from fedbourse.device import Advice, DataCheck

_WIDTH, _HEIGHT = 60, 11
_MARKS = {"pay": "●", "utility": "◆", "both": "◈", "best": "▲", "axis": "─", "wall": "│"}
_ASCII = {"pay": "o", "utility": "x", "both": "*", "best": "^", "axis": "-", "wall": "|"}


def advise(
    task: OpenTask,
    /,
    *,
    budgets: str | None = None,
    server: MarketAddress = None,
    device: DeviceOptions = THE_DEVICE,
    output: Output = PEOPLE,
) -> None:
    """Show what budgets would earn in a task, and what they would cost you.

    Utility is the pay less what the privacy is worth to you. The best reply is the budget with the
    most of it, while everybody else sells what they now seem to.

    For example:

        fedbourse device advise latest

        fedbourse device advise 018f0c3e9a5b7d2c4e6f8a1b --budgets 0.05,0.1,0.2 --json

    Parameters
    ----------
    budgets
        The budgets to show, in rho, with commas between them; by default a range.
    """
    choices = None
    if budgets is not None:
        listed = numbers("--budgets", budgets, example="0.1,0.2")
        choices = [number("budgets", rho, at_least=0) for rho in listed]
    with device.looking() as agent:
        name = open_task(agent, task, server=server)
        advice = agent.advise(name, server=server, budgets=choices)
        check = check_of(agent, name, server=server)
    data = None if check is None else asdict(check)
    document = {"task": name, **asdict(advice), "data": data}
    output.show(document, lambda _: _in_words(name, advice, check))


def _in_words(task: str, advice: Advice, check: DataCheck | None) -> Blocks:
    best = advice.best
    yield table(
        [asdict(choice) | {"best": choice == best} for choice in advice.choices],
        {
            "<": lambda choice: Text("best", "bold green") if choice["best"] else "",
            "budget rho": "{budget:.6g}",
            "pay": "{pay:.6f}",
            "utility": "{utility:.6f}",
            **epsilon_columns(),
            "of the\ncap's rho": "{cap_share:.1%}",
        },
    )
    yield ""
    yield from chart(advice, encoding=console().encoding)
    yield ""
    yield {
        "task": f"{task}, {advice.reward:g} credits for all owners",
        "based on": f"{advice.basis}; others sell {advice.others:.6g} rho",
        "best reply": f"to sell nothing: {advice.reason}"
        if not best.budget
        else f"{best.budget:.6g} rho for {best.pay:.6f} credits, {losses_text(asdict(best))}",
        "rules of pay": advice.incentive,
        **_evidence(advice),
        "cap": f"{advice.left:.6g} rho is left of it",
        "records": "an application brings them"
        if check is None
        else f"{fit_sentence(check)}; used: {used_sentence(check)}; only you see this",
        "epsilon": "at delta 1e-5: nobody who sees all updates becomes surer by more than a "
        "factor e^epsilon whether a record was among yours",
        **NOTES,
    }


def _evidence(advice: Advice) -> dict[str, str]:
    """Return whether what is best to sell can be judged, where the card has evidence."""
    if advice.evidence is None or not advice.best.budget:
        return {}
    return {"evidence": advice.evidence.judging(advice.best.budget)}


def chart(advice: Advice, *, encoding: str) -> list[str]:
    """Return the lines of a chart; in ASCII where the encoding has no other marks."""
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
